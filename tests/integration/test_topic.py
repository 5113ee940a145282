"""Requests to a real broker before a run, and again after Spark has lost the connection. Each has a deadline."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from ingest.contract.parts import TopicSource
from ingest.kafka import broker_request, kafka_errors
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import Topic, describe, diagnose, still_the_same
from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime.errors import InvalidEnvironment, InvalidInput, RunStopped

pytestmark = pytest.mark.integration


@pytest.fixture
def closed_port() -> str:
    """The address of a port on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def source(topic: str) -> TopicSource:
    return TopicSource(topic=topic, format="raw")


def test_the_first_broker_that_answers_describes_a_topic_with_id_and_partitions(
    broker: Broker, topic: Callable[..., str], closed_port: str
) -> None:
    name = topic(partitions=3)
    found = describe(KafkaOptions(f"{closed_port}, {broker.bootstrap_servers}"), name)
    assert (found.name, found.partitions, len(found.id)) == (name, (0, 1, 2), 22)


@pytest.mark.parametrize("name", ["no-such-topic", "no/name"])
def test_a_missing_topic_is_refused_by_name(broker: Broker, name: str) -> None:
    with pytest.raises(InvalidEnvironment, match="TOPIC_UNKNOWN") as refused:
        describe(KafkaOptions(broker.bootstrap_servers), name)
    assert repr(name) in refused.value.found


def test_a_broker_that_accepts_but_never_answers_times_out() -> None:
    for options in ({}, {"security.protocol": "SSL"}):
        with socket.create_server(("127.0.0.1", 0)) as mute:
            started = time.monotonic()
            with pytest.raises(InvalidEnvironment, match="BROKER_UNREACHABLE"):
                describe(KafkaOptions(f"127.0.0.1:{mute.getsockname()[1]}", options), "orders", 1.0)
            assert time.monotonic() - started < 5


def test_tls_with_a_plain_listener_is_reported(broker: Broker) -> None:
    with pytest.raises(InvalidEnvironment, match="KAFKA_CERTIFICATE") as refused:
        describe(KafkaOptions(broker.bootstrap_servers, {"security.protocol": "SSL"}), "orders")
    assert "no TLS with" in refused.value.found


@pytest.mark.parametrize("servers", ["localhost", "a:1,b", "a:port", ""])
def test_brokers_without_host_and_port_are_refused(servers: str) -> None:
    with pytest.raises(InvalidInput, match="BOOTSTRAP_SERVERS_INVALID"):
        broker_request.ask(KafkaOptions(servers), None, 1.0)


def test_after_a_timeout_in_spark_the_broker_is_asked_for_the_cause(broker: Broker, topic: Callable[..., str], closed_port: str) -> None:
    """Spark's clients wait for a deleted topic until they time out."""
    kafka = KafkaOptions(broker.bootstrap_servers)
    seen = kafka_errors.unreachable(broker.bootstrap_servers, "Spark's attempts timed out")
    assert diagnose(kafka, source("deleted"), seen).code == "TOPIC_UNKNOWN"
    assert diagnose(kafka, source(topic()), seen) == seen
    assert "ECONNREFUSED" in diagnose(KafkaOptions(closed_port), source("orders"), seen).found
    named = kafka_errors.forbidden(kafka, "the topic 'deleted'")
    assert diagnose(kafka, source("deleted"), named) == named


def test_a_broker_that_has_just_restarted_is_asked_again(
    broker: Broker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no topics yet, and the remedy for a missing topic would be wrong."""
    kafka, name = KafkaOptions(broker.bootstrap_servers), topic()
    timed_out, unknown = (
        kafka_errors.unreachable(broker.bootstrap_servers, "Spark's attempts timed out"),
        kafka_errors.topic_unknown(kafka, name),
    )
    for seen, patience_s in ((timed_out, 5.0), (timed_out, 0.0), (unknown, 0.0)):  # a single request may use up this time
        monkeypatch.setattr("ingest.kafka.topic.SETTLED_WITHIN_S", patience_s)
        answers = [name, "not yet"]
        monkeypatch.setattr("ingest.kafka.topic.topics_of", lambda kafka, _, answers=answers: (describe(kafka, answers.pop()),))
        found = diagnose(kafka, source(name), seen)
        assert found.code == "BROKER_UNREACHABLE" and not answers
        assert found == seen or "did not know the topic" in found.found


def test_a_topic_recreated_while_it_is_read_is_detected_by_its_id(broker: Broker, topic: Callable[..., str]) -> None:
    """I6"""
    kafka = KafkaOptions(broker.bootstrap_servers)
    read = describe(kafka, topic())
    still_the_same(kafka, [read], "shop.orders")
    with pytest.raises(RunStopped, match="TOPIC_RECREATED") as stopped:
        still_the_same(kafka, [Topic(read.name, "a-former-id", (0,))], "shop.orders")
    assert "a-former-id" in stopped.value.found and read.id in stopped.value.found and stopped.value.exit_code == 5
    still_the_same(kafka, [Topic("no-such-topic", "", (0,))], "shop.orders")  # without a topic id, the broker is not asked


def test_checking_the_topic_again_waits_for_a_broker_that_is_gone(closed_port: str, broker: Broker) -> None:
    for servers, name, code in ((closed_port, "orders", "BROKER_UNREACHABLE"), (broker.bootstrap_servers, "deleted", "TOPIC_UNKNOWN")):
        began = time.monotonic()
        with pytest.raises(RunStopped, match=code):
            still_the_same(KafkaOptions(servers), [Topic(name, "its-id", (0,))], "shop.orders", within_s=1.2)
        assert time.monotonic() - began > 1.2
