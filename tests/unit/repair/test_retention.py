"""Which records leave the quarantine, and what the ledger counts first: each record once, also after a retention that was cut off (I4)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from ingest.delta.delta_sql import DataFusion
from ingest.ledger.ledger_row import LedgerRow
from ingest.repair.retention import Retired, metadata, name_of, recounted, retire
from ingest.runtime.places import Places
from tests.unit.verify.proof_lake import LEDGER

pytestmark = pytest.mark.unit

OLD, NEW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
BEFORE, NOW = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 6, 2, tzinfo=UTC)


class Scene:
    """A quarantine whose records are (epoch, batch, offset, state, changed), all of partition 0, and a ledger with batches of epoch 1."""

    def __init__(self, folder: Path, *records: tuple[int, int, int, str, datetime], batches: int = 3) -> None:
        self.places = Places(str(folder / "lake"), str(folder / "checkpoints"), "shop", "orders")
        columns = {"topic": ["orders"] * len(records), "topic_id": ["id"] * len(records)}
        values = list(zip(*records, strict=True)) or [()] * 5
        table = pa.table(
            {
                **{name: pa.array(given, pa.string()) for name, given in columns.items()},
                "partition": pa.array([0] * len(records), pa.int32()),
                "offset": pa.array(values[2], pa.int64()),
                "epoch": pa.array(values[0], pa.int32()),
                "batch": pa.array(values[1], pa.int64()),
                "state": pa.array(values[3], pa.string()),
                "state_changed_at": pa.array(values[4], pa.timestamp("us", "UTC")),
            }
        )
        write_deltalake(self.places.quarantine, table)
        write_deltalake(self.places.target, pa.table({"id": pa.array([1])}))
        self.ledger = {row.key: row for row in (self._batch(number) for number in range(2, 2 + batches))}
        self._write()

    def _batch(self, number: int) -> LedgerRow:
        identity = (2, "batch", "shop", "orders", 1, number, "orders", "id", 0)
        return LedgerRow(*identity, number * 10, number * 10 + 10, 10, 8, 0, 2, 0, None, None, number, "hash", OLD)

    def _write(self) -> None:
        write_deltalake(self.places.ledger, pa.Table.from_pylist([vars(row) for row in self.ledger.values()], LEDGER), mode="overwrite")

    def due(self, *, open_too: bool = False) -> Retired | None:
        return retire(DataFusion(), self.places, BEFORE, NOW, open_too=open_too)

    def count(self, retired: Retired) -> None:
        """The first step: the MERGE into the ledger."""
        self.ledger |= {row.key: row for row in retired.rows}
        self._write()

    def delete(self, retired: Retired, condition: str) -> None:
        """The second step: the DELETE."""
        about = json.dumps({**metadata(self.places), "retired_at": name_of(retired.at)})
        properties = CommitProperties(custom_metadata={"userMetadata": about})
        DeltaTable(self.places.quarantine).delete(condition, commit_properties=properties)

    def settle(self, retired: Retired) -> None:
        rows = recounted(DataFusion(), self.places, retired.rows, retired.since, retired.at)
        assert rows is not None
        self.ledger |= {row.key: row for row in rows}
        self._write()

    def change(self, offset: int, state: str, at: datetime = OLD) -> None:
        rows = DeltaTable(self.places.quarantine).to_pyarrow_table().to_pylist()
        changed = [{**row, "state": state, "state_changed_at": at} if row["offset"] == offset else row for row in rows]
        schema = DeltaTable(self.places.quarantine).to_pyarrow_table().schema
        write_deltalake(self.places.quarantine, pa.Table.from_pylist(changed, schema), mode="overwrite")

    def counted(self) -> dict[int, tuple[int, int]]:
        """The removed records and those of them that were rows, by the first offset."""
        return {row.start_offset: (row.quarantined, row.inserted) for row in self.ledger.values() if row.kind == "retention"}


def test_settled_records_leave_after_their_time_and_are_counted_by_batch(tmp_path: Path) -> None:
    one = Scene(
        tmp_path,
        (1, 2, 21, "replayed", OLD),
        (1, 2, 22, "dropped", OLD),
        (1, 3, 31, "dropped", NEW),
        (1, 3, 32, "open", OLD),
        (1, 4, 41, "dropped", OLD),
    )
    due = one.due()
    assert due is not None and due.records == 3
    found = {(row.kind, row.epoch, row.batch, row.start_offset, row.end_offset, row.quarantined, row.inserted) for row in due.rows}
    assert found == {("retention", 1, 2, 21, 23, 2, 1), ("retention", 1, 4, 41, 42, 1, 0)}
    assert all(row.why == name_of(due.at) and row.topic_id == "id" and row.target_version == 0 for row in due.rows)
    every = one.due(open_too=True)
    assert every is not None and every.records == 4


def test_records_of_a_batch_that_the_ledger_lacks_stay(tmp_path: Path) -> None:
    """It may be in progress, or cut off: then the next start rolls it back."""
    one = Scene(tmp_path, (1, 5, 51, "dropped", OLD), (2, 2, 61, "dropped", OLD))
    assert one.due(open_too=True) is None


def test_a_table_without_a_batch_or_without_old_records_has_nothing_to_remove(tmp_path: Path) -> None:
    assert Scene(tmp_path / "a", (1, 2, 21, "dropped", OLD), batches=0).due() is None
    assert Scene(tmp_path / "b", (1, 2, 21, "dropped", NEW)).due() is None


def test_a_retention_that_was_cut_off_is_counted_once(tmp_path: Path) -> None:
    """The next one finds an older record settled too, which changes the range. The first count is cancelled in the same statement."""
    one = Scene(tmp_path, (1, 2, 21, "open", OLD), (1, 2, 22, "dropped", OLD), (1, 3, 31, "dropped", OLD))
    first = one.due()
    assert first is not None
    one.count(first)
    assert one.counted() == {22: (1, 0), 31: (1, 0)}
    one.change(21, "dropped")
    second = one.due()
    assert second is not None
    one.count(second)
    assert one.counted() == {21: (2, 0), 22: (0, 0), 31: (1, 0)}


def test_a_record_that_is_reopened_after_the_cut_is_no_longer_counted(tmp_path: Path) -> None:
    one = Scene(tmp_path, (1, 2, 21, "replayed", OLD))
    first = one.due()
    assert first is not None
    one.count(first)
    one.change(21, "open", NEW)
    second = one.due()
    assert second is not None and second.records == 0
    one.count(second)
    assert one.counted() == {21: (0, 0)} and one.due() is None


def test_a_second_retention_of_a_batch_adds_its_own_count(tmp_path: Path) -> None:
    one = Scene(tmp_path, (1, 2, 21, "dropped", OLD), (1, 2, 22, "open", OLD))
    first = one.due()
    assert first is not None
    one.count(first)
    write_deltalake(one.places.quarantine, DeltaTable(one.places.quarantine).to_pyarrow_table().slice(1), mode="overwrite")
    one.change(22, "dropped")
    second = one.due()
    assert second is not None
    one.count(second)
    assert one.counted() == {21: (1, 0), 22: (1, 0)}


def test_of_two_retentions_at_once_each_counts_what_it_has_removed_itself(tmp_path: Path) -> None:
    """On an object store no lock keeps them apart. Both counted record 22, and both counts together would have excused another loss."""
    one = Scene(tmp_path, *((1, 2, offset, "dropped", OLD) for offset in (21, 22, 23)))
    first, second = (retire(DataFusion(), one.places, BEFORE, at) for at in (NOW, NOW + timedelta(seconds=1)))
    assert first is not None and second is not None and (first.records, second.records) == (3, 3)
    one.count(first)
    one.count(second)
    one.delete(first, "offset IN (21, 22)")
    one.settle(first)
    assert one.counted() == {21: (2, 0)}
    one.delete(second, "offset IN (22, 23)")
    one.settle(second)
    assert one.counted() == {21: (2, 0), 23: (1, 0)}
    assert recounted(DataFusion(), one.places, second.rows, second.since, second.at) is not None, "it counted more before"


def test_a_retention_alone_has_nothing_to_correct(tmp_path: Path) -> None:
    one = Scene(tmp_path, (1, 2, 21, "replayed", OLD), (1, 2, 22, "dropped", OLD), (1, 3, 31, "dropped", OLD))
    due = one.due()
    assert due is not None
    one.count(due)
    one.delete(due, "true")
    assert recounted(DataFusion(), one.places, due.rows, due.since, due.at) is None


def test_a_count_that_another_retention_has_replaced_is_restored(tmp_path: Path) -> None:
    one = Scene(tmp_path, (1, 2, 21, "replayed", OLD), (1, 2, 22, "dropped", OLD))
    due = one.due()
    assert due is not None
    one.count(due)
    one.ledger = {key: replace(row, quarantined=0, inserted=0) if row.kind == "retention" else row for key, row in one.ledger.items()}
    one._write()
    one.delete(due, "true")
    one.settle(due)
    assert one.counted() == {21: (2, 1)}
