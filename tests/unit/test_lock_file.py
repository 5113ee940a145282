"""A lock's file, asked from outside: the answer is right, and asking gets in nobody's way (I8)."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingest.stream.lock_file import holder, is_free

HOLDS = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
ASKS = (
    "import sys; from pathlib import Path; from ingest.stream.lock_file import is_free\n"
    "path = Path(sys.argv[1]); print('asks', flush=True)\n"
    "while True: is_free(path)"
)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock"
    path.write_text('{"host": "h", "jvm_pid": 1, "python_pid": 2}')
    return path


@contextmanager
def process(code: str, lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, once it has said that it is at work."""
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline()
            yield other
        finally:
            other.kill()


def test_a_held_lock_is_told_from_one_whose_holder_is_gone(lock: Path) -> None:
    assert is_free(lock)
    with process(HOLDS, lock):
        assert not is_free(lock)
        assert holder(str(lock.parent)) == "host h, JVM process 1, Python process 2"
    assert is_free(lock)
    assert holder(str(lock.parent)) is None


def test_who_only_looks_keeps_nobody_from_taking_the_lock(lock: Path) -> None:
    """`ingest status` in a loop once made a start LOCKED: it took the lock for a moment to see whether that was possible."""
    with process(ASKS, lock), lock.open("r+b") as file:
        deadline, taken = time.monotonic() + 1.0, 0
        while time.monotonic() < deadline:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where somebody else has it
            fcntl.lockf(file, fcntl.LOCK_UN)
            taken += 1
    assert taken > 100
