"""Verify and the retention of the quarantine: the ledger's count explains removed records for good, and hides no other loss (I4)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, write_deltalake

from tests.unit.verify.proof_lake import Lake

pytestmark = pytest.mark.unit

AT = datetime(2026, 1, 1, tzinfo=UTC)


def two_poisoned(folder: Path) -> Lake:
    lake = Lake(folder)
    lake.batch(0, 10, range(8), poison=[8, 9])
    return lake


def count(lake: Lake, offset: int, number: int = 1) -> None:
    """Write the ledger row of a retention."""
    batch = next(row for row in lake.ledger if row.kind == "batch")
    row = replace(batch, kind="retention", start_offset=offset, end_offset=offset + 1, target_version=lake.target.version())
    lake.ledger.append(
        replace(row, records_read=0, inserted=0, duplicate=0, quarantined=number, gap=0, why=AT.isoformat(), committed_at=AT)
    )


def delete(lake: Lake, offset: int) -> None:
    """The DELETE of a retention."""
    metadata = {"oncelake": 1, "kind": "maintain", "pipeline": "shop", "table": "orders", "retired_at": AT.isoformat()}
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(metadata)})
    lake.quarantine.delete(f"offset = {offset}", commit_properties=properties)


def lose(lake: Lake, offset: int) -> None:
    """Remove a record without a DELETE: as a loss does, or a DELETE that Delta has cleaned from the log."""
    rows = lake.quarantine.to_pyarrow_table()
    kept = rows.filter(pc.not_equal(rows["offset"], pa.scalar(offset, pa.int64())))
    write_deltalake(lake.places.quarantine, kept, mode="overwrite", predicate="offset >= 0")


def test_a_counted_record_is_not_missing_and_no_delete_is_reported(tmp_path: Path) -> None:
    lake = two_poisoned(tmp_path)
    count(lake, 8)
    assert lake.findings() == (), "counted, and not deleted yet"
    delete(lake, 8)
    verified = lake.verified()
    assert (verified.findings, verified.deletes) == ((), ())
    assert (verified.quarantine.put, verified.quarantine.retired, verified.quarantine.found) == (2, 1, 1)


def test_the_count_explains_the_record_when_the_log_no_longer_has_the_delete(tmp_path: Path) -> None:
    lake = two_poisoned(tmp_path)
    lose(lake, 8)
    assert lake.codes() == ["QUARANTINE_DIFFERS"]
    count(lake, 8)
    assert lake.codes() == []


def test_the_count_and_its_delete_do_not_both_excuse_a_record(tmp_path: Path) -> None:
    lake = two_poisoned(tmp_path)
    count(lake, 8)
    delete(lake, 8)
    lose(lake, 9)
    assert lake.codes() == ["QUARANTINE_DIFFERS"]


def test_a_delete_that_a_verify_sees_before_its_count_explains_itself(tmp_path: Path) -> None:
    """Verify reads the ledger first. A retention may write both in the meantime."""
    lake = two_poisoned(tmp_path)
    delete(lake, 8)
    verified = lake.verified()
    assert verified.findings == () and [each.rows for each in verified.deletes] == [1]


def test_a_retention_before_a_seek_excuses_nothing_that_the_seek_has_counted(tmp_path: Path) -> None:
    lake = two_poisoned(tmp_path)
    count(lake, 8)
    delete(lake, 8)
    lake.seek(0)
    lake.batch(0, 10, (), duplicates=10)
    assert lake.codes() == []
    lose(lake, 9)
    assert lake.codes() == ["QUARANTINE_DIFFERS"]


def test_a_retention_after_a_seek_is_not_a_loss(tmp_path: Path) -> None:
    lake = two_poisoned(tmp_path)
    lake.seek(0)
    lake.batch(0, 10, (), duplicates=10)
    lose(lake, 8)
    assert lake.codes() == ["QUARANTINE_DIFFERS"]
    count(lake, 8)
    assert lake.codes() == []


def test_a_seek_to_the_table_does_not_read_a_batch_again_because_of_a_retention(tmp_path: Path) -> None:
    lake = two_poisoned(tmp_path)
    count(lake, 8)
    lose(lake, 8)
    coverage = lake.coverage()
    assert coverage.first_missing(0) == 10 and coverage.known
