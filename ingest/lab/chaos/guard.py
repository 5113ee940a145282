"""Waits beside a chaos run (`python -m ingest.lab.chaos.guard MARK FOLDER`) and clears up after one that was killed itself.

Every process of a run carries a mark in its environment, by which it is found again whoever adopted it. A guard process
outlives us: should we be killed ourselves, it ends what carries the mark, stopped ones too, and removes the scratch folder.
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

ROUNDS_MAX = 50  # a process that was just being started shows up in the next look


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
        command = [sys.executable, "-m", __name__, mark, str(folder)]
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


def clear(mark: str, folder: str, *, besides: int = 0) -> None:
    """SIGKILL to all that carry the mark, but for this process and `besides`, until a look finds none; then the folder goes."""
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
    # The pipe ends with whoever holds its other end: by a word, or because they are dead.
    if sys.stdin.buffer.read() != b"done":
        clear(sys.argv[1], sys.argv[2])
