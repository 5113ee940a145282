"""The balance check finds ranges that do not join and counts that do not add up, with epoch, batch, partition and offsets (I1, I4)."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from ingest.delta.batch_commit import BatchId
from ingest.delta.posting import Key, Posting, Sums, Why
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.ledger.books import Books
from ingest.ledger.ledger_line import Line
from ingest.verify.balance import check, pending, total

TOPICS = "orders", "b"


def row(batch: int, start: int, end: int, why: Why = "batch", *, epoch: int = 1, source: int = 0, **changes: Any) -> Line:
    """A batch of the first epoch whose records all became rows."""
    number = end - start if why == "batch" else 0
    posting = Posting(Key(epoch, batch, source, 0), why, OffsetRange(0, start, end, source=source), number, Sums(number))
    about = (BatchId(epoch, batch), "writer", TopicId(TOPICS[source], "id"), "target", batch, "hash")
    return Line(dataclasses.replace(posting, **changes), "shop", "orders", *about, datetime(2025, 1, 2, tzinfo=UTC))  # type: ignore[arg-type]


def begin(epoch: int, at: int, why: Why = "seek", source: int = 0) -> Line:
    return row(1, at, at, why, epoch=epoch, source=source)


def books(*lines: Line) -> Books:
    return Books(9, 9, lines)


def codes(*rows: Line) -> list[str]:
    return [finding.code for finding in check(books(*rows))]


GOOD = (begin(1, 0, "first"), row(2, 0, 10), row(3, 10, 25), row(4, 25, 25), row(5, 25, 30))


def test_batches_whose_ranges_join_and_counts_add_up_have_no_finding() -> None:
    """I4."""
    assert codes(*GOOD) == []
    sums = total(books(*GOOD))
    assert (sums.batches, sums.offsets, sums.read, sums.inserted) == (4, 30, 30, 30)


@pytest.mark.parametrize("wrong", [{"read": 16}, {"target": Sums(14)}, {"quarantine": Sums(1)}, {"present": 1}, {"duplicate": 1}], ids=str)
def test_a_count_that_is_off_by_one_is_reported_with_its_batch_and_offsets(wrong: dict[str, Any]) -> None:
    """I4."""
    found = check(books(*GOOD[:2], row(3, 10, 25, **wrong), *GOOD[3:]))
    assert {each.code for each in found} == {"SUM_WRONG"}
    assert "epoch 1 batch 3 partition 0 offsets [10, 25)" in str(found[0])


def test_a_negative_count_is_found() -> None:
    assert codes(row(2, 0, 10, target=Sums(11), duplicate=-1)) == ["SUM_WRONG"]
    assert codes(row(2, 0, 10, read=11, target=Sums(11))) == ["SUM_WRONG"], "more records than offsets"


def test_a_batch_that_nobody_can_count_any_more_is_no_finding() -> None:
    """Delta in Spark wrote it, and VACUUM has removed its files."""
    assert codes(row(2, 0, 10, target=None, present=None)) == []


def test_a_hole_or_overlap_inside_an_epoch_is_reported_once() -> None:
    """I1: offsets join."""
    assert codes(row(2, 0, 10), row(3, 12, 20)) == ["RANGE_MISSING"]
    assert codes(begin(1, 0), row(2, 3, 20)) == ["RANGE_MISSING"]
    assert codes(row(2, 0, 10), row(3, 9, 20)) == ["RANGE_OVERLAPS"]
    assert codes(row(2, 0, 20), begin(2, 0), row(2, 0, 5, epoch=2), row(3, 8, 20, epoch=2)) == ["RANGE_MISSING"], (
        "although an earlier epoch has read it"
    )


def test_an_epoch_that_skips_offsets_is_found_unless_the_gap_was_accepted() -> None:
    """I4."""
    later = (begin(2, 15), row(2, 15, 20, epoch=2))
    gap = row(1, 10, 15, "gap", epoch=2)
    (found,) = check(books(row(2, 0, 10), *later))
    assert (found.code, found.epoch, found.start_offset) == ("RANGE_MISSING", 2, 15) and "[10, 15)" in found.what
    assert codes(row(2, 0, 10), *later, gap) == []
    assert codes(row(2, 0, 10), *later, row(1, 10, 15, "gap", epoch=2, source=1)) == ["RANGE_MISSING"]
    assert codes(row(2, 0, 10), *later, begin(3, 0), row(2, 0, 20, epoch=3)) == [], "a later epoch has read it"


def test_a_re_read_is_neither_a_hole_nor_an_overlap() -> None:
    assert codes(row(2, 0, 20), begin(2, 5), row(2, 5, 30, epoch=2)) == []


def test_offsets_that_the_newest_epoch_still_has_to_read_are_pending_and_not_a_hole() -> None:
    """The first epoch started at the end of the topic; a seek went back to its start."""
    first = (begin(1, 50, "first"), row(2, 50, 90))
    again = (begin(2, 0), row(2, 0, 10, epoch=2))
    assert (codes(*first, *again), pending(books(*first, *again))) == ([], {(0, 0): (10, 90)})
    assert pending(books(*first, begin(2, 0))) == {(0, 0): (0, 90)}
    assert pending(books(*first, *again, row(3, 10, 95, epoch=2))) == {}
    assert pending(books(*first, *again, row(2, 0, 3, epoch=3, source=1))) == {(0, 0): (10, 90)}, "per topic"
