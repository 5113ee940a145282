"""The proxy: a fault hits only the kind of request that it targets; everything else passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError, NotLeaderForPartitionError, UnknownTopicOrPartitionError

from ingest.lab.proxy import Api, Proxy
from tests.kafka.topics import Topics, until


@pytest.fixture
def producer(proxy: Proxy) -> Any:
    made = KafkaProducer(
        bootstrap_servers=proxy.bootstrap_servers, acks="all", enable_idempotence=False, retries=0, request_timeout_ms=1_500
    )
    yield made
    made._sender.force_close()


def first(producer: Any, name: str) -> None:
    """Write `a`. The leader of a new topic needs a moment before it accepts records, and this producer does not retry."""

    def accepted() -> bool:
        try:
            return bool(producer.send(name, b"a", partition=0).get(10).offset == 0)
        except (NotLeaderForPartitionError, UnknownTopicOrPartitionError):
            return False

    until(accepted, "the topic has a leader", 10)


def test_clients_see_only_the_proxys_address(proxy: Proxy, topics: Topics, topic: Callable[..., str], producer: Any) -> None:
    name = topic(2)
    first(producer, name)
    port = int(proxy.bootstrap_servers.rpartition(":")[2])
    assert {broker.port for broker in producer._metadata.brokers()} == {port}
    assert Topics(proxy.bootstrap_servers).values(name) == [b"a"]


def test_a_reply_is_cut_after_the_broker_has_written_the_record(
    proxy: Proxy, topics: Topics, topic: Callable[..., str], producer: Any
) -> None:
    name = topic()
    first(producer, name)
    lost = proxy.cut_reply(Api.PRODUCE)
    with pytest.raises(KafkaError):
        producer.send(name, b"b").get(10)
    assert lost.struck == 1 and topics.values(name) == [b"a", b"b"]
    assert producer.send(name, b"c").get(10)


def test_a_request_that_is_cut_never_reaches_the_broker(proxy: Proxy, topics: Topics, topic: Callable[..., str], producer: Any) -> None:
    name = topic()
    first(producer, name)
    proxy.cut_request(Api.PRODUCE)
    with pytest.raises(KafkaError):
        producer.send(name, b"b").get(10)
    assert topics.values(name) == [b"a"]


def test_a_dropped_reply_times_out_and_a_delayed_one_arrives(
    proxy: Proxy, topics: Topics, topic: Callable[..., str], producer: Any
) -> None:
    name = topic()
    first(producer, name)
    late = proxy.delay_reply(Api.PRODUCE, 0.5, skip=1)
    assert producer.send(name, b"b").get(10).offset == 1
    began = time.monotonic()
    assert producer.send(name, b"c").get(10).offset == 2
    assert time.monotonic() - began >= 0.5 and late.struck == 1
    proxy.drop_reply(Api.PRODUCE)
    with pytest.raises(KafkaError, match="imed"):
        producer.send(name, b"d").get(10)
    assert topics.values(name) == [b"a", b"b", b"c", b"d"]


def test_a_held_reply_waits_until_it_is_released(proxy: Proxy, topics: Topics, topic: Callable[..., str], producer: Any) -> None:
    name = topic()
    first(producer, name)
    held = proxy.hold_reply(Api.PRODUCE)
    sent = producer.send(name, b"b")
    held.wait(10)
    assert topics.values(name) == [b"a", b"b"] and not sent.is_done
    held.release()
    assert sent.get(10).offset == 1


def test_a_producer_reconnects_after_the_proxy_refused_connections(proxy: Proxy, topic: Callable[..., str], producer: Any) -> None:
    name = topic()
    first(producer, name)
    proxy.refuse()
    with pytest.raises(KafkaError):
        producer.send(name, b"b").get(10)
    proxy.restore()

    def works() -> bool:
        try:
            return bool(producer.send(name, b"c").get(5))
        except KafkaError:
            return False

    until(works, "the producer reaches the broker again")


def test_waiting_for_a_fault_that_never_happens_times_out(proxy: Proxy) -> None:
    with pytest.raises(TimeoutError, match="END_TXN"):
        proxy.cut_reply(Api.END_TXN).wait(0.01)
