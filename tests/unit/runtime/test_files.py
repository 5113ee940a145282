"""Files that appear whole, under modes that keep others out, and never through somebody's link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.runtime.errors import InvalidEnvironment
from ingest.runtime.files import ANYBODY, NO_OTHERS, PRIVATE, LocalFiles, environment_error, replacing
from tests.another_account import forbidden, open_folder

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


@pytest.mark.parametrize(
    ("mode", "says", "code"),
    [
        (0o000, "can be neither read nor written", "NOT_READABLE"),
        (0o222, "cannot be read", "NOT_READABLE"),
        (0o444, "cannot be written", "NOT_WRITABLE"),
    ],
)
def test_the_error_of_a_forbidden_file_says_whether_it_cannot_be_read_or_written(mode: int, says: str, code: str) -> None:
    with open_folder() as folder:
        file = folder / "000001.json"
        file.touch()
        with forbidden(file, mode), pytest.raises(PermissionError) as refused:
            file.open("r+b")
        with forbidden(file, mode):
            error = environment_error(refused.value)
    assert error is not None and (error.code, error.found) == (code, f"{file} {says}: Permission denied.")


def test_a_folder_that_cannot_be_searched_or_listed_cannot_be_read_and_one_that_takes_no_file_cannot_be_written() -> None:
    with open_folder() as folder:
        found: list[InvalidEnvironment | None] = []
        for mode, use in ((0, Path.read_bytes), (0, Path.mkdir), (0o333, lambda path: list(path.parent.iterdir())), (0o555, Path.mkdir)):
            (inner := folder / str(len(found))).mkdir()
            with forbidden(inner, mode):
                try:
                    use(inner / "file")
                except PermissionError as error:
                    found.append(environment_error(error))
    said = [(each.code, each.found) for each in found if each is not None]
    assert said == [
        ("NOT_READABLE", f"{folder}/0/file can be neither read nor written: Permission denied."),
        ("NOT_READABLE", f"{folder}/1/file can be neither read nor written: Permission denied."),
        ("NOT_READABLE", f"{folder}/2 cannot be read: Permission denied."),
        ("NOT_WRITABLE", f"{folder}/3/file cannot be written: Permission denied."),
    ]


def test_a_file_below_a_file_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert LocalFiles().read(f"{tmp_path}/file/below") is None


def test_a_write_to_a_full_disk_is_an_error_of_the_environment_though_it_names_no_file() -> None:
    with pytest.raises(OSError, match="No space") as full, open("/dev/full", "w", encoding="utf-8") as file:
        file.write("x")
    error = environment_error(full.value)
    assert error is not None and error.code == "DISK_FULL"
