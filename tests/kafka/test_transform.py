"""A transform in this process: grouping, poison, state, refused settings, and failed transactions."""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition

from ingest.delivery.kafka import DeadLetter, ExactlyOnce, Outgoing, PoisonRecord, State, Transform, Transformed, transform
from ingest.delivery.kafka.state import States
from ingest.kafka.kafka_options import KafkaOptions
from ingest.lab.broker.broker_probe import admin
from ingest.lab.proxy import Api, Proxy
from ingest.runtime.errors import InvalidInput, RunStopped
from tests.kafka.topics import Topics, until

Run = Callable[..., Transformed]


@pytest.fixture
def run(topics: Topics) -> Run:
    """`run(source, function, sinks, count)` runs until `count` records are processed, or none has arrived for three seconds."""

    def made(source: str, function: Any, sinks: list[str], count: int, *, servers: str = topics.servers, **more: Any) -> Transformed:
        with Transform(source, function, sinks, ExactlyOnce(f"t-{source}"), source, servers, **more) as instance:
            return instance.run(stop=lambda: instance.counts.records >= count, idle_s=3)

    return made


@pytest.fixture
def source(topics: Topics, begun: Callable[..., str]) -> str:
    name = begun(2)
    topics.write(name, [b"%d" % number for number in range(100)], lambda number: b"key-%d" % (number % 5))
    return name


def test_records_are_grouped_into_few_transactions(run: Run, topics: Topics, source: str, topic: Callable[..., str]) -> None:
    sink = topic(2)
    done = run(source, lambda record: [Outgoing(sink, record.value, record.key)] * 2, [sink], 100, records=40)
    assert (done.records, done.dead, done.repeated) == (100, 0, 0) and 3 <= done.transactions <= 6
    found = topics.read(sink)
    assert len(found) == 200
    for key in {record.key for record in found}:
        numbers = [int(record.value) for record in found if record.key == key]
        assert numbers == sorted(numbers) and len(numbers) == 40


def test_slow_work_is_split_so_that_no_transaction_comes_near_its_timeout(topics: Topics, source: str, topic: Callable[..., str]) -> None:
    sink = topic(2)

    def slow(record: Any) -> Iterator[Outgoing]:
        time.sleep(0.03)
        yield Outgoing(sink, record.value, record.key)

    with Transform(source, slow, sink, ExactlyOnce(f"t-{source}", 1_000), source, topics.servers) as instance:
        done = instance.run(stop=lambda: instance.counts.records == 100)
    assert done.transactions >= 4 and done.repeated == 0, "three seconds of work, at most half a second each"
    found = topics.read(sink)
    for partition in (0, 1):
        numbers = [int(record.value) for record in found if record.partition == partition]
        assert numbers == sorted(numbers), "returned records are processed next"
    assert sorted(int(record.value) for record in found) == list(range(100))


def test_a_record_may_have_no_output_and_counts_as_done(run: Run, topics: Topics, source: str, topic: Callable[..., str]) -> None:
    sink = topic()
    assert run(source, lambda record: [], [sink], 100).records == 100
    until(lambda: sum(topics.committed(source, source).values()) == 100, "the offsets are committed", 5)
    assert topics.values(sink) == []


def test_a_dead_letter_is_in_the_same_transaction(run: Run, topics: Topics, source: str, topic: Callable[..., str]) -> None:
    sink, letters, tries = topic(), topic(), []

    def function(record: Any) -> Iterator[Outgoing]:
        yield Outgoing(sink, record.value)
        if record.value == b"7":
            tries.append(record)
            raise ValueError("seven")

    done = run(source, function, [sink], 100, dead_letter=DeadLetter(letters, attempts=2))
    assert (done.dead, len(tries)) == (1, 2)
    assert sorted(map(int, topics.values(sink))) == [number for number in range(100) if number != 7], "no half output of a failed record"
    (letter,) = topics.read(letters)
    assert letter.value == b"7" and dict(letter.headers)["dead.error"] == b"ValueError"


