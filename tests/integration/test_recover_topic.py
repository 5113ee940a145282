"""Expired records and recreated topics (I6): refused with exact offsets; a seek continues, and an accepted gap is recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaProducer
from kafka.admin import NewPartitions

from ingest.kafka import topic
from ingest.kafka.offsets import OffsetRange
from ingest.runtime import crash_points
from ingest.runtime.errors import Refused
from tests.integration.lane import Lane, Record, order, two_batches

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]


@pytest.mark.slow
@pytest.mark.parametrize("records", [pytest.param(1, id="shorter"), pytest.param(5, id="longer")])
def test_a_recreated_topic_shorter_or_longer_is_refused_until_a_seek_to_its_beginning(lane: MakeLane, records: int) -> None:
    """A longer topic has the offset at which the table ends, so Spark alone would continue in the middle of it."""
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
def test_a_longer_topic_recreated_during_a_run_stops_it_before_anything_is_written(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets of the current batch are planned already: Spark's client would read them from the middle of the new topic."""
    one = two_batches(lane)
    one.send(order("c"))
    at, before = crash_points.at, len(one.batches())

    def recreated(point: str, batch: int, *more: str) -> None:
        if (point, batch) == ("after_offset_log", 2):
            one.make_topic_again()
            one.send(*(order(f"new{n}") for n in range(5)))
        at(point, batch, *more)

    monkeypatch.setattr(crash_points, "at", recreated)
    error = one.stopped()
    monkeypatch.undo()
    assert (error.code, error.exit_code) == ("TOPIC_RECREATED", 5) and len(one.batches()) == before
    one.refused("TOPIC_RECREATED")
    one.seek("earliest")
    one.run()
    assert one.ids() == ["a", "b", *(f"new{n}" for n in range(5))]
    one.balanced()


@pytest.mark.slow
def test_expired_records_are_refused_with_their_offsets_and_skipped_only_if_accepted(lane: MakeLane) -> None:
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
    assert one.verified().gaps_accepted == (OffsetRange(0, 3, 5),)


@pytest.mark.slow
def test_an_added_partition_whose_records_expire_before_they_are_read_is_refused(lane: MakeLane) -> None:
    """Spark alone would fail at every such start: "added partition 1 starts from 2 instead of 0. Some data may have been missed"."""
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
    assert one.verified().gaps_accepted == (OffsetRange(1, 0, 2),)


@pytest.mark.slow
def test_without_topic_ids_partitions_and_end_offsets_reveal_a_recreated_topic(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "id_text", lambda _: "")
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
def test_neither_a_changed_isolation_level_nor_a_seek_starts_after_an_open_transaction(lane: MakeLane) -> None:
    """Spark would plan a batch that ends before it starts, and report lost data even after the transaction is committed."""
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
    assert one.seek("latest").starts == {(0, 0): 1}
    one.run()
    producer.commit_transaction()
    producer.close()
    one.send(order("c"))
    (report,) = one.run()
    assert (report.records_read, report.duplicate, report.inserted) == (2, 1, 1)
    assert one.ids() == ["a", "b", "c"]
    one.balanced()


@pytest.mark.slow
def test_after_a_broker_upgrade_the_run_continues_and_stores_the_new_topic_id(lane: MakeLane) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic, "id_text", lambda _: "")  # like a broker before Kafka 2.8
        one = two_batches(lane)
    one.send(order("c"), "{")
    one.run()
    assert [batch_commit.topic(0).id != "" for _, batch_commit in one.batches()] == [False, False, True]
    assert one.ids() == ["a", "b", "c"]
    one.balanced()
    one.make_topic_again()
    one.refused("TOPIC_RECREATED")
