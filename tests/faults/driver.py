"""One `ingest run` as a real process: tests start it, watch it, kill it, and check that no process is left.

Nothing here sleeps to wait for a state: every wait polls for the state itself, with a deadline. A driver has a mark in its environment,
which its JVM and all their children inherit. By this mark, a test proves that none of them is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from tests import polling

REPOSITORY = Path(__file__).resolve().parents[2]
MARK = "INGEST_TEST_MARK"
# Generous: a start takes 10 s on an idle machine with two cores, and a loaded machine must not fail a test.
DEADLINE_S = 300.0

T = TypeVar("T")


def until(look: Callable[[], T], what: str | Callable[[], str], deadline_s: float = DEADLINE_S) -> T:
    """polling.until with a deadline that suits drivers."""
    return polling.until(look, what, deadline_s)


class Driver:
    """A run of the command in its own session. `log` receives stdout and stderr.

    `code` is the folder that contains the package `ingest`: this repository, or a copy with a mutant. `reader` is a command that reads
    the run's stdout through a pipe. The process is then the shell that runs both, and it ends with the run's exit code.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: Path, code: Path = REPOSITORY, reader: str = ""
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.log = log
        command = [sys.executable, "-c", "from ingest.cli.app import main; main()", *arguments]
        if reader:
            command = ["bash", "-c", f'"$@" | {reader}; exit ${{PIPESTATUS[0]}}', "bash", *command]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **environment, "PYTHONPATH": str(code), MARK: self.mark},
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id of Python."""
        return self.process.pid

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def died(self, deadline_s: float = DEADLINE_S) -> int:
        """Wait for the Python process to end; return its exit code."""
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline_s:.0f} s; output:\n{self.said}") from None

    def ended(self, expected: int) -> str:
        """Wait for the Python process and all its children to end; check the exit code and return the output."""
        found = self.died()
        self.gone()
        assert found == expected, f"exit code {found}, expected {expected}; output:\n{self.said}"
        return self.said

    def left(self) -> list[psutil.Process]:
        """The processes of this driver that still exist, including stopped ones."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def jvms(self) -> list[psutil.Process]:
        """The Java processes of this driver: the launcher first, then, once Spark has started, one JVM."""
        found = []
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                if process.name() == "java":
                    found.append(process)
        return found

    def gone(self) -> None:
        """Wait until the Python process and all its children, JVM or other, are gone."""
        self.process.poll()
        until(lambda: not self.left(), lambda: f"all processes of the driver have ended; left: {self.left()}")

    def stopped(self) -> None:
        """Wait until the fault `hang` has stopped Python and the JVM."""

        def both() -> bool:
            assert self.process.poll() is None, f"ended with {self.process.returncode}; output:\n{self.said}"
            # Spark's launcher is a JVM too, and ends soon after the start.
            return [_stopped(process) for process in (psutil.Process(self.pid), *self.jvms())] == [True, True]

        until(both, "the fault has stopped Python and the JVM")

    def proceed(self) -> None:
        """Send SIGCONT to Python and the JVM."""
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def signal(self, number: int) -> None:
        """Send a signal to the Python process alone, as `kill` does."""
        os.kill(self.pid, number)

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends SIGINT to the whole foreground group."""
        os.killpg(self.pid, signal.SIGINT)

    def kill_all(self) -> None:
        """SIGKILL all processes of this driver, as if the machine had died. Harmless if they are gone."""
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(DEADLINE_S)
        self.gone()


def _stopped(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_STOPPED)
    return False


def holder(lock: Path) -> tuple[int, int]:
    """The process ids of Python and the JVM that the lock file names."""
    content = json.loads(lock.read_text(encoding="utf-8"))
    return content["python_pid"], content["jvm_pid"]


def left(folder: Path) -> list[str]:
    """Processes, except zombies, whose command line or environment names the folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            words = " ".join([*process.cmdline(), *process.environ().values()])
            if process.pid != os.getpid() and str(folder) in words and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {words[:200]}")
    return found
