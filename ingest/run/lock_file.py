"""The file of a lock: take the lock in this process, ask whether it is free, and read who holds it."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path

from ingest.runtime.canonical_json import read_json
from ingest.runtime.files import local_path

# struct flock of fcntl(2): its layout, and the index of l_type. Whence, start and length are 0: the whole file.
_LAYOUT = {"linux": ("hhqqi4x", 0), "darwin": ("qqihh", 3)}
# F_OFD_SETLK, which Python does not name everywhere: such a lock belongs to the open file. A lock of a process is lost as soon as the
# process closes the file anywhere, also after it has only read who the holder is.
_SET = {"linux": 37, "darwin": 90}


def locked(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock on an open file, as long as it is open; False if somebody holds it, in this process or another. Who holds it `shared`
    admits others who do."""
    try:
        fcntl.fcntl(descriptor, _SET[sys.platform], _whole_file(fcntl.F_RDLCK if shared else fcntl.F_WRLCK))
    except (BlockingIOError, PermissionError):  # the two errors that fcntl(2) has for it
        return False
    return True


def is_free(path: Path) -> bool:
    """Whether nobody holds the POSIX lock on this file.

    It queries the lock (F_GETLK) and never takes it: a start that takes the lock at this moment must not be refused because of a query.
    """
    layout, at = _LAYOUT[sys.platform]
    descriptor = os.open(path, os.O_RDONLY)
    try:
        answer = struct.unpack(layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, _whole_file()))
    finally:
        os.close(descriptor)
    return bool(answer[at] == fcntl.F_UNLCK)


def _whole_file(kind: int = fcntl.F_WRLCK) -> bytes:
    layout, at = _LAYOUT[sys.platform]
    wanted = [0] * 5
    wanted[at] = kind
    return struct.pack(layout, *wanted)


def who(path: Path) -> str:
    """Host and process ids of the holder, as it wrote them into the file."""
    try:
        holder = read_json(path.read_text(encoding="utf-8"))
        jvm = f"JVM process {holder['jvm_pid']}, " if holder["jvm_pid"] is not None else ""  # null: without Spark, Python holds it
        return f"host {holder['host']}, {jvm}Python process {holder['python_pid']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown process"


def token_of(path: Path) -> str | None:
    """The token that the holder wrote into the file, None if there is none. Process ids would not do: containers repeat them."""
    try:
        return str(read_json(path.read_text(encoding="utf-8"))["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def holder(folder: str) -> str | None:
    """The holder of the lock in `folder` (`host …, JVM process …`), or None if the lock is free."""
    path = local_path(folder) / "lock"
    return None if not path.exists() or is_free(path) else who(path)
