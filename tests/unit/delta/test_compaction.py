"""Compaction by the direct writer: no row changes, whatever is committed meanwhile, and no file is left that nobody needs (I3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import types as T

from ingest.delta import compaction, direct_writer
from ingest.delta.batch_commit import BatchCommit, Upkeep
from ingest.delta.compaction import compact
from ingest.delta.creation import create_operation, creation
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import DataFile, LiveTable
from ingest.delta.merge_groups import FAN_IN, LARGE_BYTES, SMALL_BYTES, tiered, whole
from ingest.delta.put import put
from ingest.delta.table_definitions import TableDefinition
from ingest.delta.table_rows import added, schema_of
from ingest.runtime import crash_points
from ingest.runtime.files import LocalFiles

pytestmark = pytest.mark.unit

FIELDS = (
    T.StructField("id", T.LongType(), False),
    T.StructField("name", T.StringType()),
    T.StructField("at", T.TimestampType()),
    T.StructField("x", T.DoubleType()),
    T.StructField("day", T.StringType()),
)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
APPEND = direct_writer.NOTHING
ABOUT = BatchCommit(Upkeep(), "shop", "orders")


class Scene:
    """A table of the direct writer with a file of three rows for each of `ids`."""

    def __init__(
        self, folder: Path, ids: Sequence[int] = (), partition_by: Sequence[str] = (), properties: Mapping[str, str] | None = None
    ) -> None:
        listed = {"delta.dataSkippingStatsColumns": "id,name,at,x", **(properties or {})}
        self.path = str(folder / "t")
        definition = TableDefinition(self.path, FIELDS, listed, tuple(partition_by))
        Path(self.path).mkdir()
        table = LiveTable(LocalFiles(), self.path)
        put(LocalFiles(), table, ABOUT, create_operation(definition), creation(definition))
        for first in ids:
            self.add(first)

    def add(self, first: int, day: str = "a", name: str = "n") -> None:
        """Another writer of ours adds three rows."""
        table = LiveTable(LocalFiles(), self.path)
        table.load()
        ids = list(range(first, first + 3))
        columns = {
            "id": ids,
            "name": [name, None, "m"],
            "at": [NOON + timedelta(seconds=each) for each in ids],
            "x": [0.5, None, float(first)],
        }
        rows = pa.Table.from_pydict({**columns, "day": [day] * 3}, schema_of(table))
        put(LocalFiles(), table, ABOUT, APPEND, added(table, rows))

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: row["id"])

    def actions(self, version: int) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for line in Path(f"{self.path}/_delta_log/{version:020}.json").read_text(encoding="utf-8").splitlines():
            for name, action in json.loads(line).items():
                found.setdefault(name, []).append(action)
        return found

    def newest(self) -> int:
        return DeltaTable(self.path).version()

    def on_disk(self) -> set[str]:
        return {str(path.relative_to(self.path)) for path in Path(self.path).rglob("*.parquet") if "_delta_log" not in path.parts}

    def live(self) -> list[DataFile]:
        table = LiveTable(LocalFiles(), self.path)
        table.load()
        return [*table.live.values()]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Let this happen between a look and the put of the compaction's commit, once."""

    def arrange(happens: Callable[[], object]) -> None:
        def late(*given: Any, **more: Any) -> Any:
            monkeypatch.setattr(direct_writer, "put", put)
            happens()
            return put(*given, **more)

        monkeypatch.setattr(direct_writer, "put", late)

    return arrange


