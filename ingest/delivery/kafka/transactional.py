"""The transactional producer: records of several topics and partitions, and their input offsets, become visible together or never.

    with TransactionalProducer(ExactlyOnce("billing-0"), "127.0.0.1:9092") as producer:
        with producer.transaction() as transaction:
            transaction.send("invoices", b"...", key=b"customer 7")
            transaction.send("audit", b"...")

kafka-python 3.0.12 can give up a batch of the transaction: after the delivery timeout, or because the broker raised the epoch after the
transaction timeout. Its commit_transaction() can then return without an error although records are missing. So this module checks the
acknowledgement of every record before it requests the commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from operator import methodcaller
from typing import Any, Final, Literal

from kafka import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafka.errors import CommitFailedError, FencedInstanceIdError, InvalidProducerEpochError, KafkaError, ProducerFencedError

from ingest.delivery.kafka.delivery_errors import GroupMovedOn, OutcomeUnknown, ProducerFenced, TransactionAborted, named
from ingest.delivery.kafka.in_flight import InFlight
from ingest.delivery.kafka.mode import ExactlyOnce
from ingest.delivery.kafka.outgoing import Headers
from ingest.kafka.connection import answered, as_options, end, hand_over, producer
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidEnvironment, InvalidInput

# Longer than request_timeout_ms, to distinguish a slow broker from one that does not answer at all.
COMMIT_WITHIN_S: Final = 45.0
_FENCED: Final = (ProducerFencedError, InvalidProducerEpochError)


class Transaction:
    """An open transaction, created by TransactionalProducer.transaction."""

    def __init__(self, made: Any, in_flight: InFlight, within_s: float) -> None:
        self._made, self._in_flight, self._within_s = made, in_flight, within_s
        self._offsets: dict[ConsumerGroupMetadata, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.records = 0

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        """Send a record; blocks while too many bytes are in flight. Records of one key, and of one partition, keep their order.

        Returns kafka-python's future; after the commit, its `get(timeout=0)` returns the partition and offset. Raises
        kafka.errors.KafkaError and TimeoutError, which abort the transaction when they leave its block.
        """
        future = hand_over(self._made, topic, value, key, list(headers), partition, timestamp_ms)
        self._in_flight.add(future, len(value or b"") + len(key or b""), self._within_s)
        self.records += 1
        return future

    def flush(self) -> None:
        """Wait until the brokers have acknowledged every record so far. The records stay invisible until the commit, which also flushes.

        Raises TransactionAborted if a record was not acknowledged, and kafka.errors.KafkaError and TimeoutError as `send` does.
        """
        self._made.flush(timeout=self._within_s)
        self._in_flight.drain(self._within_s)
        if self._in_flight.errors:
            first = self._in_flight.errors[0]
            raise TransactionAborted(f"{len(self._in_flight.errors)} record(s) were not acknowledged ({named(first)})")

    def send_offsets(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: ConsumerGroupMetadata) -> None:
        """Commit the input's next offsets with this transaction, as the member of `group` that read it. Several calls add up.

        `group` must be the consumer's metadata from when it got the records. kafka-python forgets its membership when it learns that the
        group removed it, and the broker accepts empty metadata unchecked (KIP-447 allows it for older clients). Raises GroupMovedOn.
        """
        if group.generation_id < 0 or not group.member_id:
            raise GroupMovedOn(f"the consumer is no longer a member of the group {group.group_id}")
        marked = {place: OffsetAndMetadata(offset, "", -1) if isinstance(offset, int) else offset for place, offset in offsets.items()}
        self._offsets.setdefault(group, {}).update(marked)


class TransactionalProducer(AbstractContextManager["TransactionalProducer"]):
    """A producer that sends only inside transactions. A context manager; not thread-safe.

    `options` are kafka-python's and are checked against the mode. Raises GuaranteeBroken, InvalidInput CLIENT_OPTIONS,
    InvalidEnvironment BROKER_UNREACHABLE.
    """

    def __init__(self, mode: ExactlyOnce, kafka: KafkaOptions | str, *, commit_within_s: float = COMMIT_WITHIN_S, **options: Any) -> None:
        self.mode = mode
        self._kafka = as_options(kafka)
        self._options = mode.producer_options(**options)
        self._within_s = commit_within_s
        self._in_flight = InFlight()
        self._busy = self._closed = False
        self._made: Any = producer(self._kafka, self._options)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the producer. The next producer of this id aborts an open transaction, or the broker does after the timeout."""
        self._closed = True
        if self._made is not None:
            end(self._made)
            self._made = None

    def partitions(self, topic: str) -> int:
        """Number of partitions of the topic. Raises InvalidInput TOPIC_UNKNOWN."""
        try:
            return len(self._open().partitions_for(topic))
        except KafkaError as error:
            expected, remedy = "a topic that exists.", "create the topic first."
            raise InvalidInput("TOPIC_UNKNOWN", f"no partitions of topic {topic}: {error!r}.", expected=expected, remedy=remedy) from error

    @contextmanager
    def transaction(self, on_step: Callable[[str], object] = lambda step: None) -> Iterator[Transaction]:
        """A transaction: committed at the end of the block, or aborted if an exception leaves it; the exception is re-raised.

        Steps: 1 begin; then the block; 2 wait until the brokers have every record; 3 check every acknowledgement; 4 send the offsets of
        the input, if any; 5 commit. `on_step` is called with `begun`, `flushed`, `offsets_sent` and, after the commit, `committed`. An
        exception that it raises at `committed` does not undo the commit.

        Raises TransactionAborted (nothing is visible; send again), GroupMovedOn (the same, but other members own the partitions now),
        OutcomeUnknown (step 5 was not answered; the producer is replaced, if possible), ProducerFenced (closed; never retry),
        InvalidEnvironment BROKER_UNREACHABLE.
        """
        made = self._open()
        if self._busy:
            raise InvalidInput("TRANSACTION_OPEN", "a transaction is open.", expected="one at a time.", remedy="end it, or use another id.")
        self._busy, began = True, time.monotonic()
        transaction = Transaction(made, self._in_flight, self._within_s)
        asked: Literal["nothing", "offsets", "commit"] = "nothing"
        try:
            made.begin_transaction()
            on_step("begun")
            yield transaction
            if transaction._offsets or transaction.records:
                transaction.flush()
            on_step("flushed")
            for group, offsets in transaction._offsets.items():
                asked = "offsets"
                answered(made, methodcaller("send_offsets_to_transaction", offsets, group), self._within_s)
            on_step("offsets_sent")
            asked = "commit"
            answered(made, methodcaller("begin_commit"), self._within_s)
        except BaseException as error:
            late = time.monotonic() - began > self.mode.transaction_timeout_ms / 1000
            self._fail(made, error, asked, late=late)
            raise
        finally:
            self._busy = False
            self._in_flight.forget()
        on_step("committed")

    def _open(self) -> Any:
        if self._closed:
            raise InvalidInput(
                "PRODUCER_CLOSED",
                f"the producer of {self.mode.transactional_id} is closed.",
                expected="an open one.",
                remedy="make a new producer; after ProducerFenced only if the other one is gone.",
            )
        if self._made is None:  # _replace could not start a new producer then
            self._made = producer(self._kafka, self._options)
        return self._made

    def _fail(self, made: Any, error: BaseException, asked: Literal["nothing", "offsets", "commit"], *, late: bool) -> None:
        """Leave no transaction open and translate the client's error; returns if the caller is to raise `error` unchanged."""
        if self._is_fenced(made, error):
            self.close()
            raise ProducerFenced(self.mode.transactional_id, timed_out=late, commit_asked=asked == "commit") from error
        if asked == "commit" and isinstance(error, KafkaError | TimeoutError):
            settled = self._replace()
            raise OutcomeUnknown(self.mode.transactional_id, settled=settled, why=named(error)) from error
        if asked == "commit":  # a signal during the wait is raised unchanged, so that it still ends the process
            error.add_note(f"The commit of a transaction of {self.mode.transactional_id} was requested: it may be committed, or not.")
        # Only a new producer reliably aborts the open transaction. After abort_transaction(), kafka-python keeps offsets that the broker
        # refused and sends them again with the next transaction, although the partition has a new owner.
        keep = asked == "nothing" and not isinstance(error, KafkaError | TimeoutError | TransactionAborted)
        if not (keep and self._aborted(made)):
            self._replace()
        if isinstance(error, CommitFailedError | FencedInstanceIdError):
            raise GroupMovedOn(named(error)) from error
        if isinstance(error, KafkaError | TimeoutError):
            raise TransactionAborted(named(error)) from error

    def _aborted(self, made: Any) -> bool:
        """Abort the open transaction; True if the producer can be used again.

        It cannot if the client gave up a record that may still arrive: the epoch stays the same, so the broker would add the late record to
        the next transaction. KIP-890 part 2 prevents this, but kafka-python 3.0.12 does not implement it.
        """
        try:
            answered(made, methodcaller("begin_abort"), self._within_s)
        except (KafkaError, TimeoutError) as error:
            if self._is_fenced(made, error):
                self.close()
                raise ProducerFenced(self.mode.transactional_id) from error
            return False
        return not self._in_flight.given_up()

    def _replace(self) -> bool:
        """Replace the producer by a new one with the same id; False if none can be started now."""
        if self._made is not None:
            end(self._made)
        self._made = None
        try:
            self._made = producer(self._kafka, self._options)
        except InvalidEnvironment:
            return False
        return True

    def _is_fenced(self, made: Any, error: BaseException) -> bool:
        """Whether the broker answered any request with a fencing error.

        An old epoch can also mean that the broker aborted our transaction after its timeout. The client cannot tell the two apart, and
        to continue could take the id from its rightful owner. So both end this producer.
        """
        reason = made._transaction_manager.last_error
        return isinstance(error, _FENCED) or isinstance(reason, _FENCED) or self._in_flight.met(_FENCED)
