"""Segments: whatever happens to their files, they tell what was written, or that they are damaged."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.delta import id_segment
from ingest.delta.id_segment import Damaged, Hashes, Of, merged, opened, write

pytestmark = pytest.mark.unit

OF = Of("table", "columns", "secret")
Rows = list[tuple[int, int]]


@dataclass(frozen=True)
class File:
    path: str
    size: int
    rows: int | None


def source(rows: Rows, number: int = 0) -> tuple[Hashes, np.ndarray]:
    high, low = (np.array(half, np.uint64) for half in zip(*sorted(rows), strict=True)) if rows else (np.empty(0, np.uint64),) * 2
    return (high, low, np.zeros(len(rows), np.uint32)), np.array([number], np.uint32)


def segment(folder: Path, files: dict[str, Rows]) -> Path:
    described = [(path, 10, len(rows)) for path, rows in files.items()]
    return write(folder, OF, described, [source(rows, at) for at, rows in enumerate(files.values())])


def content(path: Path) -> dict[str, Rows]:
    """The hashes by file."""
    found = opened(path)
    found.verify()
    high, low, number = (column.tolist() for column in found.columns)
    assert high == sorted(high)
    return {
        name: sorted((high[row], low[row]) for row in range(found.rows) if number[row] == at) for at, (name, _, _) in enumerate(found.files)
    }


def live(*names: str) -> dict[str, File]:
    return {name: File(name, 10, None) for name in names}


HASH = st.integers(0, 2**64 - 1)
FILES = st.dictionaries(st.sampled_from("abcdef"), st.lists(st.tuples(HASH, HASH), max_size=9).map(sorted), max_size=4)


@settings(deadline=None)
@given(st.lists(FILES, min_size=1, max_size=4), st.sets(st.sampled_from("abcdef")))
def test_merged_segments_have_the_hashes_of_every_live_file_once(
    tmp_path_factory: pytest.TempPathFactory, many: list[dict[str, Rows]], alive: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    known: dict[str, Rows] = {}
    for each in many:  # a file has the same rows wherever it is
        each.update({name: known.setdefault(name, rows) for name, rows in each.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_segment, "SLICE_ROWS", 3)
        path = merged(folder, [opened(segment(folder, each)) for each in many], live(*alive))
    expected = {name: rows for name, rows in known.items() if name in alive}
    assert (content(path) if path is not None else {}) == expected


def test_no_bit_can_change_and_no_byte_can_go_unnoticed(tmp_path: Path) -> None:
    path = segment(tmp_path, {"a": [(1, 2), (3, 4)], "b": [(2**63, 5)]})
    whole, before = path.read_bytes(), content(path)
    damaged: list[bytes] = [whole[:length] for length in range(len(whole))]
    damaged += [whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in range(8)]
    damaged += [whole + b"\0", b"\0" + whole]
    for each in damaged:
        path.write_bytes(each)
        with pytest.raises(Damaged):
            content(path)
    path.write_bytes(whole)
    assert content(path) == before


def test_a_segment_that_was_renamed_or_swapped_with_another_one_says_what_it_is_of(tmp_path: Path) -> None:
    one, two = segment(tmp_path, {"a": [(1, 2)]}), segment(tmp_path, {"b": [(3, 4)]})
    shutil.move(one, third := tmp_path / "third.ids")
    shutil.move(two, one)
    shutil.move(third, two)
    assert (content(one), content(two)) == ({"b": [(3, 4)]}, {"a": [(1, 2)]})


@pytest.mark.parametrize(
    ("file", "number"),
    [
        (File("a", 10, 2), 0),
        (File("a", 10, None), 0),  # another writer may have stored no number of rows
        (File("a", 11, 2), None),
        (File("a", 10, 3), None),
        (File("b", 10, 2), None),
    ],
)
def test_a_segment_is_of_a_file_with_its_path_size_and_rows(file: File, number: int | None, tmp_path: Path) -> None:
    assert opened(segment(tmp_path, {"a": [(1, 2), (3, 4)]})).number(file) == number


@pytest.mark.parametrize("rows", [1, 3])
def test_a_segment_with_more_or_fewer_hashes_than_its_files_have_rows_is_not_written(rows: int, tmp_path: Path) -> None:
    with pytest.raises(Damaged):
        write(tmp_path, OF, [("a", 10, rows)], [source([(1, 2), (3, 4)])])
    assert not list(tmp_path.iterdir())


def test_only_the_owner_reads_a_segment(tmp_path: Path) -> None:
    """Who knows the secret can choose two ids with one hash, and tell which ids a table holds."""
    assert segment(tmp_path, {"a": [(1, 2)]}).stat().st_mode & 0o777 == 0o600
