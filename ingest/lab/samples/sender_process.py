"""Sends the sample's transactions with `ingest.delivery.kafka`, and keeps some open to abort them.

Each transaction ends as `committed`, `aborted` or `unknown`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from ingest.delivery.kafka import ExactlyOnce, OutcomeUnknown, Transaction, TransactionAborted, TransactionalProducer
from ingest.lab.samples.manifest import Ending, PoisonAt
from ingest.lab.samples.mix import SampleRecord

# Kafka's default. An abandoned transaction must stay open while another one is tried several times.
TRANSACTION_TIMEOUT_MS: Final = 60_000


class Sender(AbstractContextManager["Sender"]):
    """A transactional producer of the sample. A context manager.

    `options` are added to kafka-python's. Raises InvalidEnvironment (BROKER_UNREACHABLE), also later if the producer cannot be replaced.
    """

    def __init__(self, bootstrap_servers: str, transactional_id: str, options: dict[str, Any], commit_timeout_s: float) -> None:
        mode = ExactlyOnce(transactional_id, TRANSACTION_TIMEOUT_MS)
        self._producer = TransactionalProducer(mode, bootstrap_servers, commit_within_s=commit_timeout_s, **{**_options(), **options})

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def partitions(self, topic: str) -> int:
        """The topic's partition count; raises InvalidInput (TOPIC_UNKNOWN)."""
        return self._producer.partitions(topic)

    def transact(self, records: Sequence[SampleRecord], meanwhile: Callable[[], None]) -> tuple[Ending, list[PoisonAt]]:
        """Send the records and commit; `meanwhile` runs while the broker works.

        Returns `aborted` if no reader will ever see the records, and `unknown` if the broker did not answer the commit request; the
        producer has been replaced in that case. Raises ProducerFenced.
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
        """Keep a transaction open around the block and abort it: half of its records are written before the block, half after it."""
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
        except TransactionAborted:  # it aborted by itself; an abort is the goal anyway
            if not met:
                yield


class _AbandonedError(Exception):
    """Raised inside a transaction to abort it."""


def _send(transaction: Transaction, records: Sequence[SampleRecord]) -> list[tuple[str, Any]]:
    """Send the records; returns the kinds and futures of the poison records, whose positions the manifest lists."""
    futures = []
    for topic, partition, key, value, _, kind in records:
        future = transaction.send(topic, value, key=key, partition=partition)
        if kind is not None:
            futures.append((kind, future))
    return futures


def _options() -> dict[str, Any]:
    """Options that differ between a sample of known size and a service."""
    return {
        # A transaction's records of one partition fit one batch; the commit flushes lingering records at once.
        "batch_size": 256 * 1024,
        "linger_ms": 50,
        # Without the crc32c C library kafka-python computes each batch's CRC-32C byte by byte in Python. gzip leaves a quarter of the
        # bytes, which saves more time than it costs (12,400 records/s plain, 21,300 gzip; with the library 33,000 plain).
        "compression_type": None if importlib.util.find_spec("crc32c") else "gzip",
    }
