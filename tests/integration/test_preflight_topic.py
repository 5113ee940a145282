"""Preflight (I6) against the broker: a topic made again, records expired, partitions added and lost."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import NewPartitions

from ingest import faults
from ingest.errors import Refused
from ingest.stream import topic
from ingest.stream.topic import describe
from tests.integration.lane import Record, order, two_batches
from tests.integration.refusal import MakeLane, admin, balanced, forget_tables, made_again, refused

pytestmark = pytest.mark.integration


@pytest.mark.slow
@pytest.mark.parametrize("records", [pytest.param(1, id="shorter"), pytest.param(5, id="longer")])
def test_a_topic_made_again_is_refused_whether_it_is_shorter_or_longer(lane: MakeLane, records: int) -> None:
    """a longer one has every offset of the checkpoint, and Spark would go on in the middle of it."""
    one = two_batches(lane)
    made_again(one)
    one.send(*(order(f"new{n}") for n in range(records)))
    refused(one, "TOPIC_RECREATED")
    one.rebase("table")
    one.run()
    assert one.ids() == sorted(["a", "b", *(f"new{n}" for n in range(records))])
    balanced(one)


@pytest.mark.slow
def test_a_topic_made_again_and_longer_while_a_run_is_at_work_stops_it_before_anything_is_written(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch at hand has its offsets: Spark's client reads on in the middle of the new topic."""
    one = two_batches(lane)
    one.send(order("c"))
    at, before = faults.at, one.versions()

    def again(point: str, batch: int, *more: str) -> None:
        if (point, batch) == ("after_offset_log", 2):
            made_again(one)
            one.send(*(order(f"new{n}") for n in range(5)))
        at(point, batch, *more)

    monkeypatch.setattr(faults, "at", again)
    error = one.stopped()
    monkeypatch.undo()
    assert (error.code, error.exit_code) == ("TOPIC_RECREATED", 5) and one.versions() == before
    refused(one, "TOPIC_RECREATED")
    one.rebase("earliest")
    one.run()
    assert one.ids() == sorted(["a", "b", *(f"new{n}" for n in range(5))])
    balanced(one)


@pytest.mark.slow
def test_expired_records_are_refused_with_their_offsets_and_left_out_only_when_accepted(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.send(order("lost"), order("gone"), order("c"))
    client = admin(one)
    client.delete_records({TopicPartition(one.contract.source.topic, 0): 5})
    client.close()
    error = refused(one, "RECORDS_EXPIRED")
    assert "partition 0 [3, 5): 2 offsets" in error.found
    with pytest.raises(Refused, match=r"GAP_NOT_ACCEPTED.*partition 0 \[3, 5\)"):
        one.rebase("table")
    one.rebase("table", accept_gap=True)
    one.run()
    assert one.ids() == ["a", "b", "c"]
    verified = one.verified()
    assert verified.findings == () and verified.gaps_accepted == ((0, 3, 5),)


@pytest.mark.slow
def test_a_run_killed_before_its_first_batch_is_planned_and_a_partition_that_is_added_and_expires(lane: MakeLane) -> None:
    """Spark ends every such start by itself: "added partition 1 starts from 2 instead of 0. Some data may have been missed"."""
    one = lane()
    one.send(order("a"))
    one.run()
    one.forget_batch(0)
    shutil.rmtree(one.places.lake)
    forget_tables(one)
    client = admin(one)
    client.create_partitions({one.contract.source.topic: NewPartitions(2)})
    one.send(*(Record(order(name), 1) for name in ("lost", "gone", "b")))
    client.delete_records({TopicPartition(one.contract.source.topic, 1): 2})
    client.close()
    assert "partition 1 [0, 2): 2 offsets" in refused(one, "RECORDS_EXPIRED").found
    with pytest.raises(Refused, match=r"GAP_NOT_ACCEPTED.*partition 1 \[0, 2\)"):
        one.rebase("table")
    one.rebase("table", accept_gap=True)
    one.run()
    assert one.ids() == ["a", "b"]
    verified = one.verified()
    assert verified.findings == () and verified.gaps_accepted == ((1, 0, 2),)


@pytest.mark.slow
def test_a_partition_added_is_read_and_one_lost_is_refused(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that tells no topic ids cannot be asked whether the topic is the same; its partitions tell."""
    monkeypatch.setattr("tests.integration.lane.describe", lambda kafka, name: replace(describe(kafka, name), id=""))
    one = two_batches(lane)
    client = admin(one)
    client.create_partitions({one.contract.source.topic: NewPartitions(2)})
    client.close()
    one.send(Record(order("c"), 1))
    one.run()
    assert one.ids() == ["a", "b", "c"]
    balanced(one)
    made_again(one)
    assert "no partition 1 any more" in refused(one, "PARTITIONS_LOST").found
    with pytest.raises(Refused, match="PARTITIONS_LOST"):
        one.rebase()


@pytest.mark.slow
def test_a_broker_that_ends_before_the_checkpoint_is_refused(lane: MakeLane) -> None:
    one = two_batches(lane)
    lines = one.checkpoint("offsets/1").read_text().splitlines()
    one.checkpoint("offsets/2").write_text("\n".join([*lines[:2], lines[2].replace(":3", ":30")]))
    error = refused(one, "BROKER_BEHIND")
    assert "partition 0 ends at 3, t.events stands at 30" in error.found


@pytest.mark.slow
def test_neither_a_changed_isolation_level_nor_a_rebase_begins_behind_a_transaction_that_is_open(lane: MakeLane) -> None:
    """Spark would plan a batch that ends before it begins: "data may have been lost", then CHECKPOINT_TORN, also when all is decided."""
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
    error = refused(one, "OFFSETS_UNDECIDED")
    assert "partition 0 begins at 2, committed records are told of up to 1" in error.found
    assert one.rebase("latest").binding.rebase is not None
    assert one.checkpoint("offsets/0").read_text().endswith(": 1}}")
    one.run()
    producer.commit_transaction()
    producer.close()
    one.send(order("c"))
    (report,) = one.run()
    assert (report.records_read, report.replayed, report.inserted) == (2, 1, 1)
    assert one.ids() == ["a", "b", "c"]
    balanced(one)


@pytest.mark.slow
def test_what_kafka_has_expired_is_no_silent_gap_where_the_table_holds_nothing_any_more(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.target().where("false").write.format("delta").mode("overwrite").save(one.places.target)
    client = admin(one)
    client.delete_records({TopicPartition(one.contract.source.topic, 0): 2})
    client.close()
    with pytest.raises(Refused, match=r"GAP_NOT_ACCEPTED.*partition 0 \[0, 2\)"):
        one.rebase("earliest")


@pytest.mark.slow
def test_a_broker_that_is_upgraded_and_tells_topic_ids_is_gone_on_with_and_its_id_is_remembered(lane: MakeLane) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic, "_id_text", lambda _: "")  # of before Kafka 2.8
        one = two_batches(lane)
        one.run()
    binding = one.checkpoint("oncelake/binding.json")
    assert json.loads(binding.read_text())["topic_id"] == ""
    one.send(order("c"), "{")
    one.run()
    assert json.loads(binding.read_text())["topic_id"] != ""
    assert one.ids() == ["a", "b", "c"]
    balanced(one)
    one.rebase()
    one.send(order("d"))
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]
    balanced(one)
    made_again(one)
    refused(one, "TOPIC_RECREATED")