def test_small_files_become_one_with_the_same_rows_and_exact_statistics(tmp_path: Path) -> None:
    one = Scene(tmp_path, range(0, 30, 3))
    before, files = one.rows(), one.live()
    assert compact(DirectWriter(), one.path, ABOUT, whole) == 9
    assert one.rows() == before
    (file,) = one.live()
    assert (file.rows, file.least["id"], file.greatest["id"]) == (30, 0, 29)
    assert (file.least["name"], file.greatest["name"], file.least["x"]) == ("m", "n", 0.0)
    assert file.greatest["at"] >= NOON + timedelta(seconds=29)
    commit = one.actions(one.newest())
    (info,) = commit["commitInfo"]
    assert (info["operation"], info["userMetadata"]) == ("OPTIMIZE", ABOUT.to_json())
    metrics = info["operationMetrics"]
    assert (metrics["numRemovedFiles"], metrics["numAddedFiles"]) == ("10", "1")
    assert metrics["numAddedBytes"] == metrics["p50FileSize"] == str(file.size)
    assert int(metrics["numRemovedBytes"]) == sum(each.size for each in files)
    (add,) = commit["add"]
    assert add["dataChange"] is False and not any(each["dataChange"] for each in commit["remove"])
    assert json.loads(add["stats"])["nullCount"] == {"id": 0, "name": 10, "at": 0, "x": 10}
    assert compact(DirectWriter(), one.path, ABOUT, whole) == 0, "once"


def test_rows_are_read_and_written_in_row_groups_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Scene(tmp_path, range(0, 30, 3))
    before = one.rows()
    monkeypatch.setattr(compaction, "GROUP_ROWS", 9)
    compact(DirectWriter(), one.path, ABOUT, whole)
    (file,) = one.live()
    assert pa.parquet.ParquetFile(f"{one.path}/{file.path}").metadata.num_row_groups == 4
    assert one.rows() == before and (file.least["id"], file.greatest["id"]) == (0, 29)


def test_files_of_each_partition_are_merged_alone_also_with_a_change_data_feed(tmp_path: Path) -> None:
    one = Scene(tmp_path, partition_by=["day"], properties={"delta.enableChangeDataFeed": "true"})
    for first in range(0, 30, 3):
        one.add(first, day="a b/=" if first % 2 else "c")
    before = one.rows()
    compact(DirectWriter(), one.path, ABOUT, whole)
    assert one.rows() == before and sorted(file.partition_values["day"] or "" for file in one.live()) == ["a b/=", "c"]


def test_files_that_another_engine_has_written_are_merged_too(tmp_path: Path) -> None:
    """Delta-rs writes other row groups, and statistics of all columns."""
    path = str(tmp_path / "t")
    for number in range(3):
        write_deltalake(path, pa.table({"n": [number, None], "s": ["x", "y" * 50]}), mode="append")
    before = DeltaTable(path).to_pyarrow_table().to_pylist()
    compact(DirectWriter(), path, ABOUT, whole)
    assert sorted(map(str, DeltaTable(path).to_pyarrow_table().to_pylist())) == sorted(map(str, before))
    assert len(DeltaTable(path).file_uris()) == 1


def test_a_commit_in_between_that_only_adds_files_lets_the_same_actions_go_behind_it(
    tmp_path: Path, between: Callable[[Callable[[], object]], None]
) -> None:
    one = Scene(tmp_path, range(0, 30, 3))
    removed = {file.uri for file in one.live()}
    between(lambda: one.add(100))
    assert compact(DirectWriter(), one.path, ABOUT, whole) == 9
    assert [row["id"] for row in one.rows()] == [*range(30), 100, 101, 102]
    assert {each["path"] for each in one.actions(one.newest())["remove"]} == removed
    assert len(one.on_disk()) == 12, "nothing was written twice"


