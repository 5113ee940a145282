"""An embedded Kafka broker: one KRaft node as a child process, for the demo, the tests and a laptop without Kafka."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ingest.lab.broker import broker_probe
from ingest.lab.broker.broker_config import HOST, LOG4J2, Listener, server_properties
from ingest.lab.broker.broker_state import BrokerState
from ingest.lab.broker.ports import free_port, is_free, port_taken
from ingest.lab.process import ProcessId, launch
from ingest.runtime import java
from ingest.runtime.errors import InvalidEnvironment
from ingest.runtime.files import usable
from ingest.runtime.jars import JarSet, ensure, exclusively

START_DEADLINE_S = 60.0
STOP_GRACE_S = 20.0

# Kafka preallocates 10 MB of index for every active segment, and a full disk stops it for good.
DISK_FREE_BYTES_MIN = 500 * 1024 * 1024

_PORT_TRIES = 3
_HEAP = ("-Xms128m", "-Xmx512m")


class Broker:
    """One broker for one data folder.

    `port` 0 reuses the folder's previous port, or takes a free one. With `die_with_parent` the broker ends with this process, even
    if this process is killed (start the broker on the main thread). Without it, the broker is a daemon that any process can `stop`.
    `beside`, called at each start, returns a second listener. As a context manager the broker starts on entry and stops on exit.
    """

    def __init__(
        self, folder: Path | str, *, port: int = 0, die_with_parent: bool = True, beside: Callable[[], Listener] | None = None
    ) -> None:
        self.folder = Path(folder).absolute()
        self._wanted_port = port
        self._die_with_parent = die_with_parent
        self._beside = beside
        self._child: subprocess.Popen[bytes] | None = None
        self._logged_before = 0

    @property
    def state(self) -> BrokerState | None:
        return BrokerState.read(self.folder)

    @property
    def process(self) -> ProcessId | None:
        """The running broker, or None."""
        state = self.state
        return state.process if state is not None and state.process.alive() else None

    @property
    def port(self) -> int:
        """The port for clients; raises InvalidEnvironment BROKER_STOPPED if this folder never had a broker."""
        return self._known().port

    @property
    def pid(self) -> int:
        return self._known().process.pid

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> Broker:
        """Start the broker and wait until it answers; a broker that already runs in this folder is reused.

        Raises InvalidEnvironment PORT_TAKEN, DISK_FULL, BROKER_FAILED, BROKER_FOLDER, BROKER_STATE or BROKER_RUNNING (on another port),
        and the errors of java.find and jars.ensure.
        """
        executable, jars = java.find().executable, ensure(JarSet.BROKER)
        with usable(self.folder, _disk_full, _unusable), exclusively(self.folder / "start.lock"):
            state = self.state
            if state is not None and state.process.alive():
                if self._wanted_port not in (0, state.port):
                    found = f"the broker in {self.folder} runs on port {state.port}, not {self._wanted_port}."
                    remedy = f"ingest broker stop --data {self.folder}, or use port {state.port}."
                    raise InvalidEnvironment("BROKER_RUNNING", found, expected="one port per folder.", remedy=remedy)
                return self
            if shutil.disk_usage(self.folder).free < DISK_FREE_BYTES_MIN:
                raise _disk_full(self.folder)
            fixed_port = self._wanted_port or (state.port if state else 0)
            # The JVM unpacks native libraries here; a killed broker leaves them behind.
            scratch = self._without_scratch()
            scratch.mkdir()
            # Files are relative to the working folder, whose name may contain any character.
            command = [str(executable), *_HEAP, "-Dlog4j2.configurationFile=log4j2.properties"]
            command += [f"-Djava.io.tmpdir={scratch}"]
            command += ["-cp", os.pathsep.join(map(str, jars))]
            for tries_left in reversed(range(_PORT_TRIES)):
                port = fixed_port or free_port()
                if not is_free(port):
                    raise port_taken(port)
                try:
                    self._launch(command, port)
                    break
                except InvalidEnvironment as error:
                    # Another process took a port between our check and Kafka's bind. Try another port, unless a fixed port is taken.
                    if error.code != "PORT_TAKEN" or tries_left == 0 or not (fixed_port == 0 or is_free(port)):
                        raise
        return self

    def stop(self) -> bool:
        """Shut down cleanly, by force after STOP_GRACE_S; topics are kept. False if no broker ran."""
        return self._end(STOP_GRACE_S)

    def kill(self) -> bool:
        """SIGKILL, for tests of what survives a crash. False if no broker ran."""
        return self._end(0)

    def answers(self) -> bool:
        """Whether it answers now."""
        return broker_probe.answers(self.bootstrap_servers, timeout_s=5.0)

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until it can be written; raises kafka.errors.TopicAlreadyExistsError."""
        broker_probe.create_topic(self.bootstrap_servers, name, partitions, configs or {})

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _known(self) -> BrokerState:
        state = self.state
        if state is None:
            found = f"no broker was ever started in {self.folder}."
            raise InvalidEnvironment(
                "BROKER_STOPPED", found, expected="a started broker.", remedy=f"ingest broker start --data {self.folder}"
            )
        return state

    def _end(self, grace_s: float) -> bool:
        state = self.state
        ended = state is not None and state.process.end(grace_s=grace_s)
        if self._child is not None:
            self._child.wait()  # reap it, or it stays in the process table as our zombie
            self._child = None
            atexit.unregister(self.stop)
        if ended:
            self._without_scratch()
        return ended

    def _without_scratch(self) -> Path:
        scratch = self.folder / "tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        return scratch

    def _launch(self, command: list[str], port: int) -> None:
        properties = self.folder / "server.properties"
        listeners = (Listener(port), *([self._beside()] if self._beside else []))
        properties.touch(mode=0o600)  # it may hold the password of a keystore
        properties.write_text(server_properties(listeners, free_port(besides=port)), encoding="utf-8")
        (self.folder / "log4j2.properties").write_text(LOG4J2, encoding="utf-8")
        output = self.folder / "console.log"
        output.write_bytes(b"")
        log = self.folder / "server.log"
        self._logged_before = log.stat().st_size if log.exists() else 0
        if not (self.folder / "data" / "meta.properties").exists():
            # In Kafka's format, without dashes: a leading one would be mistaken for an option.
            cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
            format_it = [*command, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
            with output.open("ab") as console:
                run = partial(
                    subprocess.run, format_it, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=console, stderr=console, check=False
                )
                try:
                    formatted = run(timeout=START_DEADLINE_S).returncode == 0
                except subprocess.TimeoutExpired:
                    formatted = False
            if not formatted:
                raise self._failure(port)
        # The path of this folder's server.properties is the marker that identifies its process.
        self._child, process = launch(
            [*command, "kafka.Kafka", str(properties)],
            marker=str(properties),
            output=output,
            cwd=self.folder,
            die_with_parent=self._die_with_parent,
        )
        BrokerState(process, port).write(self.folder)
        if self._die_with_parent:
            atexit.register(self.stop)
        try:
            deadline = time.monotonic() + START_DEADLINE_S
            while not broker_probe.answers(f"{HOST}:{port}", timeout_s=2.0):
                if self._child.poll() is not None or time.monotonic() > deadline:
                    raise self._failure(port)
                time.sleep(0.05)
        except BaseException:
            self.kill()
            raise

    def _failure(self, port: int) -> InvalidEnvironment:
        """The reason of a failed start, from the output and log lines of this start."""
        console, log = self.folder / "console.log", self.folder / "server.log"
        text = _tail(console, 0) + _tail(log, self._logged_before)
        if "Address already in use" in text:
            return port_taken(port)
        if "No space left on device" in text:
            return _disk_full(self.folder)
        found = f"the embedded broker ended, or did not answer within {START_DEADLINE_S:.0f} s."
        return InvalidEnvironment("BROKER_FAILED", found, expected=f"a broker at {HOST}:{port}.", remedy=f"see {log} and {console}.")


def _tail(log: Path, offset: int) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as content:
        content.seek(offset if log.stat().st_size >= offset else 0)  # the log was rolled meanwhile
        return content.read().decode(errors="replace")


def _unusable(folder: Path, error: OSError) -> InvalidEnvironment:
    found, remedy = f"the broker's folder {folder} cannot be used ({error}).", "choose another one: ingest broker start --data <folder>"
    return InvalidEnvironment("BROKER_FOLDER", found, expected="a folder that this user can write.", remedy=remedy)


def _disk_full(folder: Path) -> InvalidEnvironment:
    wanted = f"{DISK_FREE_BYTES_MIN // 2**20} MB free for the broker's logs."
    return InvalidEnvironment(
        "DISK_FULL", f"too little space is left under {folder}.", expected=wanted, remedy="free space or give another --data folder."
    )
