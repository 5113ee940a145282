"""The producer without transactions reports the outcome of every record, even if something else fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from ingest.delivery.kafka import AtLeastOnce, Consumer, DeliveryFailed, ExactlyOnce, Producer, TransactionAborted, TransactionalProducer
from ingest.delivery.kafka.delivery_errors import named
from ingest.lab.proxy import Api, Proxy
from ingest.runtime.errors import InvalidInput
from tests.kafka.topics import Topics, until


def test_an_exception_in_the_caller_loses_no_record_that_was_sent_before(topics: Topics, topic: Callable[..., str]) -> None:
    name = topic()
    with pytest.raises(ZeroDivisionError) as raised, Producer(AtLeastOnce(), topics.servers, linger_ms=2_000) as producer:
        producer.send(name, b"1")
        raise ZeroDivisionError
    assert topics.values(name) == [b"1"] and not hasattr(raised.value, "__notes__")


def test_an_exception_in_the_caller_also_reports_how_many_records_are_missing(
    topics: Topics, topic: Callable[..., str], proxy: Proxy
) -> None:
    name = topic()
    short = {"request_timeout_ms": 400, "delivery_timeout_ms": 500}
    with pytest.raises(ZeroDivisionError) as raised, Producer(AtLeastOnce(), proxy.bootstrap_servers, **short) as producer:
        producer.send(name, b"1")
        producer.flush()
        proxy.cut_request(Api.PRODUCE, times=1_000)
        producer.send(name, b"2")
        raise ZeroDivisionError
    assert "1 record(s) were not acknowledged" in raised.value.__notes__[0]
    assert topics.values(name) == [b"1"]


@pytest.mark.parametrize(
    ("option", "message"), [({"request_timeout_ms": 60_000}, "delivery_timeout_ms higher"), ({"compression_type": "nope"}, "codec: nope")]
)
def test_incompatible_producer_options_are_reported_as_the_callers_mistake(topics: Topics, option: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=rf"CLIENT_OPTIONS.*{message}"):
        Producer(AtLeastOnce(), topics.servers, **option)


@pytest.mark.unit
def test_an_error_is_named_once() -> None:
    assert named(KafkaTimeoutError("late")) == "KafkaTimeoutError: late" and named(TimeoutError("late")) == "TimeoutError: late"


@pytest.mark.unit
def test_an_option_that_does_not_exist_is_named_without_its_value() -> None:
    with pytest.raises(InvalidInput, match=r"CLIENT_OPTIONS.*sasl_plain_pasword") as refused:
        Producer(AtLeastOnce(), "127.0.0.1:1", sasl_plain_pasword="hush-hush")
    assert "hush" not in str(refused.value)
    with pytest.raises(InvalidInput, match=r"CLIENT_OPTIONS.*session_timeout"):
        Consumer(AtLeastOnce(), ["t"], "g", "127.0.0.1:1", session_timeout=6_000)


def test_incompatible_consumer_options_are_reported_as_the_callers_mistake(topics: Topics) -> None:
    with pytest.raises(InvalidInput, match=r"CLIENT_OPTIONS.*[Hh]eartbeat"):
        Consumer(AtLeastOnce(), ["t"], "g", topics.servers, session_timeout_ms=1)


def test_a_signal_is_not_delayed_and_reports_how_many_records_are_dropped(topics: Topics, topic: Callable[..., str]) -> None:
    with pytest.raises(KeyboardInterrupt) as raised, Producer(AtLeastOnce(), topics.servers, linger_ms=2_000) as producer:
        name = topic()
        producer.send(name, b"1")
        producer.send(name, b"2")
        raise KeyboardInterrupt
    assert raised.value.__notes__ == ["2 record(s) sent before were not acknowledged and will not be sent any more."]
    assert topics.values(name) == []


def test_a_topic_that_does_not_exist_is_named_by_every_producer(topics: Topics) -> None:
    """kafka-python reports only that it could not update its metadata."""
    quick: dict[str, Any] = {"max_block_ms": 1_000}
    for mode in (AtLeastOnce(), AtLeastOnce(idempotent=False)):
        with (
            pytest.raises(DeliveryFailed, match=r"partitions of topic 'no-such-topic' within 1 s"),
            Producer(mode, topics.servers, **quick) as producer,
        ):
            producer.send("no-such-topic", b"1")
    once = TransactionalProducer(ExactlyOnce("t-no-such-topic"), topics.servers, **quick)
    with (
        once,
        pytest.raises(TransactionAborted, match=r"partitions of topic 'no-such-topic' within 1 s"),
        once.transaction() as transaction,
    ):
        transaction.send("no-such-topic", b"1")


def test_a_failed_flush_counts_only_the_unacknowledged_records(topics: Topics, topic: Callable[..., str], proxy: Proxy) -> None:
    name = topic()
    with Producer(AtLeastOnce(), proxy.bootstrap_servers, flush_within_s=1) as producer:
        delivered = [producer.send(name, b"%d" % number) for number in range(5)]
        until(lambda: all(each.is_done for each in delivered), "five are acknowledged", 10)
        cut = proxy.cut_request(Api.PRODUCE, times=1_000)
        late = [producer.send(name, b"late") for _ in range(2)]
        with pytest.raises(DeliveryFailed, match=r"2 record\(s\) were not acknowledged") as failed:
            producer.flush()
        assert len(failed.value.errors) == 2 and not any(each.is_done for each in late)
        cut.release()
    assert topics.values(name) == [*(b"%d" % number for number in range(5)), b"late", b"late"]
    assert [each.get(timeout=0).offset for each in (*delivered, *late)] == list(range(7))
