"""The balance of a ledger finds what does not join or add up, and names batch, partition and offsets (I1, I4)."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from ingest.prove.balance import check, total
from ingest.stream.ledger_row import LedgerRow


def row(batch: int, start: int, end: int, **changes: Any) -> LedgerRow:
    read = end - start
    made = LedgerRow(
        *(1, "batch", "shop", "orders", 0, "q1", batch, "orders", "id", 0, start, end),
        *(read, read, 0, 0, 0, 0, batch + 1, "hash", datetime(2025, 1, 2, tzinfo=UTC)),
    )
    return dataclasses.replace(made, **changes)


def codes(*rows: LedgerRow) -> list[str]:
    return [finding.code for finding in check(rows)]


GOOD = (row(0, 0, 10), row(1, 10, 25), row(2, 25, 25), row(3, 25, 30))


def test_batches_that_join_and_add_up_have_no_finding() -> None:
    """I4."""
    assert check(GOOD) == []
    sums = total(GOOD)
    assert (sums.batches, sums.offsets, sums.read, sums.inserted) == (4, 30, 30, 30)


@pytest.mark.parametrize("column", ["records_read", "inserted", "duplicate", "quarantined", "replayed", "gap"])
def test_a_count_that_is_off_by_one_is_found_with_its_batch_and_offsets(column: str) -> None:
    """I4."""
    wrong = dataclasses.replace(GOOD[1], **{column: getattr(GOOD[1], column) + 1})
    found = check((GOOD[0], wrong, *GOOD[2:]))
    assert {f.code for f in found} == {"SUM_WRONG"}
    assert (found[0].batch_id, found[0].partition, found[0].start_offset, found[0].end_offset) == (1, 0, 10, 25)
    assert "batch 1 partition 0 offsets [10, 25)" in str(found[0])


def test_a_hole_and_an_overlap_between_batches_are_found() -> None:
    """I1: ranges join."""
    assert codes(row(0, 0, 10), row(1, 12, 20)) == ["RANGE_MISSING"]
    assert codes(row(0, 0, 10), row(1, 9, 20)) == ["RANGE_OVERLAPS"]


def test_a_hole_between_two_checkpoints_is_found_and_a_second_reading_is_none() -> None:
    """I4: a checkpoint that was lost, and a new one that began behind it."""
    assert codes(row(0, 0, 10), row(0, 50, 60, query_id="q2")) == ["RANGE_MISSING"]
    assert codes(row(0, 0, 10), row(0, 0, 60, query_id="q2")) == []


def test_where_an_epoch_ended_does_not_stand_for_its_last_batch() -> None:
    """I4: the ledger was lost after a rebase and made again without what Delta had cleaned from the log: of a single batch too."""
    ended, begun = row(0, 10, 10, kind="rebase"), row(0, 10, 10, kind="rebase", query_id="q2", epoch=1)
    batch = row(1, 10, 20, query_id="q2", epoch=1)
    assert [str(found) for found in check([batch], [ended, begun])] == ["BATCH_MISSING: batch 0 of query q1 is in neither ledger nor log"]
    assert check([row(0, 0, 10), batch], [ended, begun]) == []
    second = row(1, 20, 20, kind="rebase", query_id="q2", epoch=1)
    assert ("BATCH_MISSING", 1) in [(found.code, found.batch_id) for found in check([row(0, 0, 10)], [ended, begun, second])]


def test_a_missing_and_a_doubled_batch_are_found() -> None:
    """I1."""
    assert codes(row(0, 0, 10), row(2, 10, 20)) == ["BATCH_MISSING"]
    assert "BATCH_TWICE" in codes(row(0, 0, 10), row(0, 0, 10))
