"""A separate temporary folder for each Spark JVM: native libraries, blocks, shuffle files.

In the system's temporary folder, the files of a killed JVM would stay forever, because nothing shows which process owns them.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from ingest.runtime.errors import InvalidInput

FOLDER = "tmp"

# Spark takes a comma for the end of a folder's name, and replaces `${env:…}` in its settings. Its launcher breaks characters that Java
# stores as two.
UNFIT = re.compile(r"[,\U00010000-\U0010ffff]|\$\{")


def refuse_unfit(parent: Path) -> None:
    """Raises InvalidInput LOCATION_CHARACTER for a folder in which Spark would put its files elsewhere."""
    if (found := UNFIT.search(str(parent.resolve()))) is not None:
        raise InvalidInput(
            "LOCATION_CHARACTER",
            f"Spark's log and temporary files belong in {parent.resolve()}, which has a {found[0]} in its name.",
            expected="a path without commas, `${` and characters beyond U+FFFF: Spark would put the files into another folder.",
            remedy="name another folder with --lake; for a lake that is not on this machine, start the command in another folder.",
        )


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
