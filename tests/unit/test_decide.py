"""Write, skip or refuse (I2), tried for every small case."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from ingest.errors import RunStopped
from ingest.stream.decide import LastWritten, Skip, Write, decide, differs
from ingest.stream.mark import Counts, Mark
from ingest.stream.offsets import BatchId, OffsetRange


def mark(number: int, more: int = 0, topic_id: str = "t", begin: int | None = None) -> Mark:
    """Ten offsets of partition 0 a batch, and `more`; partition 1 is there from the beginning and brings nothing new."""
    start = 10 * number if begin is None else begin
    ranges = (OffsetRange(0, start, 10 * number + 10 + more), OffsetRange(1, 4, 4))
    return Mark("shop", "orders", BatchId("q", number), 0, "hash", "orders", topic_id, ranges, ())


@pytest.mark.parametrize("planned, written", list(itertools.product(range(5), (None, *range(5)))))
def test_only_the_next_batch_is_written_only_the_same_is_skipped_all_else_is_refused(planned: int, written: int | None) -> None:
    """I2: `written` is the last batch that the table holds, None for none."""
    last = None if written is None else LastWritten(mark(written), 42)
    before = -1 if written is None else written
    if planned == before + 1:
        assert decide(mark(planned), last) == Write()
    elif planned == before:
        assert last is not None
        assert decide(mark(planned), last) == Skip(last.mark, 42)
    else:
        with pytest.raises(RunStopped) as stopped:
            decide(mark(planned), last)
        assert stopped.value.code == ("BATCHES_MISSING" if planned > before else "BATCH_DIFFERS")
        assert stopped.value.exit_code == 5


@pytest.mark.parametrize("theirs", [mark(3, more=1), mark(3, topic_id="another")])
def test_the_same_number_with_other_ranges_or_of_another_topic_is_refused_and_both_are_named(theirs: Mark) -> None:
    """I2"""
    with pytest.raises(RunStopped, match="BATCH_DIFFERS") as stopped:
        decide(mark(3), LastWritten(theirs, 42))
    for one in (mark(3), theirs):
        assert f"0:[30,{one.ranges[0].end}) 1:[4,4)" in stopped.value.found
        assert f"topic id {one.topic_id}" in stopped.value.found
    assert "version 42" in stopped.value.found


@pytest.mark.parametrize("begin", [25, 31])
def test_the_next_batch_is_refused_if_it_does_not_begin_where_the_table_ends(begin: int) -> None:
    """I1: in between offsets would be in no batch, or in two."""
    with pytest.raises(RunStopped, match="BATCH_DIFFERS") as stopped:
        decide(mark(3, begin=begin), LastWritten(mark(2), 42))
    assert f"0:[{begin},40)" in stopped.value.found and "version 42, is 0:[20,30)" in stopped.value.found


def test_a_partition_that_the_batch_before_did_not_have_begins_at_0() -> None:
    """I1"""
    for start in (0, 5):
        new = dataclasses.replace(mark(3), ranges=(*mark(3).ranges, OffsetRange(2, start, 9)))
        if start == 0:
            assert decide(new, LastWritten(mark(2), 42)) == Write()
        else:
            with pytest.raises(RunStopped, match="BATCH_DIFFERS"):
                decide(new, LastWritten(mark(2), 42))


def test_the_next_batch_is_refused_if_it_is_of_another_topic_and_an_id_that_is_not_known_is_no_difference() -> None:
    """I2: offsets of the one mean nothing in the other, also where they join. A broker that is upgraded begins to tell ids."""
    with pytest.raises(RunStopped, match=r"BATCH_DIFFERS.*topic id t, but .* of topic id another"):
        decide(mark(3), LastWritten(mark(2, topic_id="another"), 42))
    for ours, theirs in (("", "t"), ("t", ""), ("", "")):
        before, same = mark(2, topic_id=theirs), mark(3, topic_id=theirs)
        assert decide(mark(3, topic_id=ours), LastWritten(before, 42)) == Write()
        assert decide(mark(3, topic_id=ours), LastWritten(same, 42)) == Skip(same, 42)


def test_counts_and_contract_do_not_decide() -> None:
    """I2, I9: ranges do; the counts of an attempt before are those that the table proves."""
    written = dataclasses.replace(mark(3), counts=((0, Counts(5, 1)),), contract_hash="older")
    assert decide(mark(3), LastWritten(written, 42)) == Skip(written, 42)


def test_a_pair_without_a_mark_of_ours_is_named_as_such() -> None:
    assert "no ranges of ours" in differs(mark(3), None, 9).found
