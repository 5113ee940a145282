"""A process of a chaos run and all below it: struck as a whole or in part, watched, and gone without a trace.

Every process of a run carries a mark in its environment, by which it is found again whoever adopted it. A guard process
outlives us: should we be killed ourselves, it ends what carries the mark, stopped ones too, and removes the scratch folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from ingest.local.process import launch, of_group

MARK: Final = "INGEST_CHAOS_MARK"
GONE_WITHIN_S: Final = 60.0
POLL_S: Final = 0.02


# What a user has set for pipelines of their own must not reach a scratch one; these are about the machine.
KEPT: Final = ("INGEST_CACHE", "INGEST_DRIVER_MEMORY", MARK)


def inherited() -> dict[str, str]:
    """Our environment without the user's own settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("INGEST_") or name in KEPT}


class Worker:
    """A started command, the leader of a process group of its own; its output goes to a file. Start it from the main thread."""

    def __init__(self, command: Sequence[str], *, output: Path, environment: Mapping[str, str]) -> None:
        self.output = output
        self.started_s = time.monotonic()
        self._process, _ = launch(
            command, marker=command[0], output=output, cwd=Path.cwd(), die_with_parent=True, env={**inherited(), **environment}
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The leader's exit code (negative: the signal that killed it), or None while it runs."""
        return self._process.poll()

    @property
    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace") if self.output.exists() else ""

    def members(self) -> list[psutil.Process]:
        """The processes of the group that are still there, stopped ones too."""
        return of_group(self.pid)

    def jvms(self) -> list[psutil.Process]:
        """Its Java processes."""
        found = []
        for process in self.members():
            with suppress(psutil.NoSuchProcess):
                if process.name() == "java":
                    found.append(process)
        return found

    def signal_all(self, number: int) -> None:
        """To every process of the group; none left is no failure."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def signal(self, number: int) -> None:
        """To the leader alone."""
        if self.poll() is None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP to all, and wait until they stand still."""
        self.signal_all(signal.SIGSTOP)
        until(lambda: all(map(_stands_still, self.members())), GONE_WITHIN_S)

    def kill(self) -> None:
        """SIGKILL to all, and wait until they are gone."""
        self.signal_all(signal.SIGKILL)
        self.gone()

    def ended(self, within_s: float) -> int | None:
        """The exit code once the leader and all below it are gone; None if that takes longer."""
        return self.poll() if until(lambda: self.poll() is not None and not self.members(), within_s) else None

    def gone(self) -> None:
        """Wait until all are gone; kills what does not go."""
        if self.ended(GONE_WITHIN_S) is None:
            self.signal_all(signal.SIGKILL)
            until(lambda: self.poll() is not None and not self.members(), GONE_WITHIN_S)


def _stands_still(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
    return True


def until(look: Callable[[], object], within_s: float) -> bool:
    """Poll until `look` returns something true; False after `within_s`."""
    deadline = time.monotonic() + within_s
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def marked(mark: str) -> list[psutil.Process]:
    """The processes that carry the mark, but for this one and zombies."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            other = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
            if other and process.environ().get(MARK) == mark:
                found.append(process)
    return found


class Guard:
    """Ends what carries the mark and removes the folder if this process dies; `dismiss` it when all is in order."""

    def __init__(self, mark: str, folder: Path) -> None:
        command = [sys.executable, "-m", "ingest.chaos.guard", mark, str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def dismiss(self) -> None:
        """Nothing is left to guard."""
        with suppress(BrokenPipeError):
            self._process.communicate(b"done", timeout=GONE_WITHIN_S)
