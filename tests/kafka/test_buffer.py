"""The input buffer of fetched records: it is bounded in records and bytes, and no partition starves another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from ingest.delivery.kafka import AtLeastOnce, Consumer, ExactlyOnce, Outgoing, Transform
from ingest.delivery.kafka.buffer import RECORDS_MAX, Buffer
from ingest.delivery.kafka.member import Member
from tests.kafka.topics import QUICK, Topics

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
SIZE, COUNT = 100_000, 100


def record(place: TopicPartition, offset: int, size: int = 10) -> Any:
    return SimpleNamespace(topic=place.topic, partition=place.partition, offset=offset, key=None, value=b"x" * size, headers=[])


@pytest.mark.unit
def test_a_partition_is_full_at_its_share_of_the_bytes_until_half_of_it_is_processed() -> None:
    buffer = Buffer(200)
    buffer.add(HERE, [record(HERE, offset) for offset in range(11)])
    assert buffer.is_full(HERE, 2, was_full=False) and not buffer.is_full(HERE, 1, was_full=False), "110 bytes of a share of 100 or 200"
    assert not buffer.is_full(THERE, 2, was_full=True), "another partition has its own share"
    assert [each.offset for each in buffer.take(6, ())] == list(range(6))
    assert buffer.is_full(HERE, 2, was_full=True), "records that are being processed still use memory"
    buffer.worked()
    assert not buffer.is_full(HERE, 2, was_full=True)


@pytest.mark.unit
def test_the_buffer_counts_the_bytes_of_keys_values_and_headers() -> None:
    buffer, one = Buffer(100), record(HERE, 0, 40)
    one.key, one.headers = b"k" * 30, [("h" * 10, b"v" * 20), ("", None)]
    buffer.add(HERE, [one])
    assert not buffer.is_full(HERE, 1, was_full=False)
    buffer.add(HERE, [record(HERE, 1, 1)])
    assert buffer.is_full(HERE, 1, was_full=False)


@pytest.mark.unit
def test_small_records_are_bounded_by_their_number() -> None:
    buffer = Buffer()
    buffer.add(HERE, [record(HERE, offset, 0) for offset in range(RECORDS_MAX + 1)])
    assert buffer.is_full(HERE, 1, was_full=False)


@pytest.mark.unit
def test_records_that_are_given_back_come_next_and_are_counted_once() -> None:
    buffer = Buffer(100)
    buffer.add(HERE, [record(HERE, offset) for offset in range(10)])
    buffer.give_back(buffer.take(10, ())[4:])
    assert not buffer.is_full(HERE, 1, was_full=False), "100 bytes"
    buffer.worked()
    assert not buffer.is_full(HERE, 1, was_full=False) and buffer.is_full(HERE, 1, was_full=True), "60 bytes"
    buffer.add(HERE, [record(HERE, offset) for offset in range(10, 15)])
    assert buffer.is_full(HERE, 1, was_full=False)
    assert [each.offset for each in buffer.take(100, ())] == list(range(4, 15))


@pytest.mark.unit
def test_the_longest_queue_is_first_and_a_paused_one_gives_nothing() -> None:
    buffer = Buffer()
    buffer.add(HERE, [record(HERE, 0)])
    buffer.add(THERE, [record(THERE, offset) for offset in range(3)])
    assert (buffer.count(()), buffer.count({THERE})) == (4, 1)
    assert [each.partition for each in buffer.take(3, {THERE})] == [0]
    assert [each.partition for each in buffer.take(3, ())] == [1, 1, 1]


@pytest.mark.unit
@pytest.mark.parametrize("forget", [lambda buffer: buffer.drop(HERE), lambda buffer: buffer.clear()])
def test_dropped_records_use_no_space(forget: Callable[[Buffer], None]) -> None:
    buffer = Buffer(10)
    buffer.add(HERE, [record(HERE, offset) for offset in range(4)])
    buffer.take(2, ())
    forget(buffer)
    assert buffer.count(()) == 0 and not buffer.is_full(HERE, 1, was_full=True)


@pytest.fixture
def large(topics: Topics, begun: Callable[..., str]) -> str:
    """100 records of 100 KB in one partition."""
    name = begun()
    topics.write(name, [b"%09d" % number + bytes(SIZE - 9) for number in range(COUNT)])
    return name


def ahead_of(member: Member, one: Any) -> int:
    """Bytes that were fetched and not yet processed, according to the client and not to the buffer."""
    position: int = member._consumer.position(TopicPartition(one.topic, one.partition))
    offset: int = one.offset
    return (position - offset) * SIZE


def test_slow_work_on_large_records_does_not_fill_the_memory(topics: Topics, large: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two records the consumer polls, so that it stays a group member. Each poll fetches more records."""
    monkeypatch.setattr("ingest.delivery.kafka.consumer._KEEP_ALIVE_S", 0.01)
    ahead, worked = [], []

    def work(one: Any) -> None:
        time.sleep(0.02)
        worked.append(int(one.value[:9]))
        ahead.append(ahead_of(consumer._member, one))

    small: dict[str, Any] = {"input_buffer_max_bytes": 1_000_000, "max_partition_fetch_bytes": 500_000}
    with Consumer(AtLeastOnce(), [large], large, topics.servers, **small, **QUICK) as consumer:
        consumer.run(work, stop=lambda: len(worked) == COUNT, idle_s=10)
    assert worked == list(range(COUNT))
    assert max(ahead) <= 2_000_000, f"{max(ahead):,} bytes"


def test_a_transaction_takes_no_more_records_than_fit_into_the_buffer(topics: Topics, topic: Callable[..., str], large: str) -> None:
    """A thousand records of a megabyte would be a gigabyte. The transaction commits early and does not wait for more records."""
    sink, ahead = topic(), []

    def function(one: Any) -> Iterator[Outgoing]:
        ahead.append(ahead_of(instance._member, one))
        yield Outgoing(sink, one.value[:9])

    few: dict[str, Any] = {"input_buffer_max_bytes": 1_000_000, "time_ms": 600_000}
    options = {"max_partition_fetch_bytes": 500_000, **QUICK}
    with Transform(large, function, sink, ExactlyOnce(f"t-{large}"), large, topics.servers, **few, consumer_options=options) as instance:
        began = time.monotonic()
        instance.run(stop=lambda: instance.counts.records >= COUNT - 10 or time.monotonic() - began > 30)
        assert instance.counts.transactions >= 5
    assert max(ahead) <= 2_000_000, f"{max(ahead):,} bytes"
    assert topics.values(sink) == [b"%09d" % number for number in range(instance.counts.records)]
