"""The folders of demo runs: a fresh one each, and what earlier demos left is removed unless one of them still works."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# Its presence says that the folder is a demo's and may be deleted; its lock, that a demo works in it.
IN_USE = ".demo-in-use"


@contextmanager
def run_folder(root: Path) -> Iterator[Path]:
    """A new folder `root`/<UTC time>-<pid>, ours while the context lasts; it stays, for people to look at, until the next demo."""
    root.mkdir(parents=True, exist_ok=True)
    # Two demos that start at once must neither take one folder nor remove each other's before it is locked.
    with (root / ".lock").open("w") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        for old in root.iterdir():
            remove_unless_used(old)
        folder = root / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"
        folder.mkdir()
        held = (folder / IN_USE).open("w")
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        held.close()


def remove_unless_used(folder: Path) -> bool:
    """Delete the folder of a demo that has ended; False for one at work and for any folder that is no demo's."""
    try:
        mark: IO[bytes] = (folder / IN_USE).open("r+b")
    except (FileNotFoundError, NotADirectoryError):
        return False
    with mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        shutil.rmtree(folder, ignore_errors=True)
    return True
