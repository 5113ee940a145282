"""A process of the demo: Python, the JVM below it, its output as lines, and an end that leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from ingest.local.process import launch

# A process that got SIGKILL is gone in milliseconds; one in the middle of a disk write takes longer.
GONE_WITHIN_S = 30.0
# Listing a process's children reads all of /proc.
LOOK_EVERY_S = 0.5


class Child:
    """A started process in a session of its own. Start it from the main thread: it is killed when that ends."""

    def __init__(self, command: Sequence[str], *, marker: str, output: Path, environment: Mapping[str, str]) -> None:
        output.parent.mkdir(parents=True, exist_ok=True)
        self.output = output
        self._read = output.stat().st_size if output.exists() else 0
        self._process, self._id = launch(command, marker=marker, output=output, cwd=Path.cwd(), die_with_parent=True, env=environment)
        self._below: dict[int, psutil.Process] = {}
        self._looked_at = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def jvm_pid(self) -> int | None:
        """The JVM that was seen below it."""
        return next((pid for pid, process in self._below.items() if _name(process) == "java"), None)

    def poll(self) -> int | None:
        """The exit code (negative: the signal that killed it), or None while it runs."""
        if time.monotonic() - self._looked_at > LOOK_EVERY_S:
            self._look()
        return self._process.poll()

    def lines(self) -> list[str]:
        """The whole lines of output that are new since the last call."""
        with self.output.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()

    def end(self) -> None:
        """SIGKILL to whatever is left of it, and wait until it is gone: there is nothing in a demo that needs an orderly end."""
        self._look()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        for process in self._below.values():
            with suppress(psutil.NoSuchProcess):
                process.kill()  # psutil never kills a stranger that got the id
        self._process.wait(GONE_WITHIN_S)
        deadline = time.monotonic() + GONE_WITHIN_S
        while any(_alive(process) for process in self._below.values()) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.pid).children(recursive=True):
                self._below.setdefault(process.pid, process)
                with suppress(psutil.NoSuchProcess):
                    process.name()  # remembered by psutil, for when it is gone


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def _alive(process: psutil.Process) -> bool:
    # A zombie is gone but for its entry: who adopted it may never look.
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
