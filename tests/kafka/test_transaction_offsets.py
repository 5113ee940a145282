"""Input offsets in a transaction: committed with it or not at all, and only by the group member that read the input."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from kafka import ConsumerGroupMetadata, KafkaConsumer, KafkaProducer, OffsetAndMetadata

from ingest.delivery.kafka import GroupMovedOn
from tests.kafka.topics import Make, Topics, until


@pytest.fixture
def reader(topics: Topics, topic: Callable[..., str]) -> Iterator[KafkaConsumer]:
    name = topic(2)
    topics.write(name, [b"1", b"2", b"3", b"4"], lambda number: b"%d" % number)
    options = {"group_id": name, "auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
    with KafkaConsumer(name, bootstrap_servers=topics.servers, **options) as made:
        # Asks for the partitions repeatedly, as Member does: the client sometimes loses a metadata request.
        until(lambda: made.partitions_for_topic(name) and made.poll(200), "the group is joined")
        yield made


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    make: Make, topics: Topics, topic: Callable[..., str], reader: KafkaConsumer
) -> None:
    sink, producer = topic(), make()
    place = min(reader.assignment())
    with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
        transaction.send_offsets({place: 2}, reader.group_metadata())
        raise ZeroDivisionError
    assert topics.committed(place.topic, place.topic) == {0: 0, 1: 0}
    with producer.transaction() as transaction:
        transaction.send(sink, b"out")
        transaction.send_offsets({place: 3}, reader.group_metadata())
    until(lambda: topics.committed(place.topic, place.topic) == {0: 3, 1: 0}, "the offset is committed", 5)


def test_offsets_of_several_calls_are_all_committed(make: Make, topics: Topics, topic: Callable[..., str], reader: KafkaConsumer) -> None:
    sink, producer = topic(), make()
    first, second = sorted(reader.assignment())
    with producer.transaction() as transaction:
        transaction.send(sink, b"out")
        transaction.send_offsets({first: 1, second: 1}, reader.group_metadata())
        transaction.send_offsets({second: 2}, reader.group_metadata())
    until(lambda: topics.committed(first.topic, first.topic) == {0: 1, 1: 2}, "both are committed", 5)


def test_a_member_of_an_older_generation_is_refused_permanently(
    make: Make, topics: Topics, topic: Callable[..., str], reader: KafkaConsumer
) -> None:
    """kafka-python 3.0.12 keeps refused offsets and resends them in the next transaction."""
    sink, producer = topic(), make()
    first, second = sorted(reader.assignment())
    now = reader.group_metadata()
    with pytest.raises(GroupMovedOn, match="CommitFailed"), producer.transaction() as transaction:
        transaction.send(sink, b"of a zombie")
        transaction.send_offsets({first: 1}, now._replace(generation_id=now.generation_id - 1))
    with producer.transaction() as transaction:
        transaction.send(sink, b"later")
        transaction.send_offsets({second: 1}, now)
    until(lambda: topics.values(sink) == [b"later"], "the later one is committed", 5)
    assert topics.committed(first.topic, first.topic) == {0: 0, 1: 1}


def test_offsets_without_a_membership_are_not_sent_because_the_broker_would_accept_them(
    make: Make, topics: Topics, reader: KafkaConsumer
) -> None:
    place = min(reader.assignment())
    forgotten = ConsumerGroupMetadata(group_id=place.topic)
    raw = KafkaProducer(bootstrap_servers=topics.servers, transactional_id=f"raw-{uuid.uuid4().hex}")
    raw.init_transactions()
    raw.begin_transaction()
    raw.send_offsets_to_transaction({place: OffsetAndMetadata(1, "", -1)}, forgotten)
    raw.commit_transaction()
    raw.close()
    until(
        lambda: topics.committed(place.topic, place.topic) == {0: 1, 1: 0}, "the offset is committed, although others own the partition", 5
    )
    with pytest.raises(GroupMovedOn, match="no longer a member"), make().transaction() as transaction:
        transaction.send_offsets({place: 3}, forgotten)