@pytest.mark.parametrize(("key", "value", "why"), [(None, b"x" * 1_100_000, "MessageSizeTooLarge"), (None, None, "key or value")])
def test_output_that_cannot_be_sent_stops_the_run_and_names_its_input_record(
    run: Run, topics: Topics, source: str, topic: Callable[..., str], key: bytes | None, value: bytes | None, why: str
) -> None:
    """Neither are there five attempts and the advice to retry, nor a dead letter beside half of the record's output."""
    sink, letters = topic(), topic()

    def function(record: Any) -> Iterator[Outgoing]:
        yield Outgoing(sink, record.value)
        if record.value == b"7":
            yield Outgoing(sink, value, key)

    with pytest.raises(PoisonRecord, match=rf"{source}\[\d\]@\d+ cannot be sent .*{why}"):
        run(source, function, [sink], 100, records=1000, dead_letter=DeadLetter(letters))
    assert topics.values(sink) == topics.values(letters) == []


def test_poison_without_a_dead_letter_topic_stops_the_run_and_the_next_run_skips_no_record(
    topics: Topics, source: str, topic: Callable[..., str]
) -> None:
    sink, bad = topic(), True

    def function(record: Any) -> Iterator[Outgoing]:
        if record.value == b"7" and bad:
            raise ValueError("seven")
        yield Outgoing(sink, record.value)

    with Transform(source, function, [sink], ExactlyOnce(f"t-{source}"), source, topics.servers, records=1000) as instance:
        with pytest.raises(PoisonRecord, match="seven") as poison:
            instance.run(idle_s=10)
        assert (poison.value.code, poison.value.exit_code, topics.values(sink)) == ("POISON_RECORD", 5, [])
        bad = False
        instance.run(stop=lambda: instance.counts.records >= 100, idle_s=5)
    assert sorted(map(int, topics.values(sink))) == list(range(100))


@pytest.mark.parametrize(
    ("api", "lost"),
    [
        (Api.END_TXN, "reply"),
        *(
            pytest.param(api, lost, marks=pytest.mark.slow)
            for api, lost in itertools.product((Api.END_TXN, Api.TXN_OFFSET_COMMIT, Api.PRODUCE), ("reply", "request"))
            if (api, lost) != (Api.END_TXN, "reply")
        ),
    ],
)
def test_a_failed_or_unanswered_transaction_is_repeated_with_exact_results(
    run: Run, topics: Topics, source: str, topic: Callable[..., str], proxy: Proxy, api: Api, lost: str
) -> None:
    sink, changelog = topic(), topic(2, cleanup_policy="compact")
    # Longer than the producer waits, so that it abandons the transaction.
    fault = proxy.drop_reply(api) if lost == "reply" else proxy.cut_request(api, times=1_000)
    quick = {"request_timeout_ms": 700, "delivery_timeout_ms": 1_000, "commit_within_s": 1.5}
    threading.Timer(4, fault.release).start()

    def function(record: Any, state: State) -> Iterator[Outgoing]:
        state[record.key] = b"%d" % (int(state.get(record.key) or b"0") + 1)
        yield Outgoing(sink, json.dumps([record.value.decode(), int(state[record.key])]).encode())

    done = run(source, function, [sink], 100, servers=proxy.bootstrap_servers, changelog=changelog, records=30, producer_options=quick)
    assert fault.struck >= 1 and (done.repeated >= 1 or fault.struck < 5)
    found = [json.loads(value) for value in topics.values(sink)]
    assert sorted(int(number) for number, _ in found) == list(range(100))
    assert sorted(count for _, count in found) == sorted(list(range(1, 21)) * 5), "the state counted each input once"


def test_a_transform_survives_brokers_that_are_down_for_some_seconds(
    topics: Topics, source: str, topic: Callable[..., str], proxy: Proxy
) -> None:
    sink = topic(2)
    quick = {"request_timeout_ms": 500, "delivery_timeout_ms": 700, "bootstrap_timeout_ms": 500, "max_block_ms": 500, "commit_within_s": 1}
    mode = ExactlyOnce(f"t-{source}")
    with Transform(
        source,
        lambda record: [Outgoing(sink, record.value, record.key)],
        sink,
        mode,
        source,
        proxy.bootstrap_servers,
        producer_options=quick,
    ) as instance:
        instance.run(stop=lambda: instance.counts.records >= 100)
        topics.write(source, [b"%d" % number for number in range(100, 200)], lambda number: b"key-%d" % (number % 5))
        returning: list[threading.Timer] = []

        def on_step(step: str) -> None:  # during a transaction
            if step == "begun" and not returning:
                proxy.refuse()
                returning.append(threading.Timer(4, proxy.restore))
                returning[0].start()

        instance._on_step = on_step
        instance.run(stop=lambda: instance.counts.records >= 200)
    assert instance.counts.repeated >= 1
    assert sorted(int(value) for value in topics.values(sink)) == list(range(200))


