"""Coverage: where `ingest seek --to table` starts, and the shortage that a start sees if only the ledger has the batches (I6)."""

from __future__ import annotations

import shutil

import pytest

from ingest.delta.batch_commit import SEEK, BatchId, Replay
from ingest.delta.posting import Key, Posting
from ingest.kafka.intervals import Intervals
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.verify.coverage import shortage
from tests.unit.verify.proof_lake import ENGINE, Lake, sums
from tests.unit.verify.test_verdict import filled


def test_a_table_without_losses_is_complete_up_to_its_end(lake: Lake) -> None:
    coverage = filled(lake).coverage()
    assert (coverage.begins, coverage.ends, coverage.known) == ({(0, 0): 0}, {(0, 0): 20}, True)
    assert (coverage.whole[0, 0], coverage.first_missing((0, 0))) == (Intervals.of([(0, 20)]), 20)


def test_the_first_missing_offset_is_the_start_of_the_first_incomplete_batch(lake: Lake) -> None:
    filled(lake).batch(20, 30, range(20, 30))
    lake.take(12)
    coverage = lake.coverage()
    assert (coverage.first_missing((0, 0)), coverage.whole[0, 0]) == (10, Intervals.of([(0, 10), (20, 30)]))


def test_rows_that_a_delete_removed_are_not_missing(lake: Lake) -> None:
    filled(lake).target.delete("_offset = 12")
    assert lake.coverage().first_missing((0, 0)) == 20


@pytest.mark.parametrize("table", ["target", "quarantine"])
def test_with_a_table_gone_coverage_starts_at_0(lake: Lake, table: str) -> None:
    filled(lake).keep()
    shutil.rmtree(f"{lake.places.root}/{table}")
    assert lake.coverage().first_missing((0, 0)) == 0


def test_offsets_before_the_first_read_are_not_missing(lake: Lake) -> None:
    lake.seek(50)
    lake.batch(50, 60, range(50, 60))
    assert (lake.coverage().begins, lake.coverage().first_missing((0, 0))) == ({(0, 0): 50}, 60)
    lake.seek(0)
    lake.batch(0, 10, range(10))
    assert (lake.coverage().begins, lake.coverage().first_missing((0, 0))) == ({(0, 0): 0}, 10)


def test_what_a_seek_wrote_off_is_whole_when_it_was_read_again(lake: Lake) -> None:
    """I6."""
    filled(lake).take(3, 4)
    lake.take_records(8)
    batch, rows, records = BatchId(1, 2), [3, 4], [8]
    assert lake.coverage().written_off == (
        Posting(Key(1, 2, 0, 0), "write-off", target=-sums(batch, 0, rows, rows), quarantine=-sums(batch, 0, records)),
    )
    lake.seek(0)
    coverage = lake.coverage()
    assert (coverage.first_missing((0, 0)), coverage.written_off) == (0, ()), "the books balance, but nothing has been read yet"
    lake.batch(0, 10, (3, 4), (8,))
    assert (lake.coverage().first_missing((0, 0)), lake.coverage().whole[0, 0]) == (20, Intervals.of([(0, 20)]))


def test_what_a_seek_wrote_off_and_left_out_stays_missing_unless_the_gap_is_accepted(lake: Lake) -> None:
    """I6: a later seek still has to ask for it."""
    filled(lake).take(3)
    lake.seek(5)
    lake.batch(5, 20, (), gap=1)
    assert (lake.coverage().first_missing((0, 0)), lake.coverage().whole[0, 0]) == (0, Intervals.of([(5, 20)]))
    lake.seek(20, gaps=[(0, 5)])
    assert lake.coverage().first_missing((0, 0)) == 20


