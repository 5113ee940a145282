"""A separate temporary folder for each Spark JVM: native libraries, blocks, shuffle files.

In the system's temporary folder, the files of a killed JVM would stay forever, because nothing shows which process owns them.
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
    """Create a folder in `parent`/tmp for the JVM of this process, and remove the folders of JVMs that have ended."""
    root = parent.resolve() / FOLDER
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    return Path(tempfile.mkdtemp(prefix=f"{socket.gethostname()}-{os.getpid()}-", dir=root))


def remove(folder: Path) -> None:
    """Remove the folder, and its parent if that is then empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def _sweep(root: Path) -> None:
    """Remove the folders of this machine's ended runs. A JVM can outlive its Python, so a folder on a command line is kept."""
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
    """The id of the Python process that created the folder; 0 if the name has none."""
    number = folder.name.removeprefix(f"{host}-").partition("-")[0]
    return int(number) if number.isdigit() else 0
