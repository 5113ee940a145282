"""A transactional Kafka producer that is replaced when it is of no more use, so that no transaction is torn or left open."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from kafka import KafkaProducer
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError

from ingest.errors import InvalidInput, RunStopped, Unfit
from ingest.local.manifest import Ending, PoisonAt
from ingest.local.plan import Record

# Longer than request_timeout_ms, so that a slow broker is told from one that does not answer at all.
COMMIT_TIMEOUT_S: Final = 45.0
CLOSE_TIMEOUT_S: Final = 5.0


class Line:
    """A transactional producer that is replaced when it is of no more use; what was open is then aborted by the broker."""

    def __init__(self, bootstrap_servers: str, transactional_id: str, options: dict[str, Any], commit_timeout_s: float) -> None:
        self._options = _options(bootstrap_servers, transactional_id) | options
        self._commit_timeout_s = commit_timeout_s
        self._producer = self._connect()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; raises InvalidInput (TOPIC_UNKNOWN)."""
        try:
            return len(self._producer.partitions_for(topic))
        except KafkaError as error:
            raise InvalidInput(
                "TOPIC_UNKNOWN",
                f"the broker told no partitions of topic {topic}: {error!r}.",
                expected="a topic that exists.",
                remedy="create the topic first.",
            ) from error

    def transact(self, records: Sequence[Record], meanwhile: Callable[[], None] | None) -> tuple[Ending, list[PoisonAt]]:
        """Send the records and commit; `meanwhile` runs while the broker commits.

        Returns `aborted` when it failed before the commit was asked for (the new producer's init_transactions aborts it) and
        `unknown` when the commit was asked for and not answered.
        """
        futures: list[tuple[str, Any]] = []

        def sending() -> None:
            self.begin()
            futures.extend(self.send(records))

        if not self.attempt(sending):
            if meanwhile is not None:
                meanwhile()
            return "aborted", []
        asked = _Asked(self._producer.commit_transaction)
        if meanwhile is not None:
            meanwhile()
        try:
            asked.result(self._commit_timeout_s)
        except (KafkaError, TimeoutError) as error:
            self._replace(error)
            return "unknown", []
        delivered = [(kind, future.get(timeout=0)) for kind, future in futures]
        return "committed", [(kind, at.topic, at.partition, at.offset) for kind, at in delivered]

    def begin(self) -> None:
        """Open a transaction."""
        self._producer.begin_transaction()

    def send(self, records: Sequence[Record], *, flush: bool = False) -> list[tuple[str, Any]]:
        """Hand over to the producer's buffer; returns the futures of poison records, the others' would cost more than they tell."""
        send, futures = self._producer.send, []
        for topic, partition, key, value, _, kind in records:
            future = send(topic, value, key, partition=partition)
            if kind is not None:
                futures.append((kind, future))
        if flush:
            self._producer.flush(timeout=self._commit_timeout_s)
        return futures

    def abort(self) -> None:
        """Abort the open transaction, whatever it takes."""
        asked = _Asked(self._producer.abort_transaction)
        self.attempt(lambda: asked.result(self._commit_timeout_s))

    def attempt(self, step: Callable[[], object]) -> bool:
        """Whether the step went well; if not, its producer is replaced, which aborts what was open."""
        try:
            step()
        except (KafkaError, TimeoutError) as error:
            self._replace(error)
            return False
        return True

    def _replace(self, error: Exception) -> None:
        if isinstance(error, ProducerFencedError | InvalidProducerEpochError):
            raise RunStopped(
                "PRODUCER_FENCED",
                f"another producer took over the transactional id {self._options['transactional_id']}.",
                expected="one producer for each transactional id.",
                remedy="stop the other one or give this one its own id.",
            ) from error
        self._close()
        self._producer = self._connect()

    def _connect(self) -> KafkaProducer:
        try:
            producer = KafkaProducer(**self._options)
            producer.init_transactions()
        except KafkaError as error:
            raise Unfit(
                "BROKER_UNREACHABLE",
                f"no transactional producer at {self._options['bootstrap_servers']}: {error!r}.",
                expected="a Kafka broker of version 2.5 or later that answers.",
                remedy="start it or name another one with --bootstrap-servers.",
            ) from error
        return producer

    def _close(self) -> None:
        with contextlib.suppress(KafkaError):
            self._producer.close(timeout=CLOSE_TIMEOUT_S)


class _Asked:
    """A blocking call in a thread of its own, since kafka-python's commit and abort know no deadline."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # handed to whoever asks for the result
            self._error = error

    def result(self, timeout_s: float) -> None:
        """Wait; raises what the call raised, or TimeoutError when it has not ended."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"no answer within {timeout_s} s")
        if self._error is not None:
            raise self._error


def _options(bootstrap_servers: str, transactional_id: str) -> dict[str, Any]:
    """Everything on which exactness depends is said here, since the defaults of Kafka's clients differ."""
    return {
        "bootstrap_servers": bootstrap_servers,
        "transactional_id": transactional_id,
        "enable_idempotence": True,
        "acks": "all",
        "max_in_flight_requests_per_connection": 5,
        "transaction_timeout_ms": 60_000,
        "request_timeout_ms": 30_000,
        "delivery_timeout_ms": 40_000,
        "max_block_ms": 30_000,
        # A transaction's records of one partition are one batch; the commit sends at once what lingers.
        "batch_size": 256 * 1024,
        "linger_ms": 50,
        # Without the C library kafka-python computes each batch's CRC-32C byte by byte in Python; over a quarter of the
        # bytes that takes less time than gzip does (12,400 records/s plain, 21,300 gzip; with the library 33,000 plain).
        "compression_type": None if importlib.util.find_spec("crc32c") else "gzip",
        "metrics_enabled": False,
    }
