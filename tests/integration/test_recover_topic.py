"""What Kafka no longer has or has anew (I6): refused with exact offsets, gone on with when told, and the gap is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from kafka import KafkaProducer
from kafka.admin import NewPartitions

from ingest.kafka import topic
from ingest.kafka.topic import describe
from ingest.runtime import crash_points
from ingest.runtime.errors import Refused
from tests.integration.lane import Lane, Record, order, two_batches

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]


@pytest.mark.parametrize("records", [pytest.param(1, id="shorter", marks=pytest.mark.slow), pytest.param(5, id="longer")])
def test_a_topic_made_again_is_refused_whether_it_is_shorter_or_longer_and_read_from_its_beginning(lane: MakeLane, records: int) -> None:
    """A longer one has every offset that the table ends at, and Spark would go on in the middle of it."""
    one = two_batches(lane)
    one.make_topic_again()
    one.send(*(order(f"new{n}") for n in range(records)))
    assert "--to earliest" in one.refused("TOPIC_RECREATED").remedy
    with pytest.raises(Refused, match="TOPIC_RECREATED"):
        one.seek("table")
    one.seek("earliest")
    one.run()
    assert one.ids() == ["a", "b", *(f"new{n}" for n in range(records))]
    one.balanced()


@pytest.mark.slow
def test_a_topic_made_again_and_longer_while_a_run_is_at_work_stops_it_before_anything_is_written(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch at hand has its offsets: Spark's client reads on in the middle of the new topic."""
    one = two_batches(lane)
    one.send(order("c"))
    at, before = crash_points.at, len(one.batches())

    def again(point: str, batch: int, *more: str) -> None:
        if (point, batch) == ("after_offset_log", 2):
            one.make_topic_again()
            one.send(*(order(f"new{n}") for n in range(5)))
        at(point, batch, *more)

    monkeypatch.setattr(crash_points, "at", again)
    error = one.stopped()
    monkeypatch.undo()
    assert (error.code, error.exit_code) == ("TOPIC_RECREATED", 5) and len(one.batches()) == before
    one.refused("TOPIC_RECREATED")
    one.seek("earliest")
    one.run()
    assert one.ids() == ["a", "b", *(f"new{n}" for n in range(5))]
    one.balanced()


def test_expired_records_are_refused_with_their_offsets_and_left_out_only_when_accepted(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.send(order("lost"), order("gone"), order("c"))
    one.expire(before=5)
    assert "partition 0 [3, 5): 2 offsets" in one.refused("RECORDS_EXPIRED").found
    with pytest.raises(Refused, match=r"GAP_NOT_ACCEPTED.*partition 0 \[3, 5\)"):
        one.seek("table")
    one.seek("table", accept_gap=True)
    one.run()
    assert one.ids() == ["a", "b", "c"]
    one.balanced()
    assert one.verified().gaps_accepted == ((0, 3, 5),)


@pytest.mark.slow
def test_a_partition_that_is_added_and_expires_before_it_was_read_is_refused(lane: MakeLane) -> None:
    """Spark ends every such start by itself: "added partition 1 starts from 2 instead of 0. Some data may have been missed"."""
    one = lane()
    one.send(order("a"))
    one.run()
    client = one.admin()
    client.create_partitions({one.contract.source.topic: NewPartitions(2)})
    client.close()
    one.send(*(Record(order(name), 1) for name in ("lost", "gone", "b")))
    one.expire(before=2, partition=1)
    assert "partition 1 [0, 2): 2 offsets" in one.refused("RECORDS_EXPIRED").found
    one.seek("table", accept_gap=True)
    one.run()
    assert one.ids() == ["a", "b"]
    one.balanced()
    assert one.verified().gaps_accepted == ((1, 0, 2),)


@pytest.mark.slow
def test_where_the_broker_tells_no_topic_ids_partitions_and_ends_tell_that_the_topic_is_another(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("tests.integration.lane", "ingest.pipeline.table_query"):
        monkeypatch.setattr(f"{module}.describe", lambda kafka, name: replace(describe(kafka, name), id=""))
    one = two_batches(lane)
    one.make_topic_again()
    assert "partition 0 ends at 0, but t.events continues at 3" in one.refused("BROKER_BEHIND").found
    one.send(order("x"), order("y"), order("z"))
    client = one.admin()
    client.create_partitions({one.contract.source.topic: NewPartitions(2)})
    client.close()
    one.send(Record(order("c"), 1))
    one.run()
    one.make_topic_again()
    assert "no partition 1 any more" in one.refused("PARTITIONS_LOST").found
    with pytest.raises(Refused, match="PARTITIONS_LOST"):
        one.seek()


@pytest.mark.slow
def test_neither_a_changed_isolation_level_nor_a_seek_begins_behind_a_transaction_that_is_open(lane: MakeLane) -> None:
    """Spark would plan a batch that ends before it begins, and say that data may have been lost, also when all is decided."""
    one = lane(source={"isolation_level": "read_uncommitted"})
    one.send(order("a"))
    name = one.contract.source.topic
    producer = KafkaProducer(bootstrap_servers=one.bootstrap_servers, acks="all", transactional_id=f"{name}-open")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(name, order("b").encode(), partition=0).get(timeout=30)
    one.run()
    assert one.ids() == ["a", "b"]
    source = one.contract.source.model_copy(update={"isolation_level": "read_committed"})
    one.contract = one.contract.model_copy(update={"source": source})
    assert "partition 0 continues at 2, but its committed records end at 1" in one.refused("OFFSETS_UNDECIDED").found
    assert one.seek("latest").starts == {0: 1}
    one.run()
    producer.commit_transaction()
    producer.close()
    one.send(order("c"))
    (report,) = one.run()
    assert (report.records_read, report.duplicate, report.inserted) == (2, 1, 1)
    assert one.ids() == ["a", "b", "c"]
    one.balanced()


@pytest.mark.slow
def test_a_broker_that_is_upgraded_and_tells_topic_ids_is_gone_on_with_and_its_id_is_remembered(lane: MakeLane) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic, "_id_text", lambda _: "")  # of before Kafka 2.8
        one = two_batches(lane)
    one.send(order("c"), "{")
    one.run()
    assert [batch_commit.topic.id != "" for _, batch_commit in one.batches()] == [False, False, True]
    assert one.ids() == ["a", "b", "c"]
    one.balanced()
    one.make_topic_again()
    one.refused("TOPIC_RECREATED")
