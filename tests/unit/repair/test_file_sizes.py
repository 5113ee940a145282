"""When a compaction is worth it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.delta.delta_sql import DataFusion
from ingest.delta.merge_groups import LARGE_BYTES, SMALL_BYTES
from ingest.repair.file_sizes import SAVED_FILES_MIN, FileSizes, file_sizes, summed

pytestmark = pytest.mark.unit


def of(*sizes: int, partition: object = None) -> list[tuple[tuple[object, ...], int]]:
    return [((partition,), size) for size in sizes]


def test_small_files_are_worth_a_compaction_from_the_eleventh_on() -> None:
    assert not summed(of(*[1] * SAVED_FILES_MIN)).worth_compacting
    assert summed(of(*[1] * (SAVED_FILES_MIN + 1))).worth_compacting
    assert not summed([]).worth_compacting


def test_large_files_are_left_alone() -> None:
    assert summed(of(*[SMALL_BYTES] * 1000)) == FileSizes(1000, 1000 * SMALL_BYTES, 0, 0)


def test_files_of_different_partitions_cannot_be_merged() -> None:
    assert summed([each for day in range(100) for each in of(1, partition=day)]).saved == 0
    assert summed([each for day in range(100) for each in of(1, 1, partition=day)]).saved == 100


def test_files_that_together_fill_several_large_ones_save_fewer() -> None:
    half = SMALL_BYTES // 2
    assert summed(of(*[half] * 32)).saved == 32 - 32 * half // LARGE_BYTES == 30


def test_the_files_of_a_table_are_counted_by_partition(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    for number in range(3):
        write_deltalake(path, pa.table({"day": [number % 2], "n": [number]}), mode="append", partition_by=["day"])
    found = file_sizes(DataFusion(), path)
    assert (found.files, found.small, found.saved) == (3, 3, 1) and found.bytes > 0
