"""A process that waits next to a chaos run (`python -m ingest.lab.chaos.guard MARK FOLDER`) and cleans up if the run is killed.

Every process of a run has a mark in its environment, so it can be found even after another process has adopted it. The guard
outlives the run. If the run is killed, the guard kills all processes with the mark, including stopped ones, and removes the scratch
folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from ingest.lab.worker import GONE_WITHIN_S, MARK

ROUNDS_MAX = 50  # a process that is just starting is found in a later round


def marked(mark: str) -> list[psutil.Process]:
    """The processes with the mark, except this one and zombies."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            other = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
            if other and process.environ().get(MARK) == mark:
                found.append(process)
    return found


class Guard:
    """Kills all processes with the mark and removes the folder if this process dies; `dismiss` it when nothing needs cleaning up."""

    def __init__(self, mark: str, folder: Path) -> None:
        command = [sys.executable, "-m", __name__, mark, str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def dismiss(self) -> None:
        """End the guard without a clean-up."""
        with suppress(BrokenPipeError):
            self._process.communicate(b"done", timeout=GONE_WITHIN_S)


def clear(mark: str, folder: str, *, besides: int = 0) -> None:
    """SIGKILL all processes with the mark, except this one and `besides`, until none is left; then remove the folder."""
    for _ in range(ROUNDS_MAX):
        left = [process for process in marked(mark) if process.pid != besides]
        if not left:
            break
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # The pipe closes either after `done` was sent, or because the run is dead.
    if sys.stdin.buffer.read() != b"done":
        clear(sys.argv[1], sys.argv[2])
