"""Numbered files: each number is written once and whole, whoever writes at the same time or is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingest.runtime.canonical_json import canonical_json
from ingest.runtime.files import LocalFiles
from ingest.runtime.numbered_files import append, newest, numbers

pytestmark = pytest.mark.unit

FILES = LocalFiles()


def test_writers_at_once_get_numbers_of_their_own_and_each_goes_on_from_the_file_before(tmp_path: Path) -> None:
    folder = str(tmp_path / "chain")

    def write(_: int) -> int | None:
        return append(FILES, folder, lambda number, former: f"{number} after {former.decode().split(' ')[0] or 0}".encode())

    with ThreadPoolExecutor(8) as pool:
        taken = sorted(number or 0 for number in pool.map(write, range(40)))
    assert taken == list(range(1, 41)) == numbers(FILES, folder)
    for number in taken:
        assert (tmp_path / f"chain/{number:06}.json").read_text() == f"{number} after {number - 1}"
    assert not list((tmp_path / "chain").glob(".*"))


def test_an_existing_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "folder/000001.json"
    assert FILES.create(str(path), b"first") and not FILES.create(str(path), b"second")
    assert path.read_bytes() == b"first"


def test_a_writer_that_is_killed_before_the_last_step_leaves_the_former_newest_file(tmp_path: Path) -> None:
    assert append(FILES, str(tmp_path), lambda number, former: b"1") == 1
    program = """
import os, signal, sys
from ingest.runtime.files import LocalFiles
from ingest.runtime.numbered_files import append
os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
append(LocalFiles(), sys.argv[1], lambda number, former: b"2")
"""
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2, "its temporary file is there, and does not count"
    assert newest(FILES, str(tmp_path)) == (1, b"1")
    assert append(FILES, str(tmp_path), lambda number, former: former + b"2") == 2


def test_equal_values_have_equal_text() -> None:
    assert canonical_json({"b": 1, "a": ["ä", None]}) == canonical_json({"a": ["ä", None], "b": 1}) == '{"a":["ä",null],"b":1}'
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))
