"""What an idempotent producer prevents, and its limits: one session, one partition, and no help if the application sends twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kafka import KafkaProducer

from ingest.contract import event_id
from ingest.delivery.kafka import AtLeastOnce, Consumed, Consumer, Deduplicate, Producer, SeenIds
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.fetch import TopicReader
from ingest.kafka.log.log_reader import stretches
from ingest.lab.proxy import Api, Proxy
from tests.kafka.topics import Topics, until


def _in_doubt(proxy: Proxy, name: str, topics: Topics, value: bytes, *, idempotent: bool) -> None:
    """A producer whose record is written and whose reply is lost. It dies before it can retry."""
    options: dict[str, Any] = AtLeastOnce(idempotent).producer_options(retries=1_000_000)
    dead = KafkaProducer(bootstrap_servers=proxy.bootstrap_servers, **options)
    proxy.hold_reply(Api.PRODUCE)
    dead.send(name, value)
    until(lambda: topics.values(name) == [value], "the record is written")
    dead._sender.force_close()


def _written_by(topics: Topics, name: str) -> list[int]:
    """The producer id of each record batch in the log."""
    with TopicReader(KafkaOptions(topics.servers), name) as reader:
        found = stretches(reader, 0, 0, reader.bounds(0).high_watermark)
        return [stretch.batch.producer_id for stretch in found if stretch.batch is not None]


def test_after_a_lost_reply_the_retry_of_an_idempotent_producer_writes_no_duplicate(
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


def test_a_restarted_producer_has_a_new_id_and_writes_a_duplicate(proxy: Proxy, topics: Topics, topic: Callable[..., str]) -> None:
    name = topic()
    _in_doubt(proxy, name, topics, b"order 1", idempotent=True)
    with Producer(AtLeastOnce(), topics.servers) as restarted:
        restarted.send(name, b"order 1")
    assert topics.values(name) == [b"order 1"] * 2
    first, second = _written_by(topics, name)
    assert first >= 0 <= second != first, "with a new producer id, the broker cannot recognise the record"


def test_idempotence_works_only_within_a_partition(topics: Topics, topic: Callable[..., str]) -> None:
    name = topic(2)
    with Producer(AtLeastOnce(), topics.servers) as producer:
        for partition in (0, 1):
            producer.send(name, b"order 1", partition=partition)
    assert topics.values(name) == [b"order 1"] * 2, "each partition has its own sequence numbers"


def test_an_application_that_sends_twice_duplicates_and_only_the_event_id_shows_it(
    topics: Topics, begun: Callable[..., str], tmp_path: Any
) -> None:
    name = begun()
    event = json.dumps({"event_id": event_id.mint(), "amount": 5}).encode()
    with Producer(AtLeastOnce(), topics.servers) as producer:
        for _ in range(2):  # for example, a timeout in the caller, which then retries
            producer.send(name, event)
            producer.flush()
    assert topics.values(name) == [event] * 2
    booked: list[bytes] = []
    with SeenIds(tmp_path / "seen") as seen:
        copies = Deduplicate(seen, lambda record: json.loads(record.value)["event_id"])
        with Consumer(AtLeastOnce(), [name], name, topics.servers, deduplicate=copies) as consumer:
            done = consumer.run(lambda record: booked.append(record.value), stop=lambda: consumer.counts.duplicates == 1)
    assert booked == [event] and done == Consumed(worked=1, duplicates=1)