def test_the_rows_of_a_replay_that_a_seek_wrote_off_are_read_again_by_the_next_seek_too(lake: Lake) -> None:
    """I6: their batch is whole, because the quarantine has its records."""
    filled(lake).start()
    key, then = Key(lake.epoch, SEEK, 0, 0), lake.target.version()
    replayed = Posting(key, "replay", OffsetRange(0, 8, 10), 2, sums(BatchId(lake.epoch, SEEK), 0, [8, 9], [8, 9]))
    lake.rows([8, 9], batch_commit=lake.batch_commit(Replay("a test"), SEEK, replayed))
    assert lake.coverage().first_missing((0, 0)) == 20
    lake.target.restore(then)
    assert lake.coverage().first_missing((0, 0)) == 8
    for _ in range(2):  # the second one comes before anything was read
        lake.seek(8)
        assert (lake.coverage().first_missing((0, 0)), lake.coverage().written_off) == (8, ())
    lake.batch(8, 10, (8, 9))
    assert (lake.coverage().first_missing((0, 0)), lake.coverage().written_off) == (20, ())


def test_a_loss_in_a_rebuilt_table_with_rows_that_were_carried_over_is_read_again(lake: Lake) -> None:
    """I6: the rebuild's batch and what it has carried over have one key, and only the batch has offsets."""
    lake.swap(10, 20, carried=range(5))
    assert (lake.codes(), lake.coverage().first_missing((0, 0))) == ([], 20)
    lake.take(12)
    assert lake.coverage().first_missing((0, 0)) == 10
    (found,) = lake.findings()
    assert (found.start_offset, found.end_offset) == (10, 20)


def test_an_accepted_gap_is_complete_until_a_batch_loses_more_rows_in_it(lake: Lake) -> None:
    filled(lake).take(3)
    lake.seek(20, gaps=[(0, 10)])
    assert lake.coverage().first_missing((0, 0)) == 20
    lake.take(4)
    assert lake.coverage().first_missing((0, 0)) == 0, "these rows were there at the seek"


def test_a_re_read_does_not_cover_rows_that_are_lost_after_it(lake: Lake) -> None:
    """The later batch only saw duplicates of rows that are gone now."""
    filled(lake).seek(0)
    lake.batch(0, 30, range(20, 30), gap=1)
    assert lake.coverage().first_missing((0, 0)) == 30
    lake.take(4)
    assert (lake.coverage().first_missing((0, 0)), lake.coverage().whole[0, 0]) == (0, Intervals.of([(10, 30)]))
    lake.seek(0)
    assert lake.coverage().first_missing((0, 0)) == 0, "nothing has been read yet"
    lake.batch(0, 10, (4,))
    lake.batch(10, 30, (), gap=1)
    assert lake.coverage().first_missing((0, 0)) == 30


def test_a_re_read_batch_that_lost_its_own_rows_covers_nothing(lake: Lake) -> None:
    filled(lake).take(3)
    lake.seek(0)
    lake.batch(0, 20, (3,), gap=1)
    assert lake.coverage().first_missing((0, 0)) == 20
    lake.take(3)
    assert lake.coverage().first_missing((0, 0)) == 0


def test_batches_of_another_topic_do_not_count(lake: Lake) -> None:
    filled(lake).topic = TopicId("orders", "recreated")
    lake.start()
    lake.shift = 100
    lake.batch(0, 5, range(5))
    coverage = lake.coverage()
    assert (coverage.begins, coverage.ends, coverage.first_missing((1, 0))) == ({(1, 0): 0}, {(1, 0): 5}, 5)


def test_coverage_is_unknown_with_rows_of_unknown_batches_but_not_with_uncommitted_records(lake: Lake) -> None:
    filled(lake).cut_off(20, 30, (21,))
    assert lake.coverage().known
    lake.rows([40], of=BatchId(2, 2))
    assert not lake.coverage().known


def test_a_start_sees_missing_rows_and_rows_of_unknown_batches(lake: Lake) -> None:
    filled(lake)
    assert shortage(ENGINE, lake.places) == ((), ())
    lake.take(3)
    lake.rows([40], of=BatchId(2, 2))
    (missing,), (unknown,) = shortage(ENGINE, lake.places)
    assert missing.startswith("ROWS_DIFFER: epoch 1 batch 2 partition 0 offsets [0, 10)")
    assert "epoch 2 batch 2 partition 0: 1" in unknown
