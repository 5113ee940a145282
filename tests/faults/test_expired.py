"""Kafka's retention or compaction removes records between an attempt at a batch and its repetition.

No record is duplicated, and lost records are reported exactly.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from ingest.lab.broker.broker_probe import admin
from ingest.lab.oracle.oracle_tables import select
from ingest.lab.oracle.sources import EventId, KafkaView
from ingest.lab.samples.shop import Shop
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import until
from tests.faults.pipeline import Pipeline, ranges

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EXPIRED = 100
Place = tuple[int, int]  # partition, offset


def ids(view: KafkaView) -> set[EventId]:
    return {record.event_id for record in view.records.values() if record.event_id is not None}


@pytest.mark.parametrize("point", ["after_quarantine", "after_target"])
def test_records_that_expire_before_a_batch_is_repeated_are_reported_exactly_or_not_needed(pipeline: PipelineFactory, point: str) -> None:
    """A batch that was cut off before its target commit is refused, with the expired offsets. After that commit it needs none of them."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    lake.crash(f"{point}:kill@3")
    start = ranges(lake.batches()[0])[0][1]
    before = ids(lake.shown())
    client = KafkaAdminClient(bootstrap_servers=lake.bootstrap_servers)
    client.delete_records({TopicPartition(lake.topic, 0): start + EXPIRED})
    client.close()
    if point == "after_target":
        lake.complete()
        lake.judge().assert_clean()
        return
    error = json.loads(lake.start("--once", "--json").ended(3))["tables"][0]["error"]
    assert error["code"] == "RECORDS_EXPIRED" and f"partition 0 [{start}, {start + EXPIRED}): {EXPIRED} offsets" in error["found"]
    refused = lake.command("seek", "orders", "--to", "table").ended(3)
    assert "GAP_NOT_ACCEPTED" in refused and f"partition 0 [{start}, {start + EXPIRED})" in refused
    lake.seek("table", "--accept-gap")
    lake.complete()
    gaps = lake.verified()[0]["gaps_accepted"]
    assert gaps == [[0, start, start + EXPIRED]]
    lake.judge(excused_ids=frozenset(before - ids(lake.shown()))).assert_clean()


@pytest.mark.parametrize("point", ["after_offset_log", "after_quarantine", "after_target"])
def test_records_compacted_before_a_batch_is_repeated_are_lost_only_if_it_was_uncommitted(pipeline: PipelineFactory, point: str) -> None:
    """Later events reuse the keys of some records of a batch that was cut off. Kafka keeps only the last record of each key.

    A committed batch keeps its rows. An uncommitted one is rolled back, and the run reads the records that Kafka still contains.
    """
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    lake.crash(f"{point}:kill@3")
    first, done, end = {p: end for p, (_, end) in ranges(lake.batches()[0]).items()}, lake.ends(), lake.planned(3)
    quarantine = set(select(lake.delta("quarantine"), ["partition", "offset"]))
    known = {place: record for place, record in lake.shown().records.items() if first[place[0]] <= place[1] < end[place[0]]}
    with_id = {place: record.event_id[0] for place, record in known.items() if record.event_id}
    removed = [*sorted(with_id)[::20], *sorted(quarantine & with_id.keys())[::2]]
    send_under_keys(lake, [(partition, with_id[partition, offset]) for partition, offset in removed])
    before = lake.shown()
    left = compacted(lake, removed)

    lake.complete()
    assert lake.shown() == left, "Kafka's cleaner did not run meanwhile"
    committed = {place: record for place, record in before.records.items() if place[1] < done[place[0]]}
    read = replace(left, records={**committed, **left.records})
    lost, unread = ids(before) - ids(read), before.records.keys() - read.records.keys()
    assert bool(lost) == (point != "after_target")
    kafka = json.loads(lake.command("verify", "--json", "--against-kafka").ended(0))["tables"][0]["kafka"]
    assert kafka["gaps"]["hole"] >= len(unread) and kafka["unverifiable"] == 0
    lake.judge(kafka=read, excused_ids=frozenset(lost)).assert_clean()


def send_under_keys(lake: Pipeline, keys: Iterable[tuple[int, str]]) -> None:
    """Send an event with another id under each of these keys. The usual key of an order is its own id."""
    producer = KafkaProducer(bootstrap_servers=lake.bootstrap_servers, acks="all")
    others = Shop("others").orders(1_000_000)
    for partition, key in keys:
        producer.send(lake.topic, next(others).value, key.encode(), partition=partition)
    producer.close()


def compacted(lake: Pipeline, removed: Collection[Place]) -> KafkaView:
    """The records that Kafka's cleaner leaves. It is switched on, and off again when the records are gone.

    It runs every 15 seconds and skips the active segment, which the next record closes.
    """
    configure(
        lake, {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"}
    )
    producer = KafkaProducer(bootstrap_servers=lake.bootstrap_servers, acks="all")

    def cleaned() -> bool:
        for partition, event in enumerate(Shop("the last").orders(2)):
            producer.send(lake.topic, event.value, event.key, partition=partition)
        producer.flush()
        return lake.shown().records.keys().isdisjoint(removed)

    until(cleaned, "Kafka's cleaner has removed the records", 120)
    producer.close()
    configure(lake, {"cleanup.policy": "delete"})
    return lake.shown()


def configure(lake: Pipeline, settings: Mapping[str, str]) -> None:
    with admin(lake.bootstrap_servers, timeout_s=15) as client:
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, lake.topic, configs=dict(settings))])
