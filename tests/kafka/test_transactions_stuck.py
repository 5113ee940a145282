"""A transaction whose markers cannot be written stays PrepareCommit or PrepareAbort, and an expired id disappears.

The broker of this test keeps its data on two disks. The test removes one of them, which contains a partition that two open transactions
have written to. The partition of their coordinator is on the other disk.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import TopicPartition

from ingest.delivery.kafka import ExactlyOnce, Transaction, TransactionalProducer
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.open_transactions import Listed, abort, listed
from ingest.lab.broker import embedded_broker as local_broker
from ingest.lab.broker.broker_config import Listener, server_properties
from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime.errors import InvalidInput, RunStopped
from tests.kafka.topics import Topics, until

EXPIRES_MS = 6_000
COORDINATORS = 4  # transaction.state.log.num.partitions of the embedded broker


@pytest.fixture
def two_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    def on_two(listeners: tuple[Listener, ...], controller_port: int) -> str:
        return server_properties(listeners, controller_port) + "".join(
            f"{key}={value}\n"
            for key, value in {
                "log.dirs": "data,second",
                "metadata.log.dir": "data",
                "replica.high.watermark.checkpoint.interval.ms": 200,  # how soon the broker notices that a disk is gone
                "transactional.id.expiration.ms": EXPIRES_MS,
                "transaction.remove.expired.transaction.cleanup.interval.ms": 300,
            }.items()
        )

    monkeypatch.setattr(local_broker, "server_properties", on_two)
    with Broker(tmp_path / "broker") as running:
        yield running


def coordinator(transactional_id: str) -> int:
    """The partition of __transaction_state that brokers choose: Java's hash of the text."""
    number = 0
    for letter in transactional_id:
        number = (31 * number + ord(letter)) & 0xFFFFFFFF
    return (number & 0x7FFFFFFF) % COORDINATORS


@pytest.mark.slow  # it has its own broker, which is killed and restarted
def test_a_transaction_without_written_markers_is_listed_as_prepared_and_an_expired_id_is_not(
    two_disks: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, first, second, away = two_disks.bootstrap_servers, *(two_disks.folder / name for name in ("data", "second", "away"))
    topics = Topics(servers)
    two_disks.create_topic("t", 4)
    with TransactionalProducer(ExactlyOnce("makes-the-coordinators"), servers):
        pass
    partition = next(number for number in range(4) if (second / f"t-{number}").is_dir())
    names = (f"stuck-{uuid.uuid4().hex[:6]}" for _ in range(1_000))
    on_first = (name for name in names if (first / f"__transaction_state-{coordinator(name)}").is_dir())
    to_commit, to_abort = next(on_first), next(on_first)

    def row(name: str) -> Listed | None:
        return next((each for each in listed(KafkaOptions(servers)) if each.transactional_id == name), None)

    def states() -> tuple[str | None, ...]:
        return tuple(found.state if (found := row(name)) else None for name in (to_commit, to_abort))

    def open_in(transaction: Transaction, value: bytes) -> None:
        transaction.send("t", value, partition=partition)
        transaction.flush()

    one, other = (TransactionalProducer(ExactlyOnce(name, 60_000), servers) for name in (to_commit, to_abort))
    with one, other, pytest.raises(ZeroDivisionError), other.transaction() as aborted:
        open_in(aborted, b"aborted")
        with one.transaction() as committed:
            open_in(committed, b"committed")
            assert states() == ("Ongoing", "Ongoing")
            second.rename(away)
            until(lambda: (found := row(to_commit)) is not None and found.untold != (), "the partition has no leader", 20)
        raise ZeroDivisionError
    assert states() == ("PrepareCommit", "PrepareAbort")
    found = row(to_commit)
    assert (
        found is not None
        and found.is_open
        and found.age_s is not None
        and found.partitions == found.untold == (TopicPartition("t", partition),)
    )
    with pytest.raises(InvalidInput, match=r"NO_OPEN_TRANSACTION.*PrepareCommit"):
        abort(KafkaOptions(servers), to_commit)
    monkeypatch.setattr("ingest.kafka.open_transactions._ENDED_WITHIN_S", 0.5)
    with pytest.raises(RunStopped, match="still open") as still_open:
        abort(KafkaOptions(servers), to_abort)
    assert (still_open.value.code, still_open.value.exit_code) == ("STILL_OPEN", 5)

    two_disks.kill()
    away.rename(second)
    two_disks.start()
    seen: list[tuple[str | None, ...]] = []

    def gone() -> bool:
        seen.append(states())
        return seen[-1] == (None, None)

    until(lambda: states() == ("CompleteCommit", "CompleteAbort"), "the markers are written", 20)
    assert [record.value for record in topics.read("t")] == [b"committed"]
    until(gone, "both ids have expired", 20)
    assert {state for each in seen for state in each} == {"CompleteCommit", "CompleteAbort", None}, "brokers do not report the state Dead"
