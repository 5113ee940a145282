"""Where a database sink starts, whatever Kafka says, and what it does about deleted records and recreated topics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine

from ingest.delivery.kafka import ExactlyOnce, TransactionalProducer
from ingest.lab.broker.broker_probe import admin
from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime.errors import RunStopped
from tests.database.sink_scene import SinkScene, numbered, scenes
from tests.kafka.topics import Topics

MakeScene = Callable[..., SinkScene]


@pytest.fixture
def scene(engine: Engine, broker: Broker, topic: Callable[..., str]) -> Iterator[MakeScene]:
    with scenes(engine, broker.bootstrap_servers, topic) as make:
        yield make


def test_the_offsets_in_kafka_do_not_matter(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(numbered(0, 5))
    assert stage.run(5).stored == 5
    assert stage.committed() == {0: 5}, "they are there for tools that show the lag"
    for wrong in (0, 9):
        stage.commit(wrong)
        stage.produce(numbered(len(stage.written), len(stage.written) + 5))
        counts = stage.run(5)
        assert (counts.stored, counts.duplicates) == (5, 0)
    with admin(stage.servers, timeout_s=30) as client:
        client.delete_groups([stage.topic])
    stage.produce(["last"])
    assert stage.run(1).stored == 1
    stage.complete()


@pytest.mark.slow
def test_a_sink_can_start_at_the_end_but_reads_partitions_that_are_added_later_from_their_beginning(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(["old"])
    opening = TransactionalProducer(ExactlyOnce(stage.topic), stage.servers)
    with opening as producer, stage.sink(starting_offsets="latest") as sink:
        with producer.transaction() as transaction:
            transaction.send(stage.topic, b"{}", headers=[("id", b"open")])
            transaction.flush()
            sink.run(stop=lambda: stage.offsets() == {0: 1}, idle_s=20)
        stage.produce(["new"])
        sink.run(stop=stage.done(sink, 2), idle_s=20)
        with admin(stage.servers, timeout_s=30) as client:
            client.create_partitions({stage.topic: 2})
        stage.partitions = 2
        stage.renew()
        stage.produce(["added"], 1)
    with stage.sink(starting_offsets="latest") as sink:
        sink.run(stop=stage.done(sink, 1), idle_s=20)
    assert stage.paid() == {"open": 1, "new": 1, "added": 1}


def test_a_new_partition_whose_first_records_are_gone_stops_the_start_with_their_range(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(["old"])
    stage.run(1)
    topics = Topics(stage.servers)
    topics.add_partition(stage.topic, [b"{}"] * 3)
    with admin(stage.servers, timeout_s=30) as client:
        client.delete_records({stage.place(1): 2})
    with stage.sink() as sink, pytest.raises(RunStopped, match=rf"offsets 0 to 1 of {stage.topic}\[1\]") as stopped:
        sink.run(idle_s=20)
    assert stopped.value.code == "SINK_RECORDS_EXPIRED"


def test_deleted_records_that_were_not_read_stop_the_start_with_their_range(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(numbered(0, 5))
    stage.run(5)
    stage.produce(numbered(5, 20))
    delete_records(stage, 12)
    with stage.sink() as sink, pytest.raises(RunStopped, match=rf"offsets 5 to 11 of {stage.topic}\[0\]") as stopped:
        sink.run(idle_s=20)
    assert stopped.value.code == "SINK_RECORDS_EXPIRED"
    stage.execute(stopped.value.remedy.split("`")[1])
    assert stage.run(8).stored == 8, "the remedy accepts the gap"


@pytest.mark.slow
def test_records_that_are_deleted_during_the_run_stop_it_with_their_range(scene: MakeScene) -> None:
    stage = scene()
    with stage.sink() as sink:
        for first in range(0, 100, 20):  # a fetch that is under way may still get the records; then once more
            stage.produce(numbered(first, first + 5))
            sink.run(stop=stage.done(sink, first + 5), idle_s=20)
            stage.produce(numbered(first + 5, first + 10))
            stage.produce(numbered(first + 10, first + 20))
            delete_records(stage, first + 12)
            try:
                sink.run(idle_s=3)
            except RunStopped as stopped:
                assert stopped.code == "SINK_RECORDS_EXPIRED"
                assert re.search(rf"offsets {stage.offsets()[0]} to {first + 11} of {stage.topic}\[0\]", stopped.found)
                break
            stage.complete()
        else:
            pytest.fail("the records were never missed")


@pytest.mark.slow
@pytest.mark.parametrize("running", [False, True])
def test_a_recreated_topic_is_refused_and_after_the_remedy_its_events_are_read_without_doubles(scene: MakeScene, running: bool) -> None:
    stage = scene()
    stage.produce(numbered(0, 5))
    with stage.sink() as sink:
        sink.run(stop=stage.done(sink, 5), idle_s=20)
        if running:
            recreate(stage)
            with pytest.raises(RunStopped) as stopped:
                sink.run(idle_s=60)
    if not running:
        recreate(stage)
        with stage.sink() as sink, pytest.raises(RunStopped) as stopped:
            sink.run(idle_s=20)
        assert stage.offsets() == {0: 5} and len(stage.paid()) == 5, "no record of the new topic is stored"
    assert stopped.value.code == "SINK_TOPIC_RECREATED"
    stage.execute(stopped.value.remedy.split("`")[1])
    counts = stage.run(10)
    assert counts.stored + counts.duplicates == 10
    assert stage.paid() == dict.fromkeys(numbered(0, 12), 1)


def delete_records(stage: SinkScene, before: int) -> None:
    with admin(stage.servers, timeout_s=30) as client:
        client.delete_records({stage.place(): before})


def recreate(stage: SinkScene) -> None:
    """Delete the topic and create it again, longer than before, with seven events that are not stored yet."""
    Topics(stage.servers).recreate(stage.topic)
    stage.renew()
    stage.produce(numbered(2, 12))
