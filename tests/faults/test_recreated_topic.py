"""A topic is deleted and recreated, shorter and longer than what was read: it is never mistaken for the old topic (I3, I6)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.oracle.sources import EventId, KafkaView
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import until
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_recreated_topic_shorter_or_longer_is_refused_and_a_seek_reads_all_of_it(pipeline: PipelineFactory, broker: Broker) -> None:
    """The topic is recreated twice: between two runs, and during a run whose current batch has planned its offsets.

    Both new topics contain some ids that the table already has. Each deleted topic contained records that no batch had read.
    """
    lake = pipeline(batch=1000)
    lake.produce(1200)
    lake.produce(1500, poison=20, seed=2)
    lake.complete()
    lake.produce(300, seed=3)
    first, gone = read_of(lake, lake.shown())

    made_again(lake, broker)
    lake.produce(400)
    lake.produce(600, poison=20, seed=4)
    second = lake.shown()
    assert all(second.end[partition] < end for partition, end in first.end.items()), "the new topic is shorter than what was read"
    assert 0 < len(ids(first) & ids(second)) < len(ids(second))
    follow(lake, lake.refused("TOPIC_RECREATED"))
    driver = lake.start(fault="after_offset_log:hang@3")
    driver.stopped()
    before, ends = len(lake.commits()), second.end
    second, more = read_of(lake, second)

    made_again(lake, broker)
    lake.produce(400)
    lake.produce(2200, poison=20, seed=5)
    third = lake.shown()
    assert all(third.end[partition] > end for partition, end in ends.items()), "the new topic is longer than what was planned"
    driver.proceed()
    assert "ingest: TOPIC_RECREATED: " in driver.ended(5) and len(lake.commits()) == before
    follow(lake, lake.refused("TOPIC_RECREATED"))
    lake.complete()

    lost = (gone | more) - ids(first) - ids(second) - ids(third)
    assert len({commit.sources[-1] for commit in lake.commits() if commit.ranges}) == 3 and lost
    lake.verified()
    lake.judge(former=(first, second), excused_ids=frozenset(lost)).assert_clean()


def ids(view: KafkaView) -> set[EventId]:
    return {record.event_id for record in view.records.values() if record.event_id is not None}


def read_of(lake: Pipeline, view: KafkaView) -> tuple[KafkaView, set[EventId]]:
    """The records that batches have read, and the ids of the unread rest, which are lost with the topic."""
    ends = lake.ends()
    read = {place: record for place, record in view.records.items() if place[1] < ends[place[0]]}
    rest = {record.event_id for place, record in view.records.items() if place not in read and record.event_id is not None}
    return replace(view, records=read, end=ends), rest


def made_again(lake: Pipeline, broker: Broker) -> None:
    """Delete the topic and create another with the same name."""
    admin = KafkaAdminClient(bootstrap_servers=lake.bootstrap_servers)

    def topic_id() -> str:
        return str(admin.describe_topics([lake.topic])[0]["topic_id"])

    def made() -> bool:
        try:
            broker.create_topic(lake.topic, 2)
        except KafkaError:  # the broker is still deleting
            return False
        return True

    former = topic_id()
    admin.delete_topics([lake.topic])
    until(made, "a topic with the same name exists", 60)
    until(lambda: topic_id() != former, "the topic id has changed", 60)
    admin.close()


def follow(lake: Pipeline, remedy: str) -> None:
    """Run the command that a refusal names."""
    command = re.search(r"`ingest (seek [^`]+)`", remedy)
    assert command, remedy
    lake.command(*command[1].split()).ended(0)
