"""The API over TLS with a password: all of it works, a wrong password is reported as such, and the password appears nowhere."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import ACLOperation, ResourceType

from ingest.delivery.kafka import (
    AtLeastOnce,
    Consumer,
    DeliveryFailed,
    ExactlyOnce,
    Outgoing,
    Producer,
    TransactionalProducer,
    begin_group,
    transform,
)
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.fetch import TopicReader
from ingest.kafka.open_transactions import listed
from ingest.runtime.errors import InvalidEnvironment
from tests.kafka.topics import Topics
from tests.secured import CANARY, MECHANISM, READING, USER, WRITING, WRONG, Door, Secure, holding

REFUSED_WITHIN_S = 15.0


@pytest.fixture
def name(door: Door) -> str:
    """A source and a sink `<name>-out` that the user may read and write, and a group and a transactional id with the source's name."""
    made = f"secured-{uuid.uuid4().hex[:8]}"
    for topic in (made, f"{made}-out"):
        door.broker.create_topic(topic)
        door.access.allow(USER, topic, (*READING, WRITING[-1]))
    door.access.allow(USER, made, kind=ResourceType.GROUP)
    door.access.allow(USER, made, WRITING, kind=ResourceType.TRANSACTIONAL_ID)
    return made


def options(door: Door, password: str = CANARY, **changes: str) -> KafkaOptions:
    return KafkaOptions.from_environment(door.secure.bootstrap_servers, door.login(password, **changes))


def test_producers_consumer_and_transform_work_over_tls_and_leave_no_password(
    door: Door, name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    kafka, out, worked = options(door), f"{name}-out", []
    with caplog.at_level(logging.DEBUG, "kafka"):
        with Producer(AtLeastOnce(), kafka) as producer:
            producer.send(name, b"1")
        with TransactionalProducer(ExactlyOnce(name), kafka) as transactional, transactional.transaction() as transaction:
            transaction.send(name, b"2")
        begin_group(name, name, kafka)
        begin_group(name, out, kafka)
        done = transform(name, lambda record: [Outgoing(out, record.value)], [out], ExactlyOnce(name), name, kafka, idle_s=2)
        with Consumer(AtLeastOnce(), [out], name, kafka) as consumer:
            consumer.run(lambda record: worked.append(record.value), stop=lambda: len(worked) == 2)
    assert done.records == 2 and worked == [b"1", b"2"]
    assert Topics(door.broker.bootstrap_servers).values(out) == [b"1", b"2"]
    printed = capfd.readouterr()
    assert name in caplog.text, "the client's own log was captured"
    for text in (caplog.text, printed.out, printed.err, repr(kafka), repr(producer.__dict__), repr(transactional.__dict__)):
        assert CANARY not in text
    assert holding(CANARY, door.broker.folder) == [] and holding(USER, door.broker.folder)


START: dict[str, Callable[[KafkaOptions], Any]] = {
    "producer": lambda kafka: Producer(AtLeastOnce(), kafka),
    "transactional producer": lambda kafka: TransactionalProducer(ExactlyOnce("x"), kafka),
    "consumer": lambda kafka: Consumer(AtLeastOnce(), ["t"], "g", kafka),
    "transform": lambda kafka: transform("t", lambda record: [], ["u"], ExactlyOnce("x"), "g", kafka),
}


@pytest.mark.parametrize("what", START)
def test_a_wrong_password_is_reported_at_once_with_the_user_and_without_the_password(
    door: Door, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    with caplog.at_level(logging.INFO, "kafka"), pytest.raises(InvalidEnvironment, match="KAFKA_AUTHENTICATION") as refused:
        try:
            START[what](options(door, WRONG))
        finally:
            assert logging.getLogger("kafka").level == logging.INFO, "the service's log level is unchanged"
    assert time.monotonic() - began < REFUSED_WITHIN_S
    assert repr(USER) in str(refused.value) and MECHANISM in str(refused.value)
    assert WRONG not in str(refused.value) and WRONG not in caplog.text


def test_a_certificate_from_an_unknown_authority_is_refused(door: Door, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Secure(tmp_path_factory.mktemp("other"))
    with pytest.raises(InvalidEnvironment, match="KAFKA_CERTIFICATE"):
        Producer(AtLeastOnce(), options(door, INGEST_KAFKA_SSL_TRUSTSTORE_LOCATION=str(other.authority)))


def test_partitions_that_the_user_may_not_read_are_reported_as_such(door: Door, name: str) -> None:
    """Describe lets a user query offsets and transactions. Records, and the producers of a partition, need Read."""
    topic, kafka = f"described-{uuid.uuid4().hex[:8]}", options(door)
    door.broker.create_topic(topic)
    door.access.allow(USER, topic, (ACLOperation.DESCRIBE, ACLOperation.WRITE))
    with TransactionalProducer(ExactlyOnce(name), kafka) as producer, producer.transaction() as transaction:
        transaction.send(topic, b"1")
        transaction.send(f"{name}-out", b"1")
        transaction.flush()
        (row,) = (each for each in listed(kafka) if each.transactional_id == name)
        assert [(each.topic, each.records) for each in row.held] == [(f"{name}-out", 1)]
        assert row.untold == (TopicPartition(topic, 0),)
    with TopicReader(kafka, topic) as reader, pytest.raises(InvalidEnvironment, match=topic) as refused:
        reader.fetch(0, 0, committed=True)
    assert (refused.value.code, refused.value.exit_code) == ("BROKER_REFUSED", 4)


def test_a_topic_without_write_permission_is_reported_and_not_retried_for_long(door: Door) -> None:
    topic = f"forbidden-{uuid.uuid4().hex[:8]}"
    door.broker.create_topic(topic)
    door.access.allow(USER, topic)
    with pytest.raises(DeliveryFailed, match="TopicAuthorizationFailed"), Producer(AtLeastOnce(), options(door)) as producer:
        producer.send(topic, b"1")
    assert Topics(door.broker.bootstrap_servers).values(topic) == []
