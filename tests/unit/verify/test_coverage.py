"""What a table accounts for: where `ingest seek --to table` begins, and what a start hears whose batches only the ledger knows (I6)."""

from __future__ import annotations

import shutil

import pytest

from ingest.delta.batch_commit import BatchId
from ingest.delta.stored_rows import found
from ingest.kafka.intervals import Intervals
from ingest.kafka.topic_state import TopicId
from ingest.verify.coverage import shortage
from tests.unit.verify.proof_lake import ENGINE, Lake
from tests.unit.verify.test_verdict import filled


def test_a_table_that_lacks_nothing_is_whole_to_its_end(lake: Lake) -> None:
    seen = filled(lake).coverage()
    assert (seen.begins, seen.ends, seen.known) == ({0: 0}, {0: 20}, True)
    assert (seen.whole[0], seen.first_missing(0)) == (Intervals.of([(0, 20)]), 20)


def test_the_first_batch_that_lacks_something_is_where_reading_begins_again(lake: Lake) -> None:
    filled(lake).batch(20, 30, range(20, 30))
    lake.take(12)
    seen = lake.coverage()
    assert (seen.first_missing(0), seen.whole[0]) == (10, Intervals.of([(0, 10), (20, 30)]))


def test_what_a_delete_took_is_not_missing(lake: Lake) -> None:
    filled(lake).target.delete("_offset = 12")
    assert lake.coverage().first_missing(0) == 20


@pytest.mark.parametrize("table", ["target", "quarantine"])
def test_a_table_that_is_gone_holds_nothing(lake: Lake, table: str) -> None:
    filled(lake)
    shutil.rmtree(f"{lake.places.root}/{table}")
    assert lake.coverage().first_missing(0) == 0
    assert set(found(ENGINE, lake.places, None, None)) == {(1, 2, 0), (1, 3, 0)}


def test_where_reading_began_later_nothing_before_it_is_missing(lake: Lake) -> None:
    lake.seek(50)
    lake.batch(50, 60, range(50, 60))
    assert (lake.coverage().begins, lake.coverage().first_missing(0)) == ({0: 50}, 60)
    lake.seek(0)
    lake.batch(0, 10, range(10))
    assert (lake.coverage().begins, lake.coverage().first_missing(0)) == ({0: 0}, 10)


def test_an_accepted_gap_is_whole_also_where_a_batch_had_lost_something(lake: Lake) -> None:
    filled(lake).take(3)
    assert lake.coverage().first_missing(0) == 0
    lake.seek(20, gaps=[(0, 10)])
    assert lake.coverage().first_missing(0) == 20
    lake.take(4)
    assert lake.coverage().first_missing(0) == 20, "nobody wants it back"


def test_that_a_later_batch_has_read_all_again_does_not_cover_what_went_since(lake: Lake) -> None:
    """Its records were duplicates of rows that are gone now."""
    filled(lake).seek(0)
    lake.batch(0, 30, range(20, 30), gap=1)
    assert lake.coverage().first_missing(0) == 30
    lake.take(4)
    assert (lake.coverage().first_missing(0), lake.coverage().whole[0]) == (0, Intervals.of([(10, 30)]))
    lake.seek(0)
    assert lake.coverage().first_missing(0) == 0, "nothing has been read yet"
    lake.batch(0, 10, (4,))
    lake.batch(10, 30, (), gap=1)
    assert lake.coverage().first_missing(0) == 30


def test_a_batch_that_has_read_again_and_lost_what_it_put_there_covers_nothing(lake: Lake) -> None:
    filled(lake).take(3)
    lake.seek(0)
    lake.batch(0, 20, (3,), gap=1)
    assert lake.coverage().first_missing(0) == 20
    lake.take(3)
    assert lake.coverage().first_missing(0) == 0


def test_another_topics_batches_are_none_of_this_ones(lake: Lake) -> None:
    filled(lake).topic = TopicId("orders", "made-again")
    lake.start()
    lake.batch(0, 5, range(100, 105), duplicates=0)
    lake.target.update(updates={"_offset": "_offset - 100"}, predicate="_offset >= 100")
    seen = lake.coverage()
    assert (seen.begins, seen.ends, seen.first_missing(0)) == ({0: 0}, {0: 5}, 5)


def test_rows_of_no_known_batch_make_it_unknown_and_uncommitted_records_do_not(lake: Lake) -> None:
    filled(lake).cut_off(20, 30, (21,))
    assert lake.coverage().known
    lake.rows([40], of=BatchId(2, 2))
    assert not lake.coverage().known


def test_a_start_hears_what_is_missing_and_what_is_unknown(lake: Lake) -> None:
    filled(lake)
    lake.coverage()
    assert shortage(ENGINE, lake.places) == ((), ())
    lake.take(3)
    lake.rows([40], of=BatchId(2, 2))
    (missing,), (unknown,) = shortage(ENGINE, lake.places)
    assert missing.startswith("ROWS_DIFFER: epoch 1 batch 2 partition 0 offsets [0, 10)")
    assert "epoch 2 batch 2 partition 0: 1, offsets 40 to 40" in unknown


def test_versions_of_before_are_counted_too(lake: Lake) -> None:
    lake.batch(0, 10, range(8), (8, 9))
    versions = lake.target.version(), lake.quarantine.version()
    lake.batch(10, 20, range(10, 20))
    assert found(ENGINE, lake.places, *versions) == {(1, 2, 0): (8, 2)}
    assert found(ENGINE, lake.places, None, None) == {(1, 2, 0): (8, 2), (1, 3, 0): (10, 0)}
