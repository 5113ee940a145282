"""Files that appear whole, under modes that keep others out, and never through somebody's link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.runtime.files import ANYBODY, NO_OTHERS, PRIVATE, LocalFiles, replacing

pytestmark = pytest.mark.unit


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(params=[0o022, 0o077, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    former = os.umask(request.param)
    yield request.param
    os.umask(former)


@pytest.mark.parametrize("wanted", [ANYBODY, NO_OTHERS, PRIVATE])
def test_a_new_file_has_its_mode_or_less_where_the_umask_is_stricter(tmp_path: Path, umask: int, wanted: int) -> None:
    with replacing(tmp_path / "replaced", wanted) as file:
        file.write(b"1")
        (part,) = tmp_path.glob(".*")
        assert mode(part) == wanted & ~umask, "already while it is written"
    LocalFiles().create(str(tmp_path / "created"), b"1", wanted)
    assert mode(tmp_path / "replaced") == mode(tmp_path / "created") == wanted & ~umask


def test_a_file_that_its_owner_has_shared_stays_shared(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    for text in (b"first", b"second"):
        with replacing(path, PRIVATE) as file:
            file.write(text)
        path.chmod(0o644)
    assert path.read_bytes() == b"second" and mode(path) == 0o644


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    theirs, path = tmp_path / "theirs", tmp_path / "out"
    theirs.write_text("theirs")
    path.symlink_to(theirs)
    with replacing(path, PRIVATE) as file:
        file.write(b"ours")
    assert theirs.read_text() == "theirs" and not path.is_symlink() and path.read_text() == "ours" and mode(path) == PRIVATE


def test_a_block_that_fails_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_text() == "before" and [each.name for each in tmp_path.iterdir()] == ["out"]
