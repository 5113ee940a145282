"""Files as another account sees them, although the tests may run as root, who may read all."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every account may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def forbidden(path: Path, mode: int = 0) -> Iterator[None]:
    """Act as an account for which the file or folder has only `mode`. Load the modules before: root's Python may be out of reach."""
    former, root = path.stat().st_mode, os.geteuid() == 0
    path.chmod(mode)
    if root:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        path.chmod(former)
