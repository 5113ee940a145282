"""The consumer: what is committed when, through crashes, rebalances, poison and pauses."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka import TopicPartition

from ingest.kafka import (
    AtLeastOnce,
    AtMostOnce,
    Consumer,
    DeadLetter,
    Deduplicate,
    DeliveryFailed,
    ExactlyOnce,
    GuaranteeBroken,
    PoisonRecord,
    SeenIds,
    StoreFailed,
)
from ingest.kafka.member import Rebalance
from tests.kafka.topics import Topics, until

QUICK: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300}


class Crash(BaseException):
    """Ends a run as a kill would: nothing of the consumer handles it."""


@pytest.fixture
def full(topics: Topics, topic: Callable[..., str]) -> Callable[..., str]:
    """`full(count, partitions=1)` makes a topic that holds 0, 1, 2, …"""

    def make(count: int, partitions: int = 1) -> str:
        name = topic(partitions)
        topics.write(name, [b"%d" % number for number in range(count)], lambda number: b"%d" % number)
        return name

    return make


def _worked_until_crash(consumer: Consumer, at: bytes) -> list[bytes]:
    """Work until `at` comes; then neither commit nor leave in order."""
    worked: list[bytes] = []

    def work(record: Any) -> None:
        if record.value == at:
            consumer._done.offsets.clear()  # a killed process commits nothing on its way out
            raise Crash
        worked.append(record.value)

    with pytest.raises(Crash):
        consumer.run(work)
    return worked


def _rest(mode: AtMostOnce | AtLeastOnce, name: str, topics: Topics) -> list[bytes]:
    worked: list[bytes] = []
    with Consumer(mode, [name], name, topics.servers, **QUICK) as consumer:
        consumer.run(lambda record: worked.append(record.value), idle_s=3)
    return worked


def test_at_least_once_commits_after_the_work_so_a_crash_repeats(topics: Topics, full: Callable[..., str]) -> None:
    name = full(30)
    with Consumer(AtLeastOnce(), [name], name, topics.servers, commit_records=10, **QUICK) as consumer:
        assert _worked_until_crash(consumer, b"25") == [b"%d" % number for number in range(25)]
    assert topics.committed(name, name) == {0: 20}
    assert _rest(AtLeastOnce(), name, topics) == [b"%d" % number for number in range(20, 30)], "20 to 24 come twice, none is lost"


def test_at_most_once_commits_before_the_work_so_a_crash_loses(topics: Topics, full: Callable[..., str]) -> None:
    name = full(30)
    with Consumer(AtMostOnce(), [name], name, topics.servers, commit_records=10, **QUICK) as consumer:
        assert _worked_until_crash(consumer, b"25") == [b"%d" % number for number in range(25)]
    assert topics.committed(name, name) == {0: 30}
    assert _rest(AtMostOnce(), name, topics) == [], "25 to 29 are lost, none comes twice"


def test_exactly_once_is_no_property_of_a_consumer_alone() -> None:
    with pytest.raises(GuaranteeBroken, match="transform"):
        Consumer(ExactlyOnce("x"), ["t"], "g", "127.0.0.1:1")


def test_stopping_commits_what_is_done_and_nothing_else(topics: Topics, full: Callable[..., str]) -> None:
    name, worked = full(30), []
    with Consumer(AtLeastOnce(), [name], name, topics.servers, **QUICK) as consumer:
        consumer.run(lambda record: worked.append(record.value), stop=lambda: len(worked) == 12)
        assert topics.committed(name, name) == {0: 12}
        consumer.run(lambda record: worked.append(record.value), stop=lambda: len(worked) == 30)
    assert worked == [b"%d" % number for number in range(30)], "a second run goes on where the first one stopped"


def test_poison_ends_a_run_before_it_and_comes_again(topics: Topics, full: Callable[..., str]) -> None:
    name = full(10)

    def work(record: Any) -> None:
        if record.value == b"4":
            raise ValueError("no number I like")

    with Consumer(AtLeastOnce(), [name], name, topics.servers, **QUICK) as consumer:
        for _ in range(2):
            with pytest.raises(PoisonRecord, match=r"\[0\]@4 .*no number I like") as poison:
                consumer.run(work)
            assert (poison.value.code, poison.value.exit_code, poison.value.offset) == ("POISON_RECORD", 5, 4)
            assert topics.committed(name, name) == {0: 4}


def test_poison_goes_to_the_dead_letter_topic_after_its_attempts(
    topics: Topics, full: Callable[..., str], topic: Callable[..., str]
) -> None:
    name, letters, tries = full(10), topic(), Counter[bytes]()

    def work(record: Any) -> None:
        tries[record.value] += 1
        if record.value == b"4" or (record.value == b"5" and tries[b"5"] < 3):
            raise ValueError("bad")

    with Consumer(AtLeastOnce(), [name], name, topics.servers, dead_letter=DeadLetter(letters, attempts=3), **QUICK) as consumer:
        done = consumer.run(work, stop=lambda: consumer.counts.worked == 9)
    assert (done.worked, done.dead, tries[b"4"], tries[b"5"], tries[b"9"]) == (9, 1, 3, 3, 1)
    (letter,) = topics.read(letters)
    headers = dict(letter.headers)
    assert (letter.value, letter.key) == (b"4", b"4")
    assert (headers["dead.topic"], headers["dead.partition"], headers["dead.offset"]) == (name.encode(), b"0", b"4")
    assert (headers["dead.error"], headers["dead.detail"]) == (b"ValueError", b"bad")
    assert topics.committed(name, name) == {0: 10}


def test_a_record_whose_dead_letter_is_refused_is_not_committed_and_comes_again_also_in_a_second_run(
    topics: Topics, topic: Callable[..., str]
) -> None:
    name, letters = topic(), topic(max_message_bytes="500")
    topics.write(name, [b"0", b"1", os.urandom(2_000), b"3"])
    worked: list[bytes] = []

    def work(record: Any) -> None:
        worked.append(record.value[:1])
        if len(record.value) > 500 and len(worked) <= 8:
            raise ValueError("bad")

    with Consumer(AtLeastOnce(), [name], name, topics.servers, dead_letter=DeadLetter(letters), commit_ms=100, **QUICK) as consumer:
        for again in (1, 2):
            with pytest.raises(DeliveryFailed, match="MessageSizeTooLarge") as failed:
                consumer.run(work, idle_s=10)
            assert (failed.value.code, failed.value.exit_code) == ("DELIVERY_FAILED", 5)
            assert topics.committed(name, name) == {0: 0} and len(worked) == 4 * again
        consumer.run(work, stop=lambda: len(worked) == 12)
    assert worked[:4] == worked[4:8] == worked[8:]
    assert topics.committed(name, name) == {0: 4}


def test_a_record_without_key_and_value_and_with_an_empty_header_can_be_put_away(topics: Topics, topic: Callable[..., str]) -> None:
    """Other clients write such records; kafka-python refuses to send them."""
    name, letters = topic(), topic()
    other = confluent_kafka.Producer({"bootstrap.servers": topics.servers})
    other.produce(name, headers=[("why", None)])
    assert other.flush(20) == 0

    def work(record: Any) -> None:
        raise ValueError("nothing to work on")

    with Consumer(AtLeastOnce(), [name], name, topics.servers, dead_letter=DeadLetter(letters), **QUICK) as consumer:
        consumer.run(work, stop=lambda: consumer.counts.dead == 1)
    (letter,) = topics.read(letters)
    assert (letter.key, letter.value, dict(letter.headers)["why"]) == (None, b"", b"")
    assert topics.committed(name, name) == {0: 1}


def test_a_paused_partition_rests_and_goes_on_where_it_was(topics: Topics, full: Callable[..., str]) -> None:
    name, worked = full(600, 2), []
    with Consumer(AtLeastOnce(), [name], name, topics.servers, **QUICK) as consumer:

        def work(record: Any) -> None:
            worked.append((record.partition, int(record.value)))
            if len(worked) == 1:
                consumer.pause(name, 1 - record.partition)

        consumer.run(work, idle_s=2)
        first = worked[0][0]
        assert {partition for partition, _ in worked[consumer._commit_records :]} <= {first}
        paused = [number for partition, number in worked if partition != first]
        consumer.resume(name, 1 - first)
        consumer.run(work, stop=lambda: len(worked) == 600)
        paused = [number for partition, number in worked if partition != first]
    assert paused == sorted(paused) and len(set(worked)) == len(worked) == 600


@pytest.mark.parametrize(
    ("rebalance", "waiting"),
    [
        ("eager", "taken"),
        ("cooperative", "buffered"),
        pytest.param("cooperative", "taken", marks=pytest.mark.slow),
        pytest.param("eager", "buffered", marks=pytest.mark.slow),
    ],
)
def test_a_rebalance_in_the_middle_loses_nothing_and_repeats_nothing_that_was_done(
    topics: Topics, full: Callable[..., str], rebalance: Rebalance, waiting: str
) -> None:
    """All that leaves in order is finished or abandoned: the offsets of what was done are committed before its partition goes.

    It meets records that were taken to be worked on one after the other, or that still wait in the buffer.
    """
    name, lock, worked = full(3_000, 4), threading.Lock(), Counter[bytes]()
    stop = threading.Event()

    def work(record: Any) -> None:
        with lock:
            worked[record.value] += 1
        time.sleep(0.001)

    def member(until_count: int | None) -> None:
        # `taken`: nothing is due by count or time, only the rebalances and the end commit.
        quiet: dict[str, Any] = {"commit_records": 100_000 if waiting == "taken" else 70, "commit_ms": 600_000, "max_poll_records": 3_000}
        with Consumer(AtLeastOnce(), [name], name, topics.servers, rebalance=rebalance, **quiet, **QUICK) as consumer:
            consumer.run(work, stop=lambda: stop.is_set() or (until_count is not None and consumer.counts.worked >= until_count))

    threads = [threading.Thread(target=member, args=(count,), daemon=True) for count in (None, 400, None)]
    try:
        for thread, wanted in zip(threads, (300, 900, 0), strict=True):
            thread.start()
            until(lambda: sum(worked.values()) >= wanted, "work is under way")  # noqa: B023
        until(lambda: len(worked) == 3_000, "every record was worked on")
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert sum(topics.committed(name, name).values()) == 3_000
    assert set(worked.values()) == {1}, f"{sum(worked.values()) - 3_000} came twice"


def test_slow_work_does_not_hold_a_rebalance_up(topics: Topics, full: Callable[..., str]) -> None:
    name, stop, other = full(200, 2), threading.Event(), threading.Event()

    def slow() -> None:
        with Consumer(AtLeastOnce(), [name], name, topics.servers, **QUICK) as consumer:
            consumer.run(lambda record: time.sleep(0.3), stop=stop.is_set)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        with Consumer(AtLeastOnce(), [name], name, topics.servers, **QUICK) as consumer:
            began = time.monotonic()
            consumer.run(lambda record: other.set(), stop=other.is_set)
            assert time.monotonic() - began < 15, "200 records of 0.3 s would have been a minute"
    finally:
        stop.set()
        thread.join(20)


def test_a_static_member_that_restarts_gets_its_partitions_back_at_once(topics: Topics, full: Callable[..., str]) -> None:
    name = full(10, 2)
    options: dict[str, Any] = {"instance": "billing-0", "session_timeout_ms": 30_000}
    generations = []
    for _ in range(2):
        worked = itertools.count()
        with Consumer(AtLeastOnce(), [name], name, topics.servers, **options) as consumer:
            consumer.run(lambda record: next(worked), idle_s=2)  # noqa: B023
            assert consumer.assignment == {TopicPartition(name, 0), TopicPartition(name, 1)}
            generations.append(consumer._member.group.generation_id)
    assert generations[0] == generations[1], "no rebalance"


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[SeenIds]:
    with SeenIds(tmp_path / "seen") as made:
        yield made


def test_copies_are_passed_over_also_after_a_crash_between_work_and_commit(
    topics: Topics, topic: Callable[..., str], seen: SeenIds
) -> None:
    name = topic()
    topics.write(name, [b"a", b"b", b"a", b"c", b"b", b"end"])
    copies = Deduplicate(seen, lambda record: record.value.decode())
    with Consumer(AtLeastOnce(), [name], name, topics.servers, deduplicate=copies, **QUICK) as consumer:
        assert _worked_until_crash(consumer, b"end") == [b"a", b"b", b"c"]
    assert topics.committed(name, name) == {0: 0}
    worked: list[bytes] = []
    with Consumer(AtLeastOnce(), [name], name, topics.servers, deduplicate=copies, **QUICK) as consumer:
        done = consumer.run(lambda record: worked.append(record.value), stop=lambda: b"end" in worked)
    assert worked == [b"end"] and done.duplicates == 5


def test_a_store_of_ids_that_is_locked_ends_the_run_and_makes_no_record_poison(
    topics: Topics, full: Callable[..., str], topic: Callable[..., str], seen: SeenIds, tmp_path: Path
) -> None:
    name, letters = full(5), topic()
    seen.connection.execute("PRAGMA busy_timeout = 50")
    copies = Deduplicate(seen, lambda record: record.value.decode())
    worked: list[bytes] = []
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "seen", isolation_level=None)) as other,
        Consumer(AtLeastOnce(), [name], name, topics.servers, deduplicate=copies, dead_letter=DeadLetter(letters), **QUICK) as consumer,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed, match=r"SEEN_STORE.*locked") as failed:
            consumer.run(lambda record: worked.append(record.value), idle_s=10)
        assert failed.value.exit_code == 5 and worked == []
        other.execute("ROLLBACK")
        consumer.run(lambda record: worked.append(record.value), stop=lambda: len(worked) == 5)
    assert worked == [b"%d" % number for number in range(5)] and topics.values(letters) == []
