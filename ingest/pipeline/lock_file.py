"""A lock's file: who holds it, asked from outside."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import sys
from pathlib import Path

# struct flock of fcntl(2): its layout, and where l_type stands in it. Whole file: whence, start and length are 0.
_LAYOUT = {"linux": ("hhqqi4x", 0), "darwin": ("qqihh", 3)}


def is_free(path: Path) -> bool:
    """Whether nobody holds the POSIX lock on this file.

    Only asked (F_GETLK), never taken: a start that tries to take it in this very moment must not be refused because somebody looked.
    """
    layout, at = _LAYOUT[sys.platform]
    wanted = [0] * 5
    wanted[at] = fcntl.F_WRLCK
    descriptor = os.open(path, os.O_RDONLY)
    try:
        answer = struct.unpack(layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, *wanted)))
    finally:
        os.close(descriptor)
    return bool(answer[at] == fcntl.F_UNLCK)


def who(path: Path) -> str:
    """What the holder wrote into the file."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"host {holder['host']}, JVM process {holder['jvm_pid']}, Python process {holder['python_pid']}"
    except (OSError, ValueError, KeyError):
        return "a process that left no name"


def token_of(path: Path) -> str | None:
    """What the holder called this very hold, if the file is there and says so; process ids are the same in every container."""
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def holder(folder: str) -> str | None:
    """Who holds the lock in `folder` (`host …, JVM process …`), or None if nobody does."""
    path = Path(folder) / "lock"
    return None if not path.exists() or is_free(path) else who(path)
