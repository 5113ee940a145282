"""What the row count is held against: the ledger, what it lacks yet by the target's log, and what was deleted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.files import LocalFiles
from ingest.places import Places
from ingest.quality import count
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_reader import summarise
from ingest.stream.mark import Mark
from ingest.stream.offsets import BatchId, OffsetRange

pytestmark = pytest.mark.unit

ROWS = 10  # of every batch


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path), "", "t", "events")


def log(places: Places) -> DeltaLog:
    return DeltaLog(LocalFiles(), places.target)


def commit(places: Places, version: int, operation: str, *actions: dict[str, Any], **info: Any) -> None:
    folder = Path(places.target) / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ({"commitInfo": {"timestamp": version, "operation": operation, **info}}, *actions)
    (folder / f"{version:020}.json").write_text("\n".join(json.dumps(each) for each in lines))


def batch(places: Places, version: int, number: int) -> None:
    """A batch in the target's log."""
    ranges = (OffsetRange(0, number * ROWS, (number + 1) * ROWS),)
    mark = Mark("t", "events", BatchId("q", number), 0, "hash", "topic", "id", ranges, ())
    add = {"add": {"path": f"{version}.parquet", "stats": json.dumps({"numRecords": ROWS})}}
    txn = {"txn": {"appId": mark.app_id("target"), "version": number}}
    commit(places, version, "MERGE", txn, add, userMetadata=mark.to_json())


def told(places: Places, version: int, number: int) -> None:
    """Its row in the ledger."""
    texts = {"kind": "batch", "pipeline": "t", "table": "events", "query_id": "q", "topic": "topic", "topic_id": "id", "contract_hash": "h"}
    numbers = {"batch_id": number, "start_offset": number * ROWS, "end_offset": (number + 1) * ROWS, "records_read": ROWS, "inserted": ROWS}
    numbers |= dict.fromkeys(("epoch", "partition", "duplicate", "quarantined", "replayed", "gap"), 0)
    row = {**texts, **numbers, "target_version": version, "committed_at": datetime(2025, 1, 1, tzinfo=UTC)}
    write_deltalake(places.ledger, pa.Table.from_pylist([row]), mode="append")


def test_the_ledger_counts_and_what_it_lacks_is_in_the_log(places: Places) -> None:
    for number in range(3):
        batch(places, number + 1, number)
    told(places, 1, 0)
    assert [count.ledger_rows(None, places, log(places), version) for version in (1, 2, 3)] == [10, 20, 30]


def test_where_there_is_no_ledger_the_log_counts_alone(places: Places) -> None:
    batch(places, 1, 0)
    assert count.ledger_rows(None, places, log(places), 1) == 10


@pytest.mark.parametrize("name", ["numDeletedRows", "num_deleted_rows"])
def test_what_a_delete_took_is_no_longer_expected_whoever_wrote_it(places: Places, name: str) -> None:
    """Spark and delta-rs name the figure differently."""
    batch(places, 1, 0)
    told(places, 1, 0)
    commit(places, 2, "DELETE", operationMetrics={name: 3})
    assert count.ledger_rows(None, places, log(places), 2) == 7


def test_the_names_are_those_that_delta_rs_writes(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"a": [1, 2, 3]}))
    DeltaTable(str(tmp_path)).delete("a > 1")
    assert DeltaLog(LocalFiles(), str(tmp_path)).commit(1).deleted_rows == 2


def test_a_restore_after_the_version_that_is_checked_changes_nothing(places: Places) -> None:
    for number in range(2):
        batch(places, number + 1, number)
    told(places, 1, 0)
    commit(places, 3, "DELETE", operationMetrics={"numDeletedRows": 3})
    commit(places, 4, "RESTORE", operationParameters={"version": 1})
    assert count.ledger_rows(None, places, log(places), 3) == 17


def test_rows_that_a_run_adds_to_the_ledger_meanwhile_count_once(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        batch(places, number + 1, number)
    told(places, 1, 0)

    def then_appended(*given: Any) -> Any:
        found = summarise(*given)
        told(places, 2, 1)
        return found

    monkeypatch.setattr(count, "summarise", then_appended)
    assert count.ledger_rows(None, places, log(places), 2) == 20
