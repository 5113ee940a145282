"""When a compaction is worth it, and which files VACUUM would delete."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta.delta_sql import At, DataFusion
from ingest.repair.file_sizes import LARGE_BYTES, SAVED_FILES_MIN, SMALL_BYTES, FileSizes, file_sizes, removable, summed

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


def test_only_files_older_than_the_retention_can_be_removed_and_files_of_failed_writes_are_among_them(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), pa.table({"n": [1]}))
    write_deltalake(str(path), pa.table({"n": [2]}), mode="overwrite")
    (path / "left-by-a-failed-write.parquet").write_bytes(b"x" * 10)
    os.utime(path / "left-by-a-failed-write.parquet", (1, 1))
    assert removable(At(str(path)), None) == removable(At(str(path)), 168) == {"left-by-a-failed-write.parquet": 10}
    replaced = removable(At(str(path)), 0)
    assert len(replaced) == 2 and not set(replaced) & {Path(uri).name for uri in DeltaTable(str(path)).file_uris()}
    assert len(list(path.glob("*.parquet"))) == 3, "nothing was deleted"
