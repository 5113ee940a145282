"""A lock's file: who holds it, asked from outside."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path


def is_free(path: Path) -> bool:
    """Whether nobody holds the POSIX lock on this file."""
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def who(path: Path) -> str:
    """What the holder wrote into the file."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"host {holder['host']}, JVM process {holder['jvm_pid']}, Python process {holder['python_pid']}"
    except (OSError, ValueError, KeyError):
        return "a process that left no name"


def holder(folder: str) -> str | None:
    """Who holds the lock in `folder` (`host …, JVM process …`), or None if nobody does."""
    path = Path(folder) / "lock"
    return None if not path.exists() or is_free(path) else who(path)
