"""Consume, transform, produce: each input record takes effect exactly once, no matter when and how often instances are killed.

    def invoice(record):
        yield Outgoing("invoices", make(record.value), key=record.key)

    transform("orders", invoice, ["invoices"], ExactlyOnce("billing-0"), "billing", "127.0.0.1:9092", stop=stopping.is_set)

One transaction contains the output, the state changes and the input offsets. The offsets carry the group's generation. So the broker
refuses a zombie, an instance that was paused while its partitions went to others. Kafka Streams calls this exactly_once_v2. Streams also
has windows, joins, state on disk and standby replicas; on the JVM, use it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from kafka import TopicPartition
from kafka.errors import MessageSizeTooLargeError, RetriableError

from ingest.delivery.kafka.buffer import INPUT_BUFFER_MAX_BYTES, Buffer
from ingest.delivery.kafka.delivery_errors import GroupMovedOn, OutcomeUnknown, PoisonRecord, TransactionAborted
from ingest.delivery.kafka.function import Function, called, check_arguments, checked, unsendable
from ingest.delivery.kafka.grouped import RECORDS, TIME_MS
from ingest.delivery.kafka.member import Member, Rebalance
from ingest.delivery.kafka.mode import ExactlyOnce
from ingest.delivery.kafka.outgoing import Outgoing
from ingest.delivery.kafka.poison import DeadLetter
from ingest.delivery.kafka.state import States
from ingest.delivery.kafka.transactional import Transaction, TransactionalProducer
from ingest.kafka.connection import as_options
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidEnvironment, InvalidInput

_ATTEMPTS_MAX: Final = 5
# Share of the transaction timeout. The rest is for the last record, for sending and for the commit.
_WORK_SHARE: Final = 0.5
# A run waits this long for brokers that do not answer. A restart of all brokers takes less.
_BROKERS_WITHIN_S: Final = 60.0
_PAUSE_S: Final = 0.5
# During a rebalance, all other members wait until this one polls again.
_WORK_S_MAX: Final = 30.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Transformed:
    """Counts of a run. `repeated`: transactions that were aborted or unanswered; their records are re-read from the committed offsets."""

    records: int = 0
    transactions: int = 0
    dead: int = 0
    repeated: int = 0


class Transform(AbstractContextManager["Transform"]):
    """One instance. A context manager; for one thread. Start up to one per partition, each with its own transactional id.

    The group `group_id` has begun in the source (`begin_group`).
    `function` takes a record and yields the records to send to `sinks`. If `changelog` is given, it also takes the State of the record's
    partition; the changelog is a compacted topic with as many partitions as the source. The function may be called again for a record whose
    transaction did not commit, so its side effects happen at least once. `instance` makes it a static member.

    A transaction contains up to `records` records that arrived within `time_ms`. `input_buffer_max_bytes` (64 MB; named as in Kafka
    Streams) limits them too, with an equal share per partition; one fetch per partition can exceed it.

    Raises GuaranteeBroken, InvalidInput TOPIC_UNKNOWN, CHANGELOG_PARTITIONS, CHANGELOG_NOT_COMPACTED, STATE_OF_SEVERAL, FUNCTION_UNFIT,
    GROUP_SIZE, INPUT_BUFFER, REBALANCE_UNKNOWN or CLIENT_OPTIONS, InvalidEnvironment BROKER_UNREACHABLE.
    """

    def __init__(
        self,
        source: str | Iterable[str],
        function: Function,
        sinks: str | Iterable[str],
        mode: ExactlyOnce,
        group_id: str,
        kafka: KafkaOptions | str,
        *,
        changelog: str | None = None,
        dead_letter: DeadLetter | None = None,
        records: int = RECORDS,
        time_ms: int = TIME_MS,
        input_buffer_max_bytes: int = INPUT_BUFFER_MAX_BYTES,
        rebalance: Rebalance = "cooperative",
        instance: str | None = None,
        on_step: Callable[[str], object] = lambda step: None,
        consumer_options: dict[str, Any] | None = None,
        producer_options: dict[str, Any] | None = None,
    ) -> None:
        if records < 1 or time_ms < 1:
            raise InvalidInput("GROUP_SIZE", f"{records=}, {time_ms=}.", expected="at least 1 of each.", remedy="correct them.")
        buffer = Buffer(input_buffer_max_bytes)
        check_arguments(function, stateful=changelog is not None)
        connection = as_options(kafka)
        topics = [source] if isinstance(source, str) else list(source)
        self._function: Any = function
        self._sinks = frozenset([sinks] if isinstance(sinks, str) else sinks)
        self._dead_letter, self._on_step = dead_letter, on_step
        self._records, self._time_s = records, time_ms / 1000
        self._work_s = min(mode.transaction_timeout_ms / 1000 * _WORK_SHARE, _WORK_S_MAX)
        self._states = States(connection, changelog) if changelog else None
        self._logged = 0  # partitions of the changelog
        self.counts = Transformed()
        options = {"max_poll_records": records, **(consumer_options or {})}
        if instance:
            options["group_instance_id"] = instance
        options = mode.consumer_options(group_id, **options)
        self._producer = TransactionalProducer(mode, connection, **(producer_options or {}))
        try:
            self._check_topics(topics)
            self._member = Member(connection, topics, options, buffer=buffer, rebalance=rebalance, dropped=self._drop)
        except BaseException:
            self._producer.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._member.close()
        self._producer.close()

    def run(self, *, stop: Callable[[], bool] = lambda: False, idle_s: float = float("inf")) -> Transformed:
        """Run until `stop` returns True or no record arrives for `idle_s`; the open transaction is finished first.

        Raises ProducerFenced, PoisonRecord, InvalidInput FUNCTION_UNFIT or SINK_UNKNOWN, and RunStopped STATE_NOT_RESTORED. If the group
        cannot read on, it raises GROUP_POSITION_MISSING, GROUP_RECORDS_EXPIRED, GROUP_RECORDS_LOST or GROUP_TOPIC_RECREATED. Raises
        TransactionAborted or OutcomeUnknown after five in a row. Raises InvalidEnvironment BROKER_UNREACHABLE or
        kafka.errors.RetriableError if the brokers have not answered for a minute. Nothing of an unfinished transaction is visible then
        (OutcomeUnknown: all or nothing). Another run continues from the committed offsets.
        """
        last_record_at = last_answer_at = time.monotonic()
        failures = 0
        while not stop() and time.monotonic() - last_record_at < idle_s:
            try:
                records = self._member.gather(self._records, self._time_s, stop)
                if records:
                    self._transact(records)
                    records.clear()  # frees them before the next ones are gathered
                    last_record_at, failures = time.monotonic(), 0
                last_answer_at = time.monotonic()
                if self._member.waits:
                    last_record_at = last_answer_at
            except (TransactionAborted, OutcomeUnknown) as error:
                # The committed offsets show the outcome: the broker does not return them while a transaction holds some of them.
                self.counts.repeated += 1
                self._abandon()
                last_record_at = time.monotonic()
                failures += not isinstance(error, GroupMovedOn)
                if failures >= _ATTEMPTS_MAX:
                    raise
            except (RetriableError, InvalidEnvironment) as error:  # the group does not answer, or no new producer can be started
                self._abandon()
                if time.monotonic() - last_answer_at > _BROKERS_WITHIN_S:
                    raise
                _log.info("no answer from the brokers, trying again: %r", error)
                time.sleep(_PAUSE_S)
                last_record_at = time.monotonic()  # a broker outage does not count as idle time
            except BaseException:
                self._abandon()
                raise
        return self.counts

    def _transact(self, records: list[Any]) -> None:
        """Steps: 1 restore state; 2 begin; 3 call the function and send, record by record; 4 changelog; 5 offsets and commit.

        If step 3 takes too long, the remaining records wait for the next transaction. See TransactionalProducer.transaction for step 5.
        """
        step = self._on_step
        if self._states is not None:
            for topic, partition in sorted({(record.topic, record.partition) for record in records}):
                if partition >= self._logged:
                    raise _partitions_differ(self._states.changelog, self._logged, topic, partition + 1)
                self._states[partition]
        step("gathered")
        dead = 0
        with self._producer.transaction(step) as transaction:
            due, worked = time.monotonic() + self._work_s, 0
            for record in records:
                dead += self._one(transaction, record)
                worked += 1
                step("worked")
                if time.monotonic() > due:
                    break
            records, rest = records[:worked], records[worked:]
            for change in self._states.changes() if self._states is not None else ():
                _send(transaction, change)
            step("sent")
            after = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
            transaction.send_offsets(self._member.marked(after), self._member.group)
        self._member.give_back(rest)
        if self._states is not None:
            self._states.keep()
        self.counts.records += len(records)
        self.counts.transactions += 1
        self.counts.dead += dead
        step("kept")

    def _one(self, transaction: Transaction, record: Any) -> bool:
        """Process one record; True if it went to the dead-letter topic."""
        attempts = self._dead_letter.attempts if self._dead_letter else 1
        state = self._states[record.partition] if self._states is not None else None
        failed: Exception | None = None
        for _ in range(attempts):
            try:
                made = called(self._function, record) if state is None else called(self._function, record, state)
            except Exception as error:
                if state is not None:
                    state.undo()
                failed = error
                continue
            if state is not None:
                state.take()
            for one in checked(made, record):
                self._check_sink(one.topic)
                try:
                    _send(transaction, one)
                except (MessageSizeTooLargeError, ValueError) as error:
                    # No dead letter: the transaction may already contain other output of this record, which cannot be removed.
                    place = record.topic, record.partition, record.offset
                    raise PoisonRecord(*place, error, attempts, unsendable=True) from error
            return False
        assert failed is not None
        if self._dead_letter is None:
            raise PoisonRecord(record.topic, record.partition, record.offset, failed, attempts) from failed
        _send(transaction, self._dead_letter.letter(record, failed))
        return True

    def _check_sink(self, topic: str) -> None:
        if topic not in self._sinks:
            expected = f"one of {', '.join(sorted(self._sinks))}." if self._sinks else "nothing: sinks names no topic."
            raise InvalidInput("SINK_UNKNOWN", f"the function sends to {topic!r}.", expected=expected, remedy="add it to sinks.")

    def _check_topics(self, topics: list[str]) -> None:
        letters = {self._dead_letter.topic} if self._dead_letter else set()
        for topic in self._sinks | letters:
            self._producer.partitions(topic)
        if self._states is None:
            return
        if len(topics) > 1:
            raise InvalidInput(
                "STATE_OF_SEVERAL",
                f"a changelog and {len(topics)} source topics.",
                expected="one source topic: otherwise partitions of the same number share one state but can have several owners.",
                remedy="write them into one topic first, with a separate transform.",
            )
        have = self._producer.partitions(self._states.changelog)
        need = self._producer.partitions(topics[0])
        if have != need:
            raise _partitions_differ(self._states.changelog, have, topics[0], need)
        self._logged = have
        policy = self._states.cleanup_policy()
        if policy not in ("compact", None):
            raise InvalidInput(
                "CHANGELOG_NOT_COMPACTED",
                f"{self._states.changelog} has cleanup.policy={policy}.",
                expected="compact alone: records that retention deletes from a changelog are lost state.",
                remedy=f"kafka-configs.sh --alter --topic {self._states.changelog} --add-config cleanup.policy=compact",
            )

    def _abandon(self) -> None:
        """Go back to the committed offsets at the next poll, also in a second run, which would otherwise skip these records."""
        if self._states is not None:
            self._states.forget()
        self._member.forget()

    def _drop(self, gone: set[TopicPartition], finished: bool) -> None:
        if self._states is not None:
            self._states.forget({place.partition for place in gone})


def _partitions_differ(changelog: str, have: int, topic: str, need: int) -> InvalidInput:
    return InvalidInput(
        "CHANGELOG_PARTITIONS",
        f"{changelog} has {have} partitions and {topic} has {need}.",
        expected="the same number in both: the changelog's partition of the same number contains the state of a partition.",
        remedy="recreate the changelog with that many partitions and cleanup.policy=compact, or add the missing ones; then start again.",
    )


def _send(transaction: Transaction, one: Outgoing) -> None:
    try:
        transaction.send(one.topic, one.value, key=one.key, headers=one.headers, partition=one.partition)
    except TypeError as error:
        raise unsendable(one, error) from error


def transform(
    source: str | Iterable[str],
    function: Function,
    sinks: str | Iterable[str],
    mode: ExactlyOnce,
    group_id: str,
    kafka: KafkaOptions | str,
    *,
    stop: Callable[[], bool] = lambda: False,
    idle_s: float = float("inf"),
    **more: Any,
) -> Transformed:
    """Run one instance until `stop` returns True or no record arrives for `idle_s`; `more` are Transform's. Raises the errors of both."""
    with Transform(source, function, sinks, mode, group_id, kafka, **more) as instance:
        return instance.run(stop=stop, idle_s=idle_s)
