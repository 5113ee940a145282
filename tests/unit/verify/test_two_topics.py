"""Verify a table of several topics: equal partitions and offsets of two topics are other positions, and a report names the topic (I4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingest.delta.batch_commit import SEEK, BatchId, Start
from ingest.delta.posting import Key, Posting
from ingest.kafka.intervals import Intervals
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic import Topic
from ingest.kafka.topic_state import TopicId
from ingest.verify.against_kafka import numbered_topics
from ingest.verify.balance import named
from ingest.verify.coverage import coverage, shortage
from ingest.verify.proof.proof_file import partitions
from tests.unit.verify.proof_lake import ENGINE, TOPIC, Lake

pytestmark = pytest.mark.unit

OTHER = TopicId("b", "other")


def both(lake: Lake) -> Lake:
    """The offsets [0, 10) of partition 0 in two topics: the first has poison where the second has rows, and the reverse."""
    lake.batch(0, 10, range(8), (8, 9))
    lake.topic, lake.shift = OTHER, 100
    lake.batch(0, 10, range(2, 10), (0, 1))
    return lake


def test_equal_positions_in_two_topics_are_neither_doubled_nor_in_both_tables(lake: Lake) -> None:
    """I3."""
    result = both(lake).verified()
    assert (result.findings, result.total.offsets, result.target.found, result.quarantine.found) == ((), 20, 16, 4)
    found = coverage(ENGINE, lake.places, {0, 1})
    assert (found.begins, found.ends) == ({(0, 0): 0, (1, 0): 0}, {(0, 0): 10, (1, 0): 10})


def test_a_loss_in_one_topic_is_named_with_it_and_leaves_the_other_one_whole(lake: Lake) -> None:
    """I6."""
    both(lake)._take("target", "id", [103])
    (found,) = lake.findings()
    assert str(found).startswith("ROWS_DIFFER: epoch 1 batch 3 partition 0 of topic b offsets [0, 10): ")
    assert "(missing [3, 4))" in found.what
    assert shortage(ENGINE, lake.places)[0] == (str(found),)
    whole = coverage(ENGINE, lake.places, {0, 1})
    assert (whole.first_missing((0, 0)), whole.first_missing((1, 0))) == (10, 0)
    assert whole.whole == {(0, 0): Intervals.of([(0, 10)]), (1, 0): Intervals.of([])}
    first = coverage(ENGINE, lake.places, {0})
    assert (first.whole, first.written_off) == ({(0, 0): Intervals.of([(0, 10)])}, ())
    assert [each.key for each in whole.written_off] == [Key(1, 3, 1, 0)]
    lake.topic = TOPIC
    lake.seek(10)
    assert len(lake.findings()) == 1, "a seek writes off only what it may read again"
    lake.topic = OTHER
    lake.seek(0)
    lake.batch(0, 10, (3,))
    assert lake.codes() == []


def test_a_row_that_was_moved_to_another_topic_is_found_in_both(lake: Lake) -> None:
    both(lake).target.update(updates={"_source": "1 - _source"}, predicate="_offset = 4")
    found = [(each.code, each.partition, each.topic) for each in lake.findings()]
    assert found == [("ROWS_DIFFER", 0, "orders"), ("ROWS_DIFFER", 0, "b"), ("ROWS_OF_NO_BATCH", None, None)]
    assert "epoch 1 batch 2 partition 0 of topic b: 1" in lake.findings()[-1].what


def test_a_position_that_is_there_twice_is_named_with_its_topic(lake: Lake) -> None:
    """I3, I4."""
    both(lake).rows([3], of=BatchId(1, 3))
    lake.records([0, 4], of=BatchId(1, 3))
    words = [each.what for each in lake.findings() if each.code in ("ROW_TWICE", "IN_BOTH")]
    place = "partition 0 of topic b offset"
    assert words == [
        f"2 rows in the target have the same event id: {place} 3, {place} 3",
        f"{place} 3 has 2 rows in the target",
        f"{place} 0 is in quarantine 2 times",
        f"{place} 4 is a row of the target and is in quarantine too",
    ]


def test_ranges_of_two_topics_do_not_join(lake: Lake) -> None:
    """I1: the second topic goes on where the first one ended."""
    lake.seek(0)
    lake.batch(0, 10, range(10))
    lake.topic, lake.shift = OTHER, 100
    lake.seek(0)
    lake.batch(10, 20, range(10, 20))
    assert [(each.code, each.topic) for each in lake.findings()] == [("RANGE_MISSING", "b")]


def test_where_the_start_of_a_topic_is_lost_only_its_own_offsets_begin_at_0(lake: Lake) -> None:
    """I6: a topic that joins has a start of its own."""
    lake.seek(50)
    lake.batch(50, 60, range(50, 60))
    lake.topic, lake.shift = OTHER, 100
    lake.start()
    lake.batch(30, 40, range(30, 40))
    assert coverage(ENGINE, lake.places, {0, 1}).begins == {(0, 0): 50, (1, 0): 0}
    lake.topic = TopicId("c", "third")
    lake.start()
    first = Posting(Key(lake.epoch, SEEK, 2, 0), "first", OffsetRange(0, 30, 30, source=2))
    lake.rows((), batch_commit=lake.batch_commit(Start("topics join: c"), SEEK, first))
    lake.batch(30, 40, ())
    assert coverage(ENGINE, lake.places, {0, 1, 2}).begins == {(0, 0): 50, (1, 0): 0, (2, 0): 30}


def test_what_is_to_be_read_again_and_what_was_left_out_have_their_topic(lake: Lake) -> None:
    both(lake).seek(5, gaps=[(10, 12)])
    result = lake.verified()
    assert (result.findings, result.pending) == ((), (OffsetRange(0, 5, 10, source=1),))
    assert result.gaps_accepted == (OffsetRange(0, 10, 12, source=1),)
    assert [named(result.books, of) for of in ((0, 0), (1, 0))] == ["partition 0 of topic orders", "partition 0 of topic b"]
    lake.topic, lake.shift = TOPIC, 0
    lake.seek(10)
    assert lake.verified().pending == (), "the newest epoch does not read that topic"


def test_a_gap_that_was_accepted_before_a_rebuild_is_history_with_its_topic(lake: Lake) -> None:
    """I4: the rebuild has read the other topic only, so the table has no rows of this one."""
    lake.batch(0, 10, range(10))
    lake.topic, lake.shift = OTHER, 100
    lake.seek(2, gaps=[(0, 2)])
    assert lake.verified().gaps_accepted == (OffsetRange(0, 0, 2, source=1),)
    lake.topic, lake.shift = TOPIC, 0
    lake.swap(0, 10)
    result = lake.verified()
    assert (result.findings, result.gaps_accepted) == ((), ())


def test_a_topic_that_was_recreated_is_told_from_the_former_one(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    assert named(lake.books(), (0, 0)) == "partition 0"
    lake.topic, lake.shift = replace(TOPIC, id="recreated"), 100
    lake.seek(0)
    lake.batch(0, 10, range(10))
    lake._take("target", "id", [103])
    (found,) = lake.findings()
    assert "partition 0 of topic orders (source 1) offsets [0, 10)" in str(found)
    assert named(lake.books(), (7, 0)) == "partition 0 of topic ? (source 7)"


def test_kafka_is_asked_about_the_topics_that_the_table_has_read(lake: Lake) -> None:
    """I6: another topic may have a name now, and one may not have been read yet."""
    books = both(lake).books()
    orders, other, new = Topic("orders", TOPIC.id, (0,)), Topic("b", OTHER.id, (0,)), Topic("c", "new", (0,))
    assert numbered_topics(books, [new, other, orders]) == {0: orders, 1: other}
    assert numbered_topics(books, [orders, replace(other, id="recreated")]) == {0: orders}
    assert numbered_topics(books, [replace(orders, id="")]) == {}, "a broker without ids cannot say which one it is"


@pytest.mark.parametrize("ids", [("id", "other"), ("", "")], ids=["ids", "a broker without ids"])
def test_a_proof_has_the_partitions_of_each_topic(lake: Lake, ids: tuple[str, str]) -> None:
    lake.sources = [TopicId(name, id) for name, id in zip(("orders", "b"), ids, strict=True)]
    lake.batch(0, 10, range(10))
    lake.source, lake.shift = 1, 100
    lake.batch(0, 5, range(5))
    found = {each["topic_id"]: (each["partition"], each["end"], each["inserted"]) for each in partitions(lake.books())}
    assert found == dict(zip([id or name for id, name in zip(ids, ("orders", "b"), strict=True)], [(0, 10, 10), (0, 5, 5)], strict=True))
