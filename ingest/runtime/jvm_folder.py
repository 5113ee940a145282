"""A folder of its own for what a JVM of Spark puts down for a while: native libraries, blocks, shuffle files.

In the machine's own folder for such things a JVM that is killed leaves them for good: nobody knows whose they are.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

FOLDER = "tmp"


def make(parent: Path) -> Path:
    """A new folder below `parent`/tmp, for the JVM of this process; removes those of JVMs that are gone."""
    root = parent.resolve() / FOLDER
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    return Path(tempfile.mkdtemp(prefix=f"{socket.gethostname()}-{os.getpid()}-", dir=root))


def remove(folder: Path) -> None:
    """Remove it, and the folder above where no other is left."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def _sweep(root: Path) -> None:
    """Remove what is left of this machine's ended runs. A JVM can outlive its Python: its command line names the folder."""
    host = socket.gethostname()
    old = [each for each in root.glob(f"{host}-*") if not psutil.pid_exists(_pid(each, host))]
    if not old:
        return
    words = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words += process.cmdline()
    for each in old:
        if not any(str(each) in word for word in words):
            shutil.rmtree(each, ignore_errors=True)


def _pid(folder: Path, host: str) -> int:
    """The Python process that made it."""
    number = folder.name.removeprefix(f"{host}-").partition("-")[0]
    return int(number) if number.isdigit() else 0
