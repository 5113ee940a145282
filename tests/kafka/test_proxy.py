"""The proxy: a fault hits the kind of request that it is aimed at, and everything else goes through."""

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
    """Write `a`. The leader of a new topic needs a moment before it takes records, and this producer tries nothing again by itself."""

    def taken() -> bool:
        try:
            return bool(producer.send(name, b"a", partition=0).get(10).offset == 0)
        except (NotLeaderForPartitionError, UnknownTopicOrPartitionError):
            return False

    until(taken, "the topic has a leader", 10)


def test_clients_stay_behind_the_proxy(proxy: Proxy, topics: Topics, topic: Callable[..., str], producer: Any) -> None:
    name = topic(2)
    first(producer, name)
    port = int(proxy.bootstrap_servers.rpartition(":")[2])
    assert {broker.port for broker in producer._metadata.brokers()} == {port}
    assert Topics(proxy.bootstrap_servers).values(name) == [b"a"]


def test_a_reply_that_is_cut_comes_after_the_broker_wrote(proxy: Proxy, topics: Topics, topic: Callable[..., str], producer: Any) -> None:
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


def test_a_reply_that_is_dropped_times_out_and_one_that_is_late_comes(
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


def test_a_broker_that_is_gone_comes_back(proxy: Proxy, topic: Callable[..., str], producer: Any) -> None:
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


def test_waiting_for_what_never_comes_has_an_end(proxy: Proxy) -> None:
    with pytest.raises(TimeoutError, match="END_TXN"):
        proxy.cut_reply(Api.END_TXN).wait(0.01)
