"""A Spark standalone cluster on this machine's loopback address: a master and workers as processes, from pyspark's own jars.

It runs a job on more than one JVM: pass `master_url` to `ingest run --master`. Executors are children of their worker.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psutil

from ingest.lab.broker.broker_config import HOST
from ingest.lab.broker.ports import free_port
from ingest.lab.process import launch, of_group
from ingest.runtime import java

START_WITHIN_S: Final = 60.0
GONE_WITHIN_S: Final = 30.0
DAEMON_MEMORY: Final = "256m"
EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass
class _Member:
    """A master or worker. It leads the process group of its executors."""

    process: subprocess.Popen[bytes]
    log: Path

    def processes(self) -> list[psutil.Process]:
        return of_group(self.process.pid)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(GONE_WITHIN_S)
        deadline = time.monotonic() + GONE_WITHIN_S
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)


class Cluster:
    """A master and `workers` workers, each with `cores` cores and `memory_mb` MB for executors. They write only to `folder`.

    A context manager: on entry it starts all processes and waits until the master knows every worker; on exit it kills them. Start it
    from the main thread; it dies with this process.
    """

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory_mb: int = 1024) -> None:
        self.folder = folder
        self.workers: list[_Member] = []
        self._wanted, self._cores, self._memory_mb = workers, cores, memory_mb
        self._master: _Member | None = None
        self._port = self._page_port = 0

    @property
    def master_url(self) -> str:
        """The value for --master."""
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Cluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        self._page_port = free_port(besides=self._port)
        try:
            self._master = self._start("master", ["--port", str(self._port), "--webui-port", str(self._page_port)])
            self._await(lambda: self.told() is not None, "an answer from the master")
            for _ in range(self._wanted):
                self.start_worker()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def start_worker(self) -> None:
        """Start another worker. Returns once the master knows it."""
        name = f"worker-{len(list(self.folder.glob('worker-*.log')))}"
        known = self._alive()
        words = ["--port", str(free_port(besides=self._port)), "--webui-port", str(free_port(besides=self._port))]
        words += ["--cores", str(self._cores), "--memory", f"{self._memory_mb}m", "--work-dir", str(self.folder / name)]
        self.workers.append(self._start("worker", [*words, self.master_url], name))
        self._await(lambda: self._alive() > known, f"{name} registered with the master")

    def executors(self) -> list[psutil.Process]:
        """The executors of all applications, in the order of their workers' start."""
        found = []
        for worker in self.workers:
            for process in worker.processes():
                with suppress(psutil.NoSuchProcess):
                    # A child that an executor has just forked still has the executor's command line.
                    if EXECUTOR in process.cmdline() and process.ppid() == worker.process.pid:
                        found.append(process)
        return found

    def kill_worker(self, number: int) -> None:
        """Send SIGKILL to a worker and its executors, as if its machine died."""
        self.workers.pop(number).kill()

    def end(self) -> None:
        """Kill all processes. Harmless if none are running."""
        for member in (*self.workers, *([self._master] if self._master else [])):
            member.kill()
        self.workers.clear()
        self._master = None

    def told(self) -> dict[str, Any] | None:
        """The master's status page as JSON (workers, applications). None if it does not answer."""
        with suppress(OSError, ValueError), urllib.request.urlopen(f"http://{HOST}:{self._page_port}/json/", timeout=2) as answer:
            status = json.load(answer)
            return status if isinstance(status, dict) else None
        return None

    def _alive(self) -> int:
        return sum(worker.get("state") == "ALIVE" for worker in (self.told() or {}).get("workers", []))

    def _start(self, role: str, words: list[str], name: str = "master") -> _Member:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self.folder / f"{name}.log"
        local = self.folder / f"{name}-local"
        local.mkdir(exist_ok=True)
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}.{role.capitalize()}", "--host", HOST, *words]
        own = {
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(java.find().home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(local),
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={local} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        # INGEST_* settings of a test (such as an injected fault) are meant for the driver, not for the cluster.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("INGEST_")}
        process, _ = launch(command, marker=command[0], output=log, cwd=self.folder, die_with_parent=True, env={**inherited, **own})
        return _Member(process, log)

    def _await(self, look: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_WITHIN_S
        while not look():
            ended = next((m for m in (self._master, *self.workers) if m is not None and m.process.poll() is not None), None)
            if ended is not None or time.monotonic() > deadline:
                ending = f"; {ended.log.stem} ended" if ended else ""
                raise AssertionError(f"not within {START_WITHIN_S:.0f} s: {what}{ending}; the logs are in {self.folder}")
            time.sleep(0.05)