def test_state_is_restored_and_deleted_keys_stay_deleted(
    run: Run, topics: Topics, topic: Callable[..., str], begun: Callable[..., str]
) -> None:
    source, sink, changelog = begun(2), topic(), topic(2, cleanup_policy="compact")

    def function(record: Any, state: State) -> Iterator[Outgoing]:
        yield Outgoing(sink, b"%s was %s" % (record.key, state.get(record.key) or b"unknown"))
        if record.value == b"forget":
            del state[record.key]
        else:
            state[record.key] = record.value

    topics.write(source, [b"1", b"2", b"3", b"forget"], lambda number: b"ann" if number in (1, 3) else b"bob")
    run(source, function, [sink], 4, changelog=changelog)
    topics.write(source, [b"5", b"6"], lambda number: (b"ann", b"bob")[number])
    run(source, function, [sink], 2, changelog=changelog)
    assert sorted(topics.values(sink)) == sorted(
        [b"bob was unknown", b"bob was 1", b"ann was unknown", b"ann was 2", b"ann was unknown", b"bob was 3"]
    )


def opened(topics: Topics, changelog: str, value: bytes) -> KafkaProducer:
    """A producer with an open transaction that contains this value in partition 0."""
    producer = KafkaProducer(bootstrap_servers=topics.servers, transactional_id=f"s-{uuid.uuid4().hex}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(changelog, value, key=b"k", partition=0)
    producer.flush()
    return producer


def test_a_restore_waits_for_an_open_transaction_and_reads_the_commits_after_it(topics: Topics, topic: Callable[..., str]) -> None:
    """A dead owner's transaction is still open, and its successor has committed after it. A third owner must wait for both."""
    changelog = topic(1, cleanup_policy="compact")
    dead, heir = (opened(topics, changelog, value) for value in (b"of the dead", b"of the heir"))
    heir.commit_transaction()
    found: list[bytes] = []
    states = States(KafkaOptions(topics.servers), changelog)
    restoring = threading.Thread(target=lambda: found.append(states[0][b"k"]))
    restoring.start()
    restoring.join(2)
    assert restoring.is_alive() and not found, "the restore waits for the open transaction"
    dead.abort_transaction()
    restoring.join(20)
    assert found == [b"of the heir"]
    dead.close()
    heir.close()


def test_a_changelog_that_is_blocked_for_too_long_stops_the_run(
    topics: Topics, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.delivery.kafka.state._RESTORE_STALL_S", 0.5)
    changelog = topic(1, cleanup_policy="compact")
    holder = opened(topics, changelog, b"open")
    with pytest.raises(RunStopped, match=r"\[0\] has been at offset 0 of 1") as stopped:
        States(KafkaOptions(topics.servers), changelog)[0]
    assert (stopped.value.code, stopped.value.exit_code) == ("STATE_NOT_RESTORED", 5)
    holder.abort_transaction()
    holder.close()


def test_a_changelog_whose_records_are_deleted_while_they_are_read_stops_the_run(
    topics: Topics, topic: Callable[..., str], proxy: Proxy
) -> None:
    """kafka-python's default reset would go to the end, and the state would be empty."""
    changelog = topic(1, cleanup_policy="compact,delete")
    topics.write(changelog, [b"%d" % number for number in range(10)], lambda number: b"key-%d" % number)
    cut = proxy.cut_request(Api.FETCH, times=1_000)
    with ThreadPoolExecutor(1) as pool:
        restoring = pool.submit(lambda: States(KafkaOptions(proxy.bootstrap_servers), changelog)[0])
        until(lambda: cut.struck > 0, "the first record is requested")
        with admin(topics.servers, timeout_s=20) as client:
            client.delete_records({TopicPartition(changelog, 0): 5})
        cut.release()
        with pytest.raises(RunStopped, match="deleted while they were read") as stopped:
            restoring.result(30)
    assert stopped.value.code == "STATE_NOT_RESTORED"


def test_invalid_settings_are_refused_at_the_start(topics: Topics, source: str, topic: Callable[..., str]) -> None:
    sink, log = topic(), topic(3)

    def start(sources: Any, **more: Any) -> None:
        quick = {"max_block_ms": 1_000}
        transform(sources, lambda record, state=None: [], [sink], ExactlyOnce("r"), "r", topics.servers, producer_options=quick, **more)

    with pytest.raises(InvalidInput, match=r"CHANGELOG_PARTITIONS.*3 partitions and .* has 2"):
        start(source, changelog=log)
    with pytest.raises(InvalidInput, match=r"CHANGELOG_NOT_COMPACTED.*cleanup.policy=delete"):
        start(source, changelog=topic(2))
    with pytest.raises(InvalidInput, match=r"CHANGELOG_NOT_COMPACTED.*cleanup.policy=compact,delete"):
        start(source, changelog=topic(2, cleanup_policy="compact,delete"))
    with pytest.raises(InvalidInput, match="GROUP_SIZE"):
        start(source, records=0)
    with pytest.raises(InvalidInput, match="STATE_OF_SEVERAL"):
        start([source, sink], changelog=log)
    with pytest.raises(InvalidInput, match="TOPIC_UNKNOWN"):
        start(source, dead_letter=DeadLetter("no-such-topic"))


def test_a_source_with_more_partitions_than_its_changelog_stops_the_run(
    topics: Topics, topic: Callable[..., str], begun: Callable[..., str]
) -> None:
    source, sink, changelog = begun(1), topic(), topic(1, cleanup_policy="compact")
    mode = ExactlyOnce(f"t-{source}")
    soon: dict[str, Any] = {"consumer_options": {"metadata_max_age_ms": 500}}
    with Transform(source, lambda record, state: [], sink, mode, source, topics.servers, changelog=changelog, **soon) as instance:
        instance.run(idle_s=0.5)
        topics.add_partition(source, [b"1"])
        with pytest.raises(InvalidInput, match=r"CHANGELOG_PARTITIONS.*has 1 partitions and .* has 2"):
            instance.run(stop=lambda: instance.counts.records > 0, idle_s=30)
    assert topics.committed(source, source) == {0: 0, 1: 0}


def test_added_partitions_are_read_although_the_group_replies_late(
    topics: Topics, topic: Callable[..., str], begun: Callable[..., str], proxy: Proxy
) -> None:
    """kafka-python 3.0.12 forgets the rebalance if a poll ends before the leader has the broker's reply to its assignment."""
    source, sink = begun(1), topic()
    late = proxy.delay_reply(Api.SYNC_GROUP, 2.5, skip=1)
    mode, soon = ExactlyOnce(f"t-{source}"), {"metadata_max_age_ms": 500}

    def echo(record: Any) -> Iterator[Outgoing]:
        yield Outgoing(sink, record.value)

    with Transform(source, echo, sink, mode, source, proxy.bootstrap_servers, consumer_options=soon) as instance:
        instance.run(idle_s=0.5)
        topics.add_partition(source, [b"1"])
        instance.run(stop=lambda: instance.counts.records > 0, idle_s=20)
    assert late.struck == 1
    assert topics.values(sink) == [b"1"] and topics.committed(source, source) == {0: 0, 1: 1}


def test_output_to_an_undeclared_sink_is_refused_and_nothing_is_sent(
    run: Run, topics: Topics, source: str, topic: Callable[..., str]
) -> None:
    sink, other = topic(), topic()
    with pytest.raises(InvalidInput, match="SINK_UNKNOWN"):
        run(source, lambda record: [Outgoing(sink, b"a"), Outgoing(other, b"b")], [sink], 100, dead_letter=None)
    assert topics.values(other) == topics.values(sink) == []
