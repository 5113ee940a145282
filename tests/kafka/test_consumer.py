"""The consumer: what is committed when, through crashes, rebalances, poison and pauses."""

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

from ingest.kafka.delivery import (
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
from ingest.kafka.delivery.member import Rebalance
from ingest.lab.proxy import Api, Proxy, ProxyFault
from tests.kafka.topics import QUICK, Topics, until


class Crash(BaseException):
    """Ends a run as a kill would: nothing of the consumer handles it."""


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
    with Consumer(mode, name, name, topics.servers, **QUICK) as consumer:
        consumer.run(lambda record: worked.append(record.value), idle_s=3)
    return worked


def test_at_least_once_commits_after_the_work_so_a_crash_repeats(topics: Topics, full: Callable[..., str]) -> None:
    name = full(30)
    by_count: dict[str, Any] = {"commit_records": 10, "commit_ms": 600_000}
    with Consumer(AtLeastOnce(), [name], name, topics.servers, **by_count, **QUICK) as consumer:
        assert _worked_until_crash(consumer, b"25") == [b"%d" % number for number in range(25)]
    assert topics.committed(name, name) == {0: 20}
    assert _rest(AtLeastOnce(), name, topics) == [b"%d" % number for number in range(20, 30)], "20 to 24 come twice, none is lost"


def test_at_most_once_commits_before_the_work_so_a_crash_loses(topics: Topics, full: Callable[..., str]) -> None:
    name = full(30)
    with Consumer(AtMostOnce(), [name], name, topics.servers, commit_records=10, **QUICK) as consumer:
        assert _worked_until_crash(consumer, b"25") == [b"%d" % number for number in range(25)]
    assert topics.committed(name, name) == {0: 30}
    assert _rest(AtMostOnce(), name, topics) == [], "25 to 29 are lost, none comes twice"


def test_at_most_once_does_not_try_work_again_before_it_puts_a_record_away() -> None:
    with pytest.raises(GuaranteeBroken, match=r"dead_letter\.attempts=2.*done twice"):
        Consumer(AtMostOnce(), ["t"], "g", "127.0.0.1:1", dead_letter=DeadLetter("dead", attempts=2))


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


def test_when_committed_offsets_cannot_be_asked_for_a_second_run_passes_nothing_over(
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
        with monkeypatch.context() as patch, pytest.raises(KafkaError):
            patch.setattr("ingest.kafka.delivery.member._COMMITTED_WITHIN_S", 0.5)
            consumer.run(work)
        faults[0].release()
        consumer.run(work, stop=lambda: len(worked) >= 10, idle_s=20)
    assert worked == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("commit_records", [70, 500])
def test_a_paused_partition_rests_at_once_and_goes_on_where_it_was(topics: Topics, full: Callable[..., str], commit_records: int) -> None:
    """Its records may have been taken to be worked on, or wait in the buffer: with 70 there are more than one batch takes."""
    name, worked = full(600, 2), []
    with Consumer(AtLeastOnce(), [name], name, topics.servers, commit_records=commit_records, **QUICK) as consumer:

        def work(record: Any) -> None:
            worked.append((record.partition, int(record.value)))
            if len(worked) == 1:
                consumer.pause(name, 1 - record.partition)

        began = time.monotonic()
        consumer.run(work, stop=lambda: time.monotonic() - began > 30, idle_s=2)
        assert time.monotonic() - began < 25, "a partition that rests is no reason to wait on"
        first, number = worked[0][0], len(worked)
        assert {partition for partition, _ in worked} == {first}
        assert topics.committed(name, name) == {first: number, 1 - first: 0}
        consumer.resume(name, 1 - first)
        consumer.run(work, stop=lambda: len(worked) == 600)
    paused = [value for partition, value in worked if partition != first]
    assert paused == sorted(paused) and len(set(worked)) == len(worked) == 600 and len(paused) == 600 - number


def test_what_at_most_once_could_not_commit_is_not_worked_on_and_comes_again(
    topics: Topics, full: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit is refused while the group deals its partitions anew, and the partition may be ours after it."""
    name, worked, refused = full(30), list[bytes](), list[int]()
    with Consumer(AtMostOnce(), [name], name, topics.servers, commit_records=10, **QUICK) as consumer:
        coordinator = consumer._member._consumer._coordinator
        rebalancing = coordinator.generation_if_stable

        def once() -> Any:  # what the client itself goes by; its commit then fails without asking the broker
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