@pytest.mark.parametrize("late", [False, True])
def test_a_group_of_which_a_delete_has_removed_a_file_is_dropped_and_no_row_comes_back(
    tmp_path: Path, between: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Before the first look of the commit, and between that look and the put."""
    one = Scene(tmp_path, partition_by=["day"])
    for first in range(0, 30, 3):
        one.add(first, day="a" if first < 15 else "b")
    there = one.on_disk()

    def delete() -> None:
        DeltaTable(one.path).delete("id = 4")

    if late:
        between(delete)
    else:
        monkeypatch.setattr(crash_points, "at", lambda *_: delete())
    assert compact(DirectWriter(), one.path, ABOUT, whole) == 4
    assert [row["id"] for row in one.rows()] == [each for each in range(30) if each != 4]
    new = one.on_disk() - there
    assert len(new) == 2 and new <= {file.path for file in one.live()}, "the file of the delete and the one of day b: the other is deleted"


def test_a_compaction_that_fails_deletes_what_it_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Scene(tmp_path, range(0, 30, 3))
    there = one.on_disk()

    def fails(*_: object) -> None:
        raise OSError("no space")

    for target, name in ((crash_points, "at"), (compaction, "sync")):
        with monkeypatch.context() as broken:
            broken.setattr(target, name, fails)
            with pytest.raises(OSError, match="no space"):
                compact(DirectWriter(), one.path, ABOUT, whole)
        assert one.on_disk() == there
    with monkeypatch.context() as broken:
        broken.setattr(pa.parquet.ParquetWriter, "write_table", fails)
        with pytest.raises(OSError, match="no space"):
            compact(DirectWriter(), one.path, ABOUT, whole)
    assert one.on_disk() == there


def test_a_merged_file_that_a_vacuum_has_taken_meanwhile_is_not_committed(
    tmp_path: Path, between: Callable[[Callable[[], object]], None]
) -> None:
    """A process that was stopped for longer than VACUUM keeps files goes on: its commit would remove rows that no file has."""
    one = Scene(tmp_path, range(0, 30, 3))
    before, there = one.rows(), one.on_disk()

    def vacuumed() -> None:
        (merged,) = one.on_disk() - there
        Path(f"{one.path}/{merged}").unlink()
        one.add(100)  # VACUUM's own commit comes first, too

    between(vacuumed)
    with pytest.raises(FileNotFoundError):
        compact(DirectWriter(), one.path, ABOUT, whole)
    assert [row for row in one.rows() if row["id"] < 100] == before and len(one.live()) == 11


def file_of(rows: int | None, size: int, number: int, **values: str | None) -> DataFile:
    return DataFile(f"f{number}", f"f{number}", size, rows, values, {"_epoch": 1, "_batch": number}, {})


def test_as_batches_come_each_row_is_written_a_few_times_and_few_small_files_are_left() -> None:
    """Ten minutes at two and a half commits a second, each of 2,000 rows of 27 bytes; then files of any size below."""
    live: list[DataFile] = []
    number = written = most = 0
    for number in range(1500):
        live.append(file_of(2_000, 54_000, number))
        while groups := tiered(live):
            for group in groups:
                live = [file for file in live if file not in group]
                rows = sum(file.rows or 0 for file in group)
                live.append(file_of(rows, rows * 27, number))
                written += rows
        most = max(most, len(live))
    assert written <= 3 * 1500 * 2_000 and most <= 3 * FAN_IN, (written, most)


def test_a_merged_file_is_of_a_higher_tier_whatever_it_weighs() -> None:
    """Merged files are smaller than their parts: by size they might be merged again and again."""
    group = [file_of(399, 1_000, number) for number in range(FAN_IN)]
    assert tiered(group) == [group]
    rest = [file_of(20, 1_000, FAN_IN + number) for number in range(FAN_IN - 2)]
    assert tiered([*rest, file_of(399 * FAN_IN, 1_000, 99)]) == []


def test_large_files_and_those_of_other_partitions_are_no_part_of_a_group() -> None:
    assert tiered([file_of(5, SMALL_BYTES, number) for number in range(100)]) == whole([file_of(5, SMALL_BYTES, 1)]) == []
    assert tiered([file_of(5, 1, number, day=str(number)) for number in range(100)]) == []
    sizes = [len(group) for group in whole([file_of(5, SMALL_BYTES // 2, number) for number in range(50)])]
    assert sizes == [LARGE_BYTES // (SMALL_BYTES // 2)] * 3 + [2]
