"""A new folder for each demo. The folders of earlier demos are removed, except those in use."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# This file marks a folder that a demo made and may delete. A running demo locks it.
IN_USE = ".demo-in-use"


@contextmanager
def run_folder(root: Path) -> Iterator[Path]:
    """Make the folder `root`/<UTC time>-<pid> and lock it during the context. It is kept until the next demo."""
    root.mkdir(parents=True, exist_ok=True)
    # Two demos that start at once must not use one folder, or remove each other's before it is locked.
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


def shown(path: Path) -> str:
    """The path as a user types it: relative if it is below the working folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def words(project: Path, lake: Path) -> list[str]:
    """The options that name a project and a lake, as a user types them; no project if it is the working folder."""
    return [*([] if project == Path.cwd() else ["--project", shown(project)]), "--lake", shown(lake)]


def remove_unless_used(folder: Path) -> bool:
    """Delete the folder of a demo that has ended. Return False for a folder in use, and for one that no demo made."""
    try:
        in_use: IO[bytes] = (folder / IN_USE).open("r+b")
    except (FileNotFoundError, NotADirectoryError):
        return False
    with in_use:
        try:
            fcntl.flock(in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        shutil.rmtree(folder, ignore_errors=True)
    return True
