"""Waits beside a chaos run (`python -m ingest.chaos.guard MARK FOLDER`) and clears up after one that was killed itself."""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress

import psutil

from ingest.chaos.worker import marked

ROUNDS_MAX = 50  # a process that was just being started shows up in the next look


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
