"""The projection of a commit to ledger rows balances for any counts (I4)."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.stream.delta_log import Commit
from ingest.stream.ledger_row import LedgerRow, project, share
from ingest.stream.ledger_summary import summary_of
from ingest.stream.mark import Counts, Mark
from ingest.stream.offsets import BatchId, OffsetRange
from ingest.stream.tables import LEDGER_FIELDS

natural = st.integers(0, 10**12)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[OffsetRange, Counts, int]:
    """A partition's range, its counts, and how many of its winners were inserted."""
    quarantined, losers, replayed, winners, gap = (draw(natural) for _ in range(5))
    read, start = quarantined + losers + replayed + winners, draw(natural)
    return OffsetRange(0, start, start + read + gap), Counts(read, quarantined, losers, replayed), draw(st.integers(0, winners))


def commit_of(version: int = 3) -> Commit:
    return Commit(version, datetime(2025, 1, 2, tzinfo=UTC), "MERGE", {}, None, ())


@given(st.lists(partitions(), max_size=6))
def test_every_record_and_every_offset_is_accounted_for(parts: list[tuple[OffsetRange, Counts, int]]) -> None:
    """I4: read = inserted + duplicate + quarantined + replayed, and the range = read + gap."""
    ranges = tuple(OffsetRange(n, r.start, r.end) for n, (r, _, _) in enumerate(parts))
    counts = tuple((n, c) for n, (_, c, _) in enumerate(parts))
    mark = Mark("shop", "orders", BatchId("q", 5), 1, "hash", "orders", "id", ranges, counts)
    rows = project(commit_of(), mark, {n: inserted for n, (_, _, inserted) in enumerate(parts)})
    assert [row.partition for row in rows] == list(range(len(parts)))
    for row, (_, count, inserted) in zip(rows, parts, strict=True):
        assert row.records_read == count.read == row.inserted + row.duplicate + row.quarantined + row.replayed
        assert row.end_offset - row.start_offset == row.records_read + row.gap
        assert (row.inserted, row.quarantined, row.replayed) == (inserted, count.quarantined, count.replayed)
        assert min(row.duplicate, row.gap) >= 0
        assert (row.query_id, row.batch_id, row.epoch, row.target_version, row.kind) == ("q", 5, 1, 3, "batch")


def test_a_partition_without_records_has_a_row_too() -> None:
    """I4: a range of transaction markers alone is a gap, not a hole."""
    mark = Mark("shop", "orders", BatchId("q", 0), 0, "hash", "orders", "id", (OffsetRange(0, 4, 6), OffsetRange(1, 0, 0)), ())
    assert [(row.records_read, row.gap) for row in project(commit_of(), mark, {})] == [(0, 2), (0, 0)]


@given(st.lists(st.tuples(natural, natural), max_size=6), st.data())
def test_shares_lie_within_what_was_offered_and_add_up(parts: list[tuple[int, int]], data: st.DataObject) -> None:
    """I4 for a commit whose files are gone: whatever is found in the table now, no count falls below zero."""
    offered = {partition: number for partition, (number, _) in enumerate(parts)}
    total = data.draw(st.integers(0, sum(offered.values())))
    shares = share(total, offered, {partition: found for partition, (_, found) in enumerate(parts)})
    assert sum(shares.values()) == total
    assert all(0 <= shares[partition] <= number for partition, number in offered.items())


@pytest.mark.parametrize(
    ("total", "found", "expected"),
    [
        (5, {0: 3, 1: 2}, {0: 3, 1: 2}),
        (5, {0: 3}, {0: 4, 1: 1}),  # rows were deleted since: of which partition, nobody knows
        (3, {0: 3, 1: 2, 7: 4}, {0: 1, 1: 2}),  # another batch put rows of the same offsets there
        (2, {0: 9}, {0: 2, 1: 0}),
    ],
)
def test_shares_are_what_is_found_as_far_as_the_commit_allows(total: int, found: dict[int, int], expected: dict[int, int]) -> None:
    assert share(total, {0: 4, 1: 3}, found) == expected


