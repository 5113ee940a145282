"""The sample's transactions, sent by `ingest.kafka.delivery`: each ends as `committed`, `aborted` or `unknown`; a few are left open."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from ingest.kafka.delivery import ExactlyOnce, OutcomeUnknown, Transaction, TransactionAborted, TransactionalProducer
from ingest.lab.samples.manifest import Ending, PoisonAt
from ingest.lab.samples.mix import SampleRecord

# Kafka's own default: what is abandoned stays open while another transaction is tried again and again.
TRANSACTION_TIMEOUT_MS: Final = 60_000


class Sender:
    """A transactional producer of the sample. A context manager.

    `options` are added to kafka-python's. Raises InvalidEnvironment (BROKER_UNREACHABLE), also later when it cannot be replaced.
    """

    def __init__(self, bootstrap_servers: str, transactional_id: str, options: dict[str, Any], commit_timeout_s: float) -> None:
        mode = ExactlyOnce(transactional_id, TRANSACTION_TIMEOUT_MS)
        self._producer = TransactionalProducer(mode, bootstrap_servers, commit_within_s=commit_timeout_s, **{**_options(), **options})

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; raises InvalidInput (TOPIC_UNKNOWN)."""
        return self._producer.partitions(topic)

    def transact(self, records: Sequence[SampleRecord], meanwhile: Callable[[], None]) -> tuple[Ending, list[PoisonAt]]:
        """Send the records and commit; `meanwhile` runs while the broker works.

        Returns `aborted` when nothing of it will ever be seen, and `unknown` when the commit was asked for and not answered; the
        producer was replaced then. Raises ProducerFenced.
        """
        futures: list[tuple[str, Any]] = []
        asked: Future[None] | None = None
        ending: Ending = "committed"
        with ThreadPoolExecutor(1, "beside-a-transaction") as beside:
            try:
                with self._producer.transaction() as transaction:
                    futures = _send(transaction, records)
                    asked = beside.submit(meanwhile)
            except TransactionAborted:
                ending = "aborted"
            except OutcomeUnknown:
                ending = "unknown"
        if asked is not None:
            asked.result()
        else:
            meanwhile()
        delivered = [(kind, future.get(timeout=0)) for kind, future in futures] if ending == "committed" else []
        return ending, [(kind, at.topic, at.partition, at.offset) for kind, at in delivered]

    @contextmanager
    def abandoned(self, records: Sequence[SampleRecord]) -> Iterator[None]:
        """A transaction around the block that is aborted at its end: half of its records are in the log before, half after it."""
        half, met = len(records) // 2, False
        try:
            with self._producer.transaction() as transaction:
                _send(transaction, records[:half])
                transaction.flush()
                met = True
                yield
                _send(transaction, records[half:])
                transaction.flush()
                raise _AbandonedError
        except _AbandonedError:
            pass
        except TransactionAborted:  # by itself, which is what it was for
            if not met:
                yield


class _AbandonedError(Exception):
    """Aborts a transaction on its way out."""


def _send(transaction: Transaction, records: Sequence[SampleRecord]) -> list[tuple[str, Any]]:
    """Returns the kinds and futures of poison records: the manifest says where those are."""
    futures = []
    for topic, partition, key, value, _, kind in records:
        future = transaction.send(topic, value, key=key, partition=partition)
        if kind is not None:
            futures.append((kind, future))
    return futures


def _options() -> dict[str, Any]:
    """What is another for a sample of a given size than for a service."""
    return {
        # A transaction's records of one partition are one batch; the commit sends at once what lingers.
        "batch_size": 256 * 1024,
        "linger_ms": 50,
        # Without the C library kafka-python computes each batch's CRC-32C byte by byte in Python; over a quarter of the
        # bytes that takes less time than gzip does (12,400 records/s plain, 21,300 gzip; with the library 33,000 plain).
        "compression_type": None if importlib.util.find_spec("crc32c") else "gzip",
    }
