"""What idempotence does, and where it ends: at the session, at the partition, at the application that sends twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kafka import KafkaProducer

from ingest.contract import event_id
from ingest.kafka.delivery import AtLeastOnce, Consumed, Consumer, Deduplicate, Producer, SeenIds
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.fetch import TopicReader
from ingest.kafka.log.log_reader import stretches
from ingest.lab.proxy import Api, Proxy
from tests.kafka.topics import Topics, until


def _in_doubt(proxy: Proxy, name: str, topics: Topics, value: bytes, *, idempotent: bool) -> None:
    """A producer whose record is written and whose reply is lost, and which is gone before it can try again."""
    options: dict[str, Any] = AtLeastOnce(idempotent).producer_options(retries=1_000_000)
    dead = KafkaProducer(bootstrap_servers=proxy.bootstrap_servers, **options)
    proxy.hold_reply(Api.PRODUCE)
    dead.send(name, value)
    until(lambda: topics.values(name) == [value], "the record is written")
    dead._sender.force_close()


def _written_by(topics: Topics, name: str) -> list[int]:
    """The producer id of each batch, as the broker keeps it."""
    with TopicReader(KafkaOptions(topics.servers), name) as reader:
        found = stretches(reader, 0, 0, reader.bounds(0).high_watermark)
        return [stretch.batch.producer_id for stretch in found if stretch.batch is not None]


def test_a_lost_reply_does_not_double_what_an_idempotent_producer_tries_again(
    proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    for idempotent, found in ((True, [b"a", b"b"]), (False, [b"a", b"b", b"b"])):
        name = topic()
        with Producer(AtLeastOnce(idempotent), proxy.bootstrap_servers) as producer:
            producer.send(name, b"a")
            producer.flush()
            proxy.cut_reply(Api.PRODUCE)
            producer.send(name, b"b")
        assert topics.values(name) == found


def test_a_restarted_producer_is_another_one_to_the_broker_and_doubles(proxy: Proxy, topics: Topics, topic: Callable[..., str]) -> None:
    name = topic()
    _in_doubt(proxy, name, topics, b"order 1", idempotent=True)
    with Producer(AtLeastOnce(), topics.servers) as restarted:
        restarted.send(name, b"order 1")
    assert topics.values(name) == [b"order 1"] * 2
    first, second = _written_by(topics, name)
    assert first >= 0 <= second != first, "a new producer id: the broker cannot know the record again"


def test_the_guarantee_is_per_partition(topics: Topics, topic: Callable[..., str]) -> None:
    name = topic(2)
    with Producer(AtLeastOnce(), topics.servers) as producer:
        for partition in (0, 1):
            producer.send(name, b"order 1", partition=partition)
    assert topics.values(name) == [b"order 1"] * 2, "sequence numbers are counted for each partition by itself"


def test_an_application_that_sends_twice_doubles_and_only_the_event_id_tells(
    topics: Topics, topic: Callable[..., str], tmp_path: Any
) -> None:
    name = topic()
    event = json.dumps({"event_id": event_id.mint(), "amount": 5}).encode()
    with Producer(AtLeastOnce(), topics.servers) as producer:
        for _ in range(2):  # a time-out of the caller's own, say, after which it tries again
            producer.send(name, event)
            producer.flush()
    assert topics.values(name) == [event] * 2
    booked: list[bytes] = []
    with SeenIds(tmp_path / "seen") as seen:
        copies = Deduplicate(seen, lambda record: json.loads(record.value)["event_id"])
        with Consumer(AtLeastOnce(), [name], name, topics.servers, deduplicate=copies) as consumer:
            done = consumer.run(lambda record: booked.append(record.value), stop=lambda: consumer.counts.duplicates == 1)
    assert booked == [event] and done == Consumed(worked=1, duplicates=1)
