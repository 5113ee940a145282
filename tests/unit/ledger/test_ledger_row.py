"""The ledger rows of a commit balance for any counts (I4)."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.delta.batch_commit import BatchCommit, BatchId, Counts, Snapshot, Snapshots
from ingest.delta.commit import Commit
from ingest.delta.table_definitions import LEDGER_FIELDS
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.ledger.ledger_row import LedgerRow, epoch_begin, project, share

natural = st.integers(0, 10**12)
SNAPSHOT = Snapshot("T", 2, "t2")
COMMIT = Commit(3, datetime(2025, 1, 2, tzinfo=UTC), "MERGE", {}, None)
BATCH = BatchCommit(
    "batch", "shop", "orders", BatchId(4, 5), "w", Snapshots(SNAPSHOT, SNAPSHOT), "hash", TopicId("orders", "id", "cluster")
)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[OffsetRange, Counts, int]:
    """A partition's range, its counts, and how many rows it put into the target."""
    quarantined, duplicates, winners, gap = (draw(natural) for _ in range(4))
    read, start = quarantined + duplicates + winners, draw(natural)
    return OffsetRange(0, start, start + read + gap), Counts(read, quarantined, duplicates), draw(st.integers(0, winners))


@given(st.lists(partitions(), max_size=6))
def test_every_record_and_every_offset_is_accounted_for(parts: list[tuple[OffsetRange, Counts, int]]) -> None:
    """I4: read = inserted + duplicate + quarantined, and the range = read + gap."""
    ranges = tuple(OffsetRange(n, r.start, r.end) for n, (r, _, _) in enumerate(parts))
    batch_commit = dataclasses.replace(BATCH, ranges=ranges, counts=tuple((n, c) for n, (_, c, _) in enumerate(parts)))
    rows = project(COMMIT, batch_commit, {n: inserted for n, (_, _, inserted) in enumerate(parts)})
    assert [row.partition for row in rows] == list(range(len(parts)))
    for row, (_, count, inserted) in zip(rows, parts, strict=True):
        assert row.records_read == count.read == row.inserted + row.duplicate + row.quarantined
        assert row.end_offset - row.start_offset == row.records_read + row.gap
        assert (row.inserted, row.quarantined) == (inserted, count.quarantined) and min(row.duplicate, row.gap) >= 0
        assert (row.kind, row.epoch, row.batch, row.target_version, row.stood, row.why) == ("batch", 4, 5, 3, None, None)
        assert (row.topic, row.topic_id, row.contract_hash) == ("orders", "id", "hash")


def test_a_partition_without_records_has_a_row_too() -> None:
    """I4: a range with only transaction markers is a gap, not a hole."""
    batch_commit = dataclasses.replace(BATCH, ranges=(OffsetRange(0, 4, 6), OffsetRange(1, 0, 0)))
    assert [(row.records_read, row.gap) for row in project(COMMIT, batch_commit, {})] == [(0, 2), (0, 0)]


def test_a_seek_has_one_row_per_partition_and_one_per_gap() -> None:
    gaps = (OffsetRange(0, 1, 3), OffsetRange(0, 4, 9))
    batch_commit = dataclasses.replace(
        BATCH, kind="seek", id=BatchId(4, 1), ranges=(OffsetRange(0, 9, 9), OffsetRange(1, 2, 2)), gaps=gaps, why="first"
    )
    rows = [
        (row.kind, row.batch, row.partition, row.start_offset, row.end_offset, row.gap, row.why)
        for row in project(COMMIT, batch_commit, {})
    ]
    begins = [("epoch", 1, 0, 9, 9, 0, "first"), ("epoch", 1, 1, 2, 2, 0, "first")]
    assert rows == [*begins, ("gap_accepted", 1, 0, 1, 3, 2, None), ("gap_accepted", 1, 0, 4, 9, 5, None)]


def test_an_epoch_without_a_seek_starts_with_its_first_batch() -> None:
    batch_commit = dataclasses.replace(BATCH, ranges=(OffsetRange(0, 9, 12), OffsetRange(1, 2, 2)))
    rows = [
        (row.kind, row.epoch, row.batch, row.partition, row.start_offset, row.end_offset, row.why)
        for row in epoch_begin(COMMIT, batch_commit)
    ]
    assert rows == [("epoch", 4, 0, 0, 9, 9, "start"), ("epoch", 4, 0, 1, 2, 2, "start")]


@given(st.lists(st.tuples(natural, natural), max_size=6), st.data())
def test_shares_add_up_and_none_exceeds_the_rows_that_were_offered(parts: list[tuple[int, int]], data: st.DataObject) -> None:
    """I4 for a commit whose files are gone: no count is negative, whatever rows the table contains now."""
    offered = {partition: number for partition, (number, _) in enumerate(parts)}
    total = data.draw(st.integers(0, sum(offered.values())))
    shares = share(total, offered, {partition: found for partition, (_, found) in enumerate(parts)})
    assert sum(shares.values()) == total
    assert all(0 <= shares[partition] <= number for partition, number in offered.items())


@pytest.mark.parametrize(
    ("total", "found", "expected"),
    [
        (5, {0: 3, 1: 2}, {0: 3, 1: 2}),
        (5, {0: 3}, {0: 4, 1: 1}),  # rows were deleted since, from an unknown partition
        (3, {0: 3, 1: 2, 7: 4}, {0: 1, 1: 2}),  # another batch inserted rows of the same offsets
        (2, {0: 9}, {0: 2, 1: 0}),
    ],
)
def test_shares_match_the_rows_found_as_far_as_the_commit_allows(total: int, found: dict[int, int], expected: dict[int, int]) -> None:
    assert share(total, {0: 4, 1: 3}, found) == expected


def test_a_ledger_row_has_the_columns_of_the_table_in_their_order() -> None:
    assert [field.name for field in dataclasses.fields(LedgerRow)] == [field.name for field in LEDGER_FIELDS]
