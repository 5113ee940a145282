"""Poison and dead letters: where a record goes when the work on it fails, and when it counts as done."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from ingest.delivery.kafka import AtLeastOnce, Consumer, DeadLetter, Deduplicate, DeliveryFailed, SeenIds, StoreFailed
from tests.kafka.topics import QUICK, Topics, until


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


def test_a_record_whose_dead_letter_is_refused_is_not_committed_and_is_read_again(
    topics: Topics, topic: Callable[..., str], begun: Callable[..., str]
) -> None:
    name, letters = begun(), topic(max_message_bytes="500")
    topics.write(name, [b"0", b"1", os.urandom(2_000), b"3"])
    worked: list[bytes] = []
    exact: dict[str, Any] = {"commit_records": 4, "commit_ms": 600_000}

    def work(record: Any) -> None:
        worked.append(record.value[:1])
        if len(record.value) > 500 and len(worked) <= 8:
            raise ValueError("bad")

    with Consumer(AtLeastOnce(), [name], name, topics.servers, dead_letter=DeadLetter(letters), **exact, **QUICK) as consumer:
        for again in (1, 2):
            with pytest.raises(DeliveryFailed, match="MessageSizeTooLarge") as failed:
                consumer.run(work, idle_s=10)
            assert (failed.value.code, failed.value.exit_code) == ("DELIVERY_FAILED", 5)
            assert topics.committed(name, name) == {0: 0} and len(worked) == 4 * again
        consumer.run(work, stop=lambda: len(worked) == 12)
    assert worked[:4] == worked[4:8] == worked[8:]
    assert topics.committed(name, name) == {0: 4}


def test_a_record_without_key_and_value_and_with_an_empty_header_can_be_a_dead_letter(
    topics: Topics, topic: Callable[..., str], begun: Callable[..., str]
) -> None:
    """Other clients write such records, but kafka-python refuses to send them."""
    name, letters = begun(), topic()
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


def test_work_that_could_not_be_committed_before_its_partition_was_revoked_is_counted(
    topics: Topics, full: Callable[..., str], topic: Callable[..., str]
) -> None:
    """With a dead-letter topic, a rebalance commits nothing, because it cannot wait for the letters to be acknowledged."""
    name, letters, stop = full(20, 2), topic(), threading.Event()
    quiet: dict[str, Any] = {"commit_records": 100_000, "commit_ms": 600_000, "dead_letter": DeadLetter(letters), **QUICK}
    first = Consumer(AtLeastOnce(), [name], name, topics.servers, **quiet)

    def work() -> None:
        with first:
            first.run(lambda record: None, stop=stop.is_set)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until(lambda: first.counts.worked == 20, "all records are processed and not committed")
        with Consumer(AtLeastOnce(), [name], name, topics.servers, **quiet) as second:
            again: list[bytes] = []
            second.run(lambda record: again.append(record.value), stop=lambda: bool(again), idle_s=20)
    finally:
        stop.set()
        thread.join(20)
    assert first.counts.late_commits == 1 and again


def test_a_locked_id_store_stops_the_run_and_turns_no_record_into_poison(
    topics: Topics, full: Callable[..., str], topic: Callable[..., str], tmp_path: Path
) -> None:
    name, letters = full(5), topic()
    seen = SeenIds(tmp_path / "seen")
    seen.connection.execute("PRAGMA busy_timeout = 50")
    copies = Deduplicate(seen, lambda record: record.value.decode())
    worked: list[bytes] = []
    with (
        seen,
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