def test_a_row_has_the_tables_columns_in_their_order() -> None:
    assert [field.name for field in dataclasses.fields(LedgerRow)] == [field.name for field in LEDGER_FIELDS]


def ledger_row(kind: str, query: str, epoch: int, batch: int, version: int, minute: int) -> dict[str, Any]:
    """A ledger row of partition 0 up to offset 10 (batch + 1), appended in this minute."""
    at = datetime(2025, 1, 2, tzinfo=UTC) + timedelta(minutes=minute)
    start, end = (10 * batch, 10 * batch + 10) if kind == "batch" else (10 * batch + 10, 10 * batch + 10)
    head = (1, kind, "shop", "orders", epoch, query, batch, "orders", "id", 0, start, end)
    return {**dataclasses.asdict(LedgerRow(*head, 0, 0, 0, 0, 0, end - start, version, "hash", at)), "reached": end}


def test_a_rebase_says_which_batches_of_an_epoch_were_in_force() -> None:
    rebases = [ledger_row("rebase", "q-0", 0, 1, 4, 5), ledger_row("rebase", "q-1", 1, 0, 4, 5)]
    assert summary_of([ledger_row("batch", "q-0", 0, 2, 3, 3)], rebases, ()).ended == {"q-0": 1}


def test_an_epoch_that_goes_on_after_a_rebase_was_cut_off_is_not_ended() -> None:
    """Its checkpoint was put back: batches that it commits then are in force, whatever the rows of the rebase say."""
    rebases = [ledger_row("rebase", "q-0", 0, 1, 2, 5), ledger_row("rebase", "q-1", 1, 0, 2, 5)]
    assert summary_of([ledger_row("batch", "q-0", 0, 2, 3, 6)], rebases, ()).ended == {}
    again = [*rebases, ledger_row("rebase", "q-0", 0, 2, 3, 8), ledger_row("rebase", "q-2", 2, 0, 3, 8)]
    assert summary_of([ledger_row("batch", "q-0", 0, 2, 3, 6)], again, ()).ended == {"q-0": 2, "q-1": 0}


@pytest.mark.parametrize("minute", [3, 8], ids=["clock set back", "clock right"])
def test_which_rebase_came_last_is_told_by_epochs_and_not_by_the_clock(minute: int) -> None:
    """The first rebase was made at minute 5, the second three minutes later, by a clock that may have been set back meanwhile."""
    first = [ledger_row("rebase", "q-0", 0, 1, 2, 5), ledger_row("rebase", "q-1", 1, 0, 2, 5)]
    second = [ledger_row("rebase", q, epoch, n, 4, minute) for q, epoch, n in (("q-0", 0, 1), ("q-1", 1, 2), ("q-2", 2, 0))]
    done = [ledger_row("batch", "q-0", 0, 1, 2, 4), ledger_row("batch", "q-1", 1, 2, 4, minute - 1)]
    summary = summary_of(done, [*first, *second], ())
    assert summary.ended == {"q-0": 1, "q-1": 2}
    assert {begin.query_id: (begin.table_version, begin.baseline) for begin in summary.begins.values()} == {
        "q-1": (2, {0: 10}),
        "q-2": (4, {0: 10}),
    }


def test_the_first_offsets_of_batches_in_quarantine_are_told_by_topic_and_partition() -> None:
    rows = [
        {"query_id": q, "topic_id": "id", "partition": p, "first_batch": b, "last_batch": b + 1, "start": s}
        for q, p, b, s in (("q", 0, 4, 7), ("r", 0, 1, 3), ("q", 1, 6, 2))
    ]
    summary = summary_of((), (), rows)
    assert summary.quarantined == {"q": (4, 7), "r": (1, 2)} and summary.quarantined_from == {("id", 0): 3, ("id", 1): 2}
