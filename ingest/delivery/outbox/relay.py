"""The relay: publishes the outbox's events to Kafka, in order within an aggregate, and marks them as published.

An event is published at least once. If the relay crashes between publish and mark, the next one publishes the batch again, with the same
event ids, on which the consumers and the lake deduplicate.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from kafka.errors import (
    InvalidRecordError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from ingest.delivery.database import schema
from ingest.delivery.database.database import is_temporary
from ingest.delivery.kafka import ExactlyOnce, OutcomeUnknown, ProducerFenced, TransactionAborted
from ingest.delivery.outbox.leadership import Leadership
from ingest.delivery.outbox.pauses import Pauses
from ingest.delivery.outbox.unpublished import Unpublished, mark_failed, mark_published, purge_batch, unpublished
from ingest.kafka.connection import as_options
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import describe
from ingest.runtime.errors import InvalidEnvironment, InvalidInput, RunStopped

TOPIC: Final = "outbox.event.{aggregatetype}"  # as Debezium's outbox event router routes by default
BATCH: Final = 1_000
# Brokers that take 2 MB/s take so much within the transaction's timeout. All of it is in memory.
BATCH_BYTES: Final = 16 * 1024 * 1024
TRANSACTION_TIMEOUT_MS: Final = 10_000
POLL_MS: Final = 100
ATTEMPTS: Final = 5
_STAND_BY_S: Final = 0.5
_FENCES_MAX: Final = 3
_GONE_WITHIN_S: Final = 60.0
_PURGE_EVERY_S: Final = 60.0
# The broker refuses this record, whoever sends it and whenever. All other errors pass, or concern every record.
_OF_THE_ROW: Final = (
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    InvalidTopicError,
    TopicAuthorizationFailedError,
    PolicyViolationError,
    InvalidRecordError,
    ValueError,  # kafka-python's own checks of a record
    AssertionError,
)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Relayed:
    """Counts of a run: rows published and marked, rows parked, transactions sent again, terms as leader."""

    published: int = 0
    parked: int = 0
    repeated: int = 0
    led: int = 0


class Relay(AbstractContextManager["Relay"]):
    """One relay. A context manager; for one thread. Start as many as you like for one outbox: one of them leads.

    `topic` is where an event goes; `{aggregatetype}` in it becomes the event's. A transaction has up to `batch` rows and `batch_bytes`
    of payload, but at least one row. If it takes longer than `transaction_timeout_ms`, the next one has half the rows. A row that the
    brokers refuse `attempts` times is parked. With `keep`, rows that were published longer ago are deleted.

    Raises InvalidInput RELAY_OPTION or TRANSACTION_TIMEOUT, Refused SCHEMA_MISSING, SCHEMA_NEWER or SCHEMA_CHANGED.
    """

    def __init__(
        self,
        engine: Engine,
        kafka: KafkaOptions | str,
        *,
        topic: str = TOPIC,
        batch: int = BATCH,
        batch_bytes: int = BATCH_BYTES,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        poll_ms: int = POLL_MS,
        attempts: int = ATTEMPTS,
        keep: timedelta | None = None,
        on_step: Callable[[str], object] = lambda step: None,
        producer_options: dict[str, Any] | None = None,
    ) -> None:
        if batch < 1 or batch_bytes < 1 or poll_ms < 1 or attempts < 1:
            found = f"{batch=}, {batch_bytes=}, {poll_ms=}, {attempts=}."
            raise InvalidInput("RELAY_OPTION", found, expected="at least 1 of each.", remedy="correct them.")
        ExactlyOnce("checked", transaction_timeout_ms)  # raises TRANSACTION_TIMEOUT here, not when this relay first leads
        schema.check(engine)
        self._engine, self._kafka, self._topic, self._on_step = engine, kafka, topic, on_step
        self._batch, self._bytes, self._poll_s, self._attempts, self._keep = batch, batch_bytes, poll_ms / 1000, attempts, keep
        self._timeout_s = transaction_timeout_ms / 1000
        self._lead = Leadership(engine, kafka, transaction_timeout_ms, producer_options or {})
        self._pauses = Pauses()
        self._rows_max = batch  # halved while transactions take too long
        self._sending: list[Unpublished] = []
        self._alone = 0  # so many of the next rows are sent one by one
        self._known: set[str] = set()
        self._purged_at = float("-inf")
        self._fenced_at: list[float] = []
        self.counts = Relayed()

    def __exit__(self, *_: object) -> None:
        self._lead.give_up()

    def run(self, *, stop: Callable[[], bool] = lambda: False, idle_s: float = float("inf")) -> Relayed:
        """Publish until `stop` returns True, or until there has been nothing to do for `idle_s`, also because another relay leads.

        Lost connections, restarts and deadlocks are retried for a minute, except at the first connection to the brokers. Raises RunStopped
        RELAY_FENCED if another producer takes our transactional id again and again. After that minute it raises RunStopped RELAY_TOO_SLOW
        for a row that alone takes too long, InvalidEnvironment BROKER_UNREACHABLE or sqlalchemy.exc.DBAPIError. No row is lost: it is
        published at least once, and after a crash, an unknown outcome or a lost connection between publish and mark, once more with the
        same event id.
        """
        idle_since = answered_at = time.monotonic()
        while not stop() and time.monotonic() - idle_since < idle_s:
            self._sending = []
            try:
                if not self._lead.take(self._took):
                    time.sleep(min(_STAND_BY_S, idle_s))
                    answered_at = time.monotonic()
                    continue
                left_out = bool(self._pauses)  # before the rows are read: what was left out then is still to be published
                if rows := self._next():
                    self._publish(rows)
                else:
                    time.sleep(self._poll_s)
                self._purge()
                answered_at = time.monotonic()
                if rows or left_out:
                    idle_since = answered_at
            except (TransactionAborted, OutcomeUnknown, ProducerFenced, InvalidEnvironment, DBAPIError) as error:
                if self._halved():
                    answered_at = time.monotonic()
                self._recover(error, final=time.monotonic() - answered_at > _GONE_WITHIN_S)
                idle_since = time.monotonic()
        return self.counts

    def _took(self) -> None:
        self.counts.led += 1
        self._pauses, self._alone = Pauses(), 0
        _log.info("this relay leads")
        self._on_step("leads")

    def _next(self) -> list[Unpublished]:
        """The rows to send in the next transaction. A row that was refused goes alone, so that nothing else fails with it."""
        with self._lead.connection.begin():
            rows_max = 1 if self._alone else self._rows_max
            rows = unpublished(self._lead.connection, rows_max, self._bytes, *self._pauses.now())
        self._on_step("read")
        refused = next((number for number, row in enumerate(rows) if row.attempts), len(rows))
        return rows[: max(refused, 1)]

    def _publish(self, rows: list[Unpublished]) -> None:
        """Steps: 1 send the rows in one Kafka transaction; 2 mark them in one of the database. Raises the errors of `transaction`."""
        topics = [self._topic.replace("{aggregatetype}", row.aggregate_type) for row in rows]
        for kind, topic in {row.aggregate_type: topic for row, topic in zip(rows, topics, strict=True)}.items():
            if not self._exists(topic):
                self._missing(kind, topic)
                return
        outcomes: list[Any] = []
        self._sending, self._began = rows, time.monotonic()
        try:
            with self._lead.producer.transaction(self._on_step) as transaction:
                for row, topic in zip(rows, topics, strict=True):
                    record = row.record(topic)
                    try:
                        outcomes.append(transaction.send(record.topic, record.value, key=record.key, headers=record.headers))
                    except _OF_THE_ROW as error:
                        outcomes.append(error)
                        raise
        except (TransactionAborted, *_OF_THE_ROW):
            self._known.clear()
            causes = [why for each in outcomes if isinstance(why := _error(each), _OF_THE_ROW)]
            if not causes:
                raise
            if len(rows) == 1:
                self._refused(rows[0], causes[0])
            else:  # the brokers refuse whole batches: which row it is shows only if each is sent alone
                self._alone = len(rows)
            return
        self._sending = []  # published: what fails from here on was not slow
        futures = [each.get(timeout=0) for each in outcomes]
        with self._lead.connection.begin():
            mark_published(self._lead.connection, rows, [(future.topic, future.partition, future.offset) for future in futures])
        self._on_step("marked")
        self.counts.published += len(rows)
        self._alone = max(self._alone - len(rows), 0)
        self._rows_max = min(self._rows_max + self._rows_max // 10 + 1, self._batch)  # slowly, because each attempt too many costs seconds

    def _exists(self, topic: str) -> bool:
        """Whether the brokers have this topic. Asked once: kafka-python would wait for it, and hold up all other rows."""
        if topic not in self._known:
            try:
                describe(as_options(self._kafka), topic)
            except InvalidEnvironment as error:
                if error.code == "TOPIC_UNKNOWN":
                    return False
                if error.code != "KAFKA_FORBIDDEN":  # a relay needs no right to read
                    raise
            self._known.add(topic)
        return True

    def _missing(self, aggregate_type: str, topic: str) -> None:
        """Count an attempt for all rows of this type at once; the others do not wait for them."""
        with self._lead.connection.begin():
            last = mark_failed(self._lead.connection, f"the brokers have no topic {topic}", self._attempts, aggregate_type=aggregate_type)
        _log.warning("the brokers have no topic %s; %d of its events are parked now", topic, last)
        self.counts.parked += last
        self._pauses.of_type(aggregate_type)

    def _refused(self, row: Unpublished, error: BaseException) -> None:
        """Count an attempt of this row. After the last one it is parked; before, its aggregate waits."""
        self._alone = max(self._alone - 1, 0)
        with self._lead.connection.begin():
            last = mark_failed(self._lead.connection, f"{type(error).__name__}: {error}", self._attempts, position=row.position)
        _log.warning("event %s was refused%s: %r", row.event_id, " and is parked" if last else "", error)
        self.counts.parked += last
        if not last:
            self._pauses.of_aggregate(row)

    def _halved(self) -> bool:
        """After a failure, whether the next transaction has fewer rows because this one took too long."""
        if not self._slow or len(self._sending) < 2:
            return False
        self._rows_max = len(self._sending) // 2
        _log.warning("%d rows took longer than %g s; now up to %d", len(self._sending), self._timeout_s, self._rows_max)
        return True

    @property
    def _slow(self) -> bool:
        """Whether the transaction that has failed is older than its timeout: the broker has then aborted it, or soon does."""
        return bool(self._sending) and time.monotonic() - self._began > self._timeout_s

    def _recover(self, error: Exception, *, final: bool) -> None:
        """Prepare for another attempt, or raise the error."""
        if final and self._slow:
            row = self._sending[0]
            found = f"event {row.event_id} ({len(row.payload or b''):,} bytes) alone takes longer than a transaction may"
            raise RunStopped(
                "RELAY_TOO_SLOW",
                f"{found}, which is {self._timeout_s:g} s.",
                expected="brokers that acknowledge one record within that time.",
                remedy="find out why they are slow (a quota, the network, a disk), or give transactions more time with "
                "--transaction-timeout-ms.",
            ) from error
        if (
            final
            or (isinstance(error, DBAPIError) and not is_temporary(error))
            or (isinstance(error, InvalidEnvironment) and not self.counts.led)
        ):
            raise error
        _log.warning("trying again: %s", error)
        self.counts.repeated += not isinstance(error, InvalidEnvironment | DBAPIError)
        if isinstance(error, ProducerFenced) and not self._slow:
            # Not the broker, which ends a transaction that is too old in this way, but a former leader: when it wakes up, it may take the
            # id once, before it learns that it has lost the lead.
            now = time.monotonic()
            self._fenced_at = [at for at in (*self._fenced_at, now) if now - at < _GONE_WITHIN_S]
            if len(self._fenced_at) > _FENCES_MAX:
                raise _fenced(error.transactional_id) from error
        if isinstance(error, InvalidEnvironment | DBAPIError | ProducerFenced):
            self._lead.give_up()
            time.sleep(_STAND_BY_S)

    def _purge(self) -> None:
        """Delete one batch of old rows, if it is time. The next ones follow at once."""
        if self._keep is not None and time.monotonic() - self._purged_at > _PURGE_EVERY_S and purge_batch(self._engine, self._keep) == 0:
            self._purged_at = time.monotonic()


def _fenced(transactional_id: str) -> RunStopped:
    return RunStopped(
        "RELAY_FENCED",
        f"another producer takes the transactional id {transactional_id} again and again, although this relay leads its outbox.",
        expected="one database for each outbox that publishes to one Kafka.",
        remedy="look for the relay of a copy of this database, such as a restored backup, and stop it or give it another Kafka.",
    )


def _error(outcome: Any) -> BaseException | None:
    """The error of a send: the one that it raised, or that of its future."""
    return outcome if isinstance(outcome, BaseException) else getattr(outcome, "exception", None)
