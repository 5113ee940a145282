"""A small private disk to fill up: a tmpfs, if the machine lets us mount one."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

# unshare(2), mount(2): linux/sched.h, linux/mount.h
_CLONE_NEWNS: Final = 0x00020000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_MNT_DETACH: Final = 2
DISK_BYTES: Final = 768 * 1024 * 1024
# Too little for a batch's Parquet file, or for the log entry of a few of them.
ROOM_LEFT_BYTES: Final = 16 * 1024


class SmallDisk:
    """A tmpfs in a mount namespace of this process and its children; it disappears when the last of them ends, for any reason."""

    def __init__(self, folder: Path, size_bytes: int = DISK_BYTES) -> None:
        """Raises OSError if the machine does not allow the mount. Call it on the main thread, before starting any process."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._ballast = folder / ".ballast"
        libc = ctypes.CDLL(None, use_errno=True)
        _own_namespace()
        _try(libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size_bytes},mode=755".encode()))

    def fill(self) -> None:
        """Fill the disk up to ROOM_LEFT_BYTES of free space."""
        with self._ballast.open("wb") as file:
            while (size := self._free() - ROOM_LEFT_BYTES) > 0:
                try:
                    return os.posix_fallocate(file.fileno(), 0, size)
                except OSError as error:  # others have written meanwhile
                    if error.errno != errno.ENOSPC:
                        raise

    def _free(self) -> int:
        room = os.statvfs(self.folder)
        return room.f_bavail * room.f_frsize

    def clear(self) -> None:
        """Free the space that `fill` took."""
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Unmount the disk; its content is lost."""
        ctypes.CDLL(None).umount2(os.fsencode(self.folder), _MNT_DETACH)


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk | None]:
    """A small disk at `folder`, or None if it cannot be mounted."""
    try:
        disk = SmallDisk(folder)
    except (OSError, AttributeError):  # AttributeError: these calls exist only on Linux
        yield None
        return
    try:
        yield disk
    finally:
        disk.unmount()


@cache
def _own_namespace() -> None:
    """Move into a new mount namespace, once per process.

    Only the calling thread moves. With a new namespace for each disk, threads that a library (deltalake) has kept since the first disk
    would stay in the old namespace and not see the second disk.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _try(libc.unshare(_CLONE_NEWNS))
    _try(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))


def _try(returned: int) -> None:
    if returned != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
