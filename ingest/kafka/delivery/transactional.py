"""The transactional producer: many records of several topics and partitions, and offsets of their input, visible together or never.

    with TransactionalProducer(ExactlyOnce("billing-0"), "127.0.0.1:9092") as producer:
        with producer.transaction() as transaction:
            transaction.send("invoices", b"...", key=b"customer 7")
            transaction.send("audit", b"...")

kafka-python 3.0.12 needs a guard here: when a batch of the transaction is given up (delivery timeout, or an epoch that the broker
has raised after the transaction's own timeout), its commit_transaction() can return as if all were well, with records missing.
So every record's acknowledgement is looked at before the commit is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import methodcaller
from types import TracebackType
from typing import Any, Final, Literal

from kafka import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafka.errors import CommitFailedError, FencedInstanceIdError, InvalidProducerEpochError, KafkaError, ProducerFencedError

from ingest.kafka.delivery.connection import answered, as_options, end, hand_over, producer
from ingest.kafka.delivery.delivery_errors import GroupMovedOn, OutcomeUnknown, ProducerFenced, TransactionAborted, named
from ingest.kafka.delivery.in_flight import InFlight
from ingest.kafka.delivery.mode import ExactlyOnce
from ingest.kafka.delivery.outgoing import Headers
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidEnvironment, InvalidInput

# Longer than request_timeout_ms, so that a slow broker is told from one that does not answer at all.
COMMIT_WITHIN_S: Final = 45.0
_FENCED: Final = (ProducerFencedError, InvalidProducerEpochError)


class Transaction:
    """An open transaction; made by TransactionalProducer.transaction."""

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
        """Hand a record over; waits when too much is in flight. Records of one key, and of one partition, keep their order.

        Returns kafka-python's future: after the commit its `get(timeout=0)` tells partition and offset. Raises
        kafka.errors.KafkaError and TimeoutError, which abort the transaction on their way out.
        """
        future = hand_over(self._made, topic, value, key, list(headers), partition, timestamp_ms)
        self._in_flight.add(future, len(value or b"") + len(key or b""), self._within_s)
        self.records += 1
        return future

    def flush(self) -> None:
        """Wait until the brokers have every record so far, which nobody sees before the commit; the commit itself does this too.

        Raises TransactionAborted when one was not acknowledged, and kafka.errors.KafkaError and TimeoutError as `send`.
        """
        self._made.flush(timeout=self._within_s)
        self._in_flight.drain(self._within_s)
        if self._in_flight.errors:
            first = self._in_flight.errors[0]
            raise TransactionAborted(f"{len(self._in_flight.errors)} record(s) were not acknowledged ({named(first)})")

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: ConsumerGroupMetadata) -> None:
        """Commit the input's next offsets with this transaction, as the member of `group` that read it; of several calls, all of them.

        `group` must be what the consumer was when it got the records: kafka-python forgets its membership when it learns that it was
        thrown out, and the broker takes an empty one without asking (KIP-447 wants it for older clients). Raises GroupMovedOn.
        """
        if group.generation_id < 0 or not group.member_id:
            raise GroupMovedOn(f"the consumer is no member of the group {group.group_id} any more")
        self._offsets.setdefault(group, {}).update({place: OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()})


class TransactionalProducer:
    """A producer that can only send inside of transactions. A context manager; not for several threads at once.

    `options` are kafka-python's, checked against the mode. Raises GuaranteeBroken, InvalidInput CLIENT_OPTIONS, InvalidEnvironment
    BROKER_UNREACHABLE.
    """

    def __init__(self, mode: ExactlyOnce, kafka: KafkaOptions | str, *, commit_within_s: float = COMMIT_WITHIN_S, **options: Any) -> None:
        self.mode = mode
        self._kafka = as_options(kafka)
        self._options = mode.producer_options(**options)
        self._within_s = commit_within_s
        self._in_flight = InFlight()
        self._busy = self._closed = False
        self._made: Any = producer(self._kafka, self._options)

    def __enter__(self) -> TransactionalProducer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End it; an open transaction is aborted by the next producer of this id, or by the broker after its timeout."""
        self._closed = True
        if self._made is not None:
            end(self._made)
            self._made = None

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has. Raises InvalidInput TOPIC_UNKNOWN."""
        try:
            return len(self._open().partitions_for(topic))
        except KafkaError as error:
            expected, remedy = "a topic that exists.", "create the topic first."
            raise InvalidInput("TOPIC_UNKNOWN", f"no partitions of topic {topic}: {error!r}.", expected=expected, remedy=remedy) from error

    @contextmanager
    def transaction(self, on_step: Callable[[str], object] = lambda step: None) -> Iterator[Transaction]:
        """A transaction: committed at the end of the block, aborted when an exception leaves it, which is raised on.

        1 begin; then the block; 2 wait until the brokers have every record; 3 look at every acknowledgement; 4 offsets of the input,
        if any; 5 commit. `on_step` hears `begun`, `flushed`, `offsets_sent` and, when all is over, `committed`: what it raises then
        undoes nothing.

        Raises TransactionAborted (nothing is visible, send again), GroupMovedOn (the same, but the work belongs to others now),
        OutcomeUnknown (5 was not answered; the producer was replaced), ProducerFenced (closed; never retry), InvalidEnvironment
        BROKER_UNREACHABLE.
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
        if self._made is None:  # it could not be replaced when it was lost
            self._made = producer(self._kafka, self._options)
        return self._made

    def _fail(self, made: Any, error: BaseException, asked: Literal["nothing", "offsets", "commit"], *, late: bool) -> None:
        """Leave no transaction open, and turn the client's error into what it means; returns if `error` shall be raised as it is."""
        if self._is_fenced(made, error):
            self.close()
            raise ProducerFenced(self.mode.transactional_id, timed_out=late, commit_asked=asked == "commit") from error
        if asked == "commit" and isinstance(error, KafkaError | TimeoutError):
            settled = self._replace()
            raise OutcomeUnknown(self.mode.transactional_id, settled=settled, why=named(error)) from error
        if asked == "commit":  # of a signal, in the midst of the wait: raised as it is, so that it ends what it was meant to end
            error.add_note(f"The commit of a transaction of {self.mode.transactional_id} was asked for: it may be committed, or not.")
        # A new producer aborts the open transaction for certain. Not so abort_transaction(): kafka-python keeps offsets that the broker
        # refused and sends them again with the next transaction, behind the back of the partition's new owner.
        keep = asked == "nothing" and not isinstance(error, KafkaError | TimeoutError | TransactionAborted)
        if not (keep and self._aborted(made)):
            self._replace()
        if isinstance(error, CommitFailedError | FencedInstanceIdError):
            raise GroupMovedOn(named(error)) from error
        if isinstance(error, KafkaError | TimeoutError):
            raise TransactionAborted(named(error)) from error

    def _aborted(self, made: Any) -> bool:
        """Whether the producer can go on after an abort.

        Not with a record that was given up while it was on its way: the epoch stays the same, so that the broker would take it into the
        next transaction if it came so late (before KIP-890's second part, which kafka-python 3.0.12 does not speak).
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
        """A new producer of the same id; False if none could be made now."""
        if self._made is not None:
            end(self._made)
        self._made = None
        try:
            self._made = producer(self._kafka, self._options)
        except InvalidEnvironment:
            return False
        return True

    def _is_fenced(self, made: Any, error: BaseException) -> bool:
        """Whether the broker has told us so, to whichever request.

        An epoch that is too old can also mean that the broker aborted our transaction after its timeout. From here the two look alike,
        and to go on would take the id from a rightful owner: so both are the end of this producer.
        """
        reason = made._transaction_manager.last_error
        return isinstance(error, _FENCED) or isinstance(reason, _FENCED) or self._in_flight.met(_FENCED)
