"""A group member whose positions come from elsewhere: what it hands out, and from where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition

from ingest.delivery.kafka import AtLeastOnce
from ingest.delivery.kafka.buffer import Buffer
from ingest.delivery.kafka.member import Member
from ingest.kafka.kafka_options import KafkaOptions
from ingest.lab.broker.broker_probe import admin
from ingest.lab.broker.embedded_broker import Broker
from tests.database.sink_scene import QUICK
from tests.polling import until


@pytest.fixture
def place(broker: Broker, topic: Callable[..., str]) -> TopicPartition:
    """A partition with the offsets 3 to 9; those before were deleted."""
    name = topic()
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number)
    found = TopicPartition(name, 0)
    with admin(broker.bootstrap_servers, timeout_s=30) as client:
        client.delete_records({found: 3})
    return found


@pytest.fixture
def member(broker: Broker, place: TopicPartition) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(positions: Any) -> Member:
        # One record per poll: the client holds fetched records back, also when the partition is forgotten.
        options = AtLeastOnce().consumer_options(place.topic, max_poll_records=1, **QUICK)
        made.append(Member(KafkaOptions(broker.bootstrap_servers), [place.topic], options, buffer=Buffer(), positions=positions))
        return made[-1]

    yield make
    for each in made:
        each.close()


def read(member: Member, count: int) -> list[int]:
    """The offsets of the next records."""
    found: list[int] = []

    def enough() -> bool:
        found.extend(record.offset for record in member.gather(1, 0, lambda: False))
        return len(found) == count

    until(enough, "the next records", 30)
    return found


def test_nothing_is_fetched_before_the_position_is_known(place: TopicPartition, member: Callable[..., Member]) -> None:
    asked: list[set[TopicPartition]] = []

    def positions(places: set[TopicPartition]) -> dict[TopicPartition, int]:
        asked.append(places)
        return {place: 6} if len(asked) > 5 else {}

    reader = member(positions)
    assert read(reader, 4) == [6, 7, 8, 9]
    assert asked == [{place}] * 6, "until it is known, and no longer"


def test_a_forgotten_partition_is_read_again_from_a_new_position(place: TopicPartition, member: Callable[..., Member]) -> None:
    at = 6
    reader = member(lambda places: dict.fromkeys(places, at))
    assert read(reader, 1) == [6]
    at = 4
    reader.forget(place)
    assert read(reader, 6) == [4, 5, 6, 7, 8, 9]
