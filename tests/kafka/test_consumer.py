"""The consumer: which offsets it commits and when, through crashes, rebalances, poison and pauses."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError

from ingest.delivery.kafka import (
    AtLeastOnce,
    AtMostOnce,
    Consumer,
    DeadLetter,
    Deduplicate,
    ExactlyOnce,
    GuaranteeBroken,
    PoisonRecord,
    SeenIds,
)
from ingest.delivery.kafka.member import Rebalance
from ingest.lab.proxy import Api, Proxy, ProxyFault
from tests.kafka.topics import QUICK, Topics, until


class Crash(BaseException):
    """Ends a run as a kill would: the consumer does not handle it."""


def _worked_until_crash(consumer: Consumer, at: bytes) -> list[bytes]:
    """Process records until the value `at`, then crash without a commit and without leaving the group."""
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
    with Consumer(mode, name, name, topics.servers, **QUICK) as consumer:
        consumer.run(lambda record: worked.append(record.value), idle_s=3)
    return worked


def test_at_least_once_commits_after_the_work_so_a_crash_repeats(topics: Topics, full: Callable[..., str]) -> None:
    name = full(30)
    by_count: dict[str, Any] = {"commit_records": 10, "commit_ms": 600_000}
    with Consumer(AtLeastOnce(), [name], name, topics.servers, **by_count, **QUICK) as consumer:
        assert _worked_until_crash(consumer, b"25") == [b"%d" % number for number in range(25)]
    assert topics.committed(name, name) == {0: 20}
    assert _rest(AtLeastOnce(), name, topics) == [b"%d" % number for number in range(20, 30)], "20 to 24 are processed twice, none is lost"


def test_at_most_once_commits_before_the_work_so_a_crash_loses(topics: Topics, full: Callable[..., str]) -> None:
    name = full(30)
    with Consumer(AtMostOnce(), [name], name, topics.servers, commit_records=10, **QUICK) as consumer:
        assert _worked_until_crash(consumer, b"25") == [b"%d" % number for number in range(25)]
    assert topics.committed(name, name) == {0: 30}
    assert _rest(AtMostOnce(), name, topics) == [], "25 to 29 are lost, none is processed twice"


def test_at_most_once_refuses_retries_before_the_dead_letter_topic() -> None:
    with pytest.raises(GuaranteeBroken, match=r"dead_letter\.attempts=2.*done twice"):
        Consumer(AtMostOnce(), ["t"], "g", "127.0.0.1:1", dead_letter=DeadLetter("dead", attempts=2))


def test_a_consumer_alone_refuses_exactly_once() -> None:
    with pytest.raises(GuaranteeBroken, match="transform"):
        Consumer(ExactlyOnce("x"), ["t"], "g", "127.0.0.1:1")


def test_a_stop_commits_the_processed_records_and_nothing_else(topics: Topics, full: Callable[..., str]) -> None:
    name, worked = full(30), []
    with Consumer(AtLeastOnce(), [name], name, topics.servers, **QUICK) as consumer:
        consumer.run(lambda record: worked.append(record.value), stop=lambda: len(worked) == 12)
        assert topics.committed(name, name) == {0: 12}
        consumer.run(lambda record: worked.append(record.value), stop=lambda: len(worked) == 30)
    assert worked == [b"%d" % number for number in range(30)], "a second run continues where the first one stopped"


def test_poison_stops_a_run_before_its_offset_and_is_read_again_by_the_next_run(topics: Topics, full: Callable[..., str]) -> None:
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


def test_after_committed_offsets_could_not_be_fetched_a_second_run_skips_nothing(
    topics: Topics, full: Callable[..., str], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, worked = full(10), []
    faults: list[ProxyFault] = []

    def work(record: Any) -> None:
        if record.value == b"4" and not faults:
            faults.append(proxy.cut_reply(Api.OFFSET_FETCH, times=1_000))
            raise ValueError("bad")
        worked.append(record.value)

    with Consumer(AtLeastOnce(), [name], name, proxy.bootstrap_servers, **QUICK) as consumer:
        with pytest.raises(PoisonRecord):
            consumer.run(work)
        with monkeypatch.context() as patch, pytest.raises(KafkaError):
            patch.setattr("ingest.delivery.kafka.group_positions._COMMITTED_WITHIN_S", 0.5)
            consumer.run(work, idle_s=0.1)  # to wait for a position is not idle
        faults[0].release()
        consumer.run(work, stop=lambda: len(worked) >= 10, idle_s=20)
    assert worked == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("commit_records", [70, 500])
def test_a_paused_partition_stops_at_once_and_continues_where_it_was(topics: Topics, full: Callable[..., str], commit_records: int) -> None:
    """Its records may be in the current batch or still in the buffer: with 70, one batch does not take them all."""
    name, worked = full(600, 2), []
    with Consumer(AtLeastOnce(), [name], name, topics.servers, commit_records=commit_records, **QUICK) as consumer:

        def work(record: Any) -> None:
            worked.append((record.partition, int(record.value)))
            if len(worked) == 1:
                consumer.pause(name, 1 - record.partition)

        began = time.monotonic()
        consumer.run(work, stop=lambda: time.monotonic() - began > 30, idle_s=2)
        assert time.monotonic() - began < 25, "a paused partition does not keep the run waiting"
        first, number = worked[0][0], len(worked)
        assert {partition for partition, _ in worked} == {first}
        assert topics.committed(name, name) == {first: number, 1 - first: 0}
        consumer.resume(name, 1 - first)
        consumer.run(work, stop=lambda: len(worked) == 600)
    paused = [value for partition, value in worked if partition != first]
    assert paused == sorted(paused) and len(set(worked)) == len(worked) == 600 and len(paused) == 600 - number


def test_at_most_once_does_not_process_records_that_it_could_not_commit_and_reads_them_again(
    topics: Topics, full: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit is refused during a rebalance, and the consumer may own the partition again afterwards."""
    name, worked, refused = full(30), list[bytes](), list[int]()
    with Consumer(AtMostOnce(), [name], name, topics.servers, commit_records=10, **QUICK) as consumer:
        coordinator = consumer._member._consumer._coordinator
        rebalancing = coordinator.generation_if_stable

        def once() -> Any:  # the client checks this itself; its commit then fails without a request to the broker
            refused.append(len(worked))
            return None if len(refused) == 2 else rebalancing()

        monkeypatch.setattr(coordinator, "generation_if_stable", once)
        consumer.run(lambda record: worked.append(record.value), idle_s=3)
    assert len(refused) > 2 and worked == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize(
    ("rebalance", "waiting"),
    [
        ("eager", "taken"),
        ("cooperative", "buffered"),
        pytest.param("cooperative", "taken", marks=pytest.mark.slow),
        pytest.param("eager", "buffered", marks=pytest.mark.slow),
    ],
)
def test_a_rebalance_during_a_run_loses_nothing_and_repeats_no_processed_record(
    topics: Topics, full: Callable[..., str], rebalance: Rebalance, waiting: str
) -> None:
    """The offsets of processed records are committed before their partition is revoked. Unprocessed records are abandoned.

    The rebalance hits records of the current batch (`taken`) or records that are still in the buffer (`buffered`).
    """
    name, lock, worked = full(3_000, 4), threading.Lock(), Counter[bytes]()
    stop = threading.Event()

    def work(record: Any) -> None:
        with lock:
            worked[record.value] += 1
        time.sleep(0.001)

    def member(until_count: int | None) -> None:
        # `taken`: no commit is due by count or time; only the rebalances and the end of the run commit.
        quiet: dict[str, Any] = {"commit_records": 100_000 if waiting == "taken" else 70, "commit_ms": 600_000, "max_poll_records": 3_000}
        with Consumer(AtLeastOnce(), [name], name, topics.servers, rebalance=rebalance, **quiet, **QUICK) as consumer:
            consumer.run(work, stop=lambda: stop.is_set() or (until_count is not None and consumer.counts.worked >= until_count))

    threads = [threading.Thread(target=member, args=(count,), daemon=True) for count in (None, 400, None)]
    try:
        for thread, wanted in zip(threads, (300, 900, 0), strict=True):
            thread.start()
            until(lambda: sum(worked.values()) >= wanted, "enough records were processed")  # noqa: B023
        until(lambda: len(worked) == 3_000, "every record was processed")
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert sum(topics.committed(name, name).values()) == 3_000
    assert set(worked.values()) == {1}, f"{sum(worked.values()) - 3_000} were processed twice"


def test_slow_work_does_not_delay_a_rebalance(topics: Topics, full: Callable[..., str]) -> None:
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


def test_copies_are_skipped_even_after_a_crash_between_work_and_commit(topics: Topics, begun: Callable[..., str], seen: SeenIds) -> None:
    name = begun()
    topics.write(name, [b"a", b"b", b"a", b"c", b"b", b"end"])
    copies = Deduplicate(seen, lambda record: record.value.decode())
    with Consumer(AtLeastOnce(), [name], name, topics.servers, deduplicate=copies, **QUICK) as consumer:
        assert _worked_until_crash(consumer, b"end") == [b"a", b"b", b"c"]
    assert topics.committed(name, name) == {0: 0}
    worked: list[bytes] = []
    with Consumer(AtLeastOnce(), [name], name, topics.servers, deduplicate=copies, **QUICK) as consumer:
        done = consumer.run(lambda record: worked.append(record.value), stop=lambda: b"end" in worked)
    assert worked == [b"end"] and done.duplicates == 5
