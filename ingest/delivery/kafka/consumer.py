"""A consumer that commits its offsets before the work (at_most_once) or after it (at_least_once), never by a timer.

    with Consumer(AtLeastOnce(), ["orders"], "billing", "127.0.0.1:9092", dead_letter=DeadLetter("orders.dead")) as consumer:
        consumer.run(work, stop=stopping.is_set)

A consumer alone cannot be exactly-once: the offsets and the result of the work must be committed together. `transform` does this for
results in Kafka, `SeenIds` for results in a database, and `ingest run` for the lake.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from kafka import TopicPartition
from kafka.errors import KafkaError

from ingest.delivery.kafka.buffer import INPUT_BUFFER_MAX_BYTES, Buffer
from ingest.delivery.kafka.delivery_errors import DeliveryFailed, GuaranteeBroken, PoisonRecord, StoreFailed
from ingest.delivery.kafka.member import Member, Offsets, Rebalance
from ingest.delivery.kafka.mode import AtLeastOnce, AtMostOnce, DeliveryMode
from ingest.delivery.kafka.poison import DeadLetter
from ingest.delivery.kafka.producer import Producer
from ingest.delivery.kafka.seen import SeenIds
from ingest.kafka.connection import as_options
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidInput

# Polls between two records, so that slow work does not delay a rebalance and the group does not remove this member.
_KEEP_ALIVE_S: Final = 1.0
# A rebalance lasts until the slowest member polls again.
_LAST_COMMIT_WITHIN_S: Final = 10.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Consumed:
    """Counts of a run: records processed, duplicates skipped, records sent to the dead-letter topic, and late commits.

    A late commit is a partition that was revoked before the offset of its processed records could be committed.
    """

    worked: int = 0
    duplicates: int = 0
    dead: int = 0
    late_commits: int = 0


@dataclass(frozen=True)
class Deduplicate:
    """How duplicates are recognised: `event_id` returns the id of a record, or None for a record without id, which is always processed."""

    seen: SeenIds
    event_id: Callable[[Any], str | None]


@dataclass
class _Progress:
    """Next offsets of processed records that are not committed yet."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    records: int = 0
    since: float = field(default_factory=time.monotonic)


class Consumer(AbstractContextManager["Consumer"]):
    """Reads `topics` as a member of `group_id`, which has begun in them (`begin_group`). A context manager; for one thread.

    It commits offsets every `commit_records` records or `commit_ms`, when partitions are revoked, and at the end. In at_most_once it
    commits before the work. `instance` makes it a static member: after a restart it gets its partitions back without a rebalance.
    `input_buffer_max_bytes` (64 MB; named as in Kafka Streams) limits the waiting records, with an equal share per partition; one fetch
    per partition can exceed it. `options` are kafka-python's and are checked against the mode. Raises GuaranteeBroken, InvalidInput
    COMMIT_EVERY, INPUT_BUFFER, TOPIC_UNKNOWN, REBALANCE_UNKNOWN or CLIENT_OPTIONS, InvalidEnvironment BROKER_UNREACHABLE.
    """

    def __init__(
        self,
        mode: DeliveryMode,
        topics: str | Iterable[str],
        group_id: str,
        kafka: KafkaOptions | str,
        *,
        rebalance: Rebalance = "cooperative",
        dead_letter: DeadLetter | None = None,
        deduplicate: Deduplicate | None = None,
        commit_records: int = 500,
        commit_ms: int = 1_000,
        input_buffer_max_bytes: int = INPUT_BUFFER_MAX_BYTES,
        instance: str | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(mode, AtMostOnce | AtLeastOnce):
            guarantee = "if offsets and the work's result are committed separately, a crash between the two loses or doubles records"
            raise GuaranteeBroken(mode.name, "Consumer", "alone", expected="use transform() instead", guarantee=guarantee)
        if isinstance(mode, AtMostOnce) and dead_letter is not None and dead_letter.attempts > 1:
            option, guarantee = "dead_letter.attempts", "work that failed halfway would be done twice"
            raise GuaranteeBroken(mode.name, option, dead_letter.attempts, expected="1", guarantee=guarantee)
        if commit_records < 1 or commit_ms < 1:
            raise InvalidInput("COMMIT_EVERY", f"{commit_records=}, {commit_ms=}.", expected="at least 1 of each.", remedy="correct them.")
        buffer = Buffer(input_buffer_max_bytes)
        self.mode = mode
        self._dead_letter, self._deduplicate = dead_letter, deduplicate
        self._commit_records, self._commit_s = commit_records, commit_ms / 1000
        self._done = _Progress()
        self._dropped: set[TopicPartition] = set()
        self._letters: Producer | None = None
        self.counts = Consumed()
        made = mode.consumer_options(group_id, **options) | ({"group_instance_id": instance} if instance else {})
        connection = as_options(kafka)
        named = [topics] if isinstance(topics, str) else topics
        self._member = Member(connection, named, made, buffer=buffer, rebalance=rebalance, finish=self._finish, dropped=self._drop)
        try:
            self._letters = Producer(AtLeastOnce(), connection) if dead_letter else None
        except BaseException:
            self._member.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._member.close()
        if self._letters is not None:
            self._letters.__exit__(kind, error, trace)

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer owns as of the last poll."""
        return self._member.assignment

    def pause(self, topic: str, partition: int) -> None:
        """Process no more records of this partition until `resume`; it stays assigned. Call it from the work or from `stop`."""
        self._member.pause(TopicPartition(topic, partition))

    def resume(self, topic: str, partition: int) -> None:
        """Process records of this partition again."""
        self._member.resume(TopicPartition(topic, partition))

    def run(self, work: Callable[[Any], object], *, stop: Callable[[], bool] = lambda: False, idle_s: float = float("inf")) -> Consumed:
        """Call `work` for each record until `stop` returns True or no record arrives for `idle_s`; commit at the end.

        A record is kafka-python's: topic, partition, offset, key, value, headers, timestamp. If `work` raises an exception, the record goes
        to the dead-letter topic. Without one, PoisonRecord ends the run and the record's offset is not committed. Raises RunStopped
        GROUP_POSITION_MISSING, GROUP_RECORDS_EXPIRED, GROUP_RECORDS_LOST or GROUP_TOPIC_RECREATED if the group cannot read on.
        """
        last_record_at = time.monotonic()
        try:
            while not stop() and time.monotonic() - last_record_at < idle_s:
                records = self._member.gather(self._commit_records, 0.0, stop)
                if records:
                    try:
                        self._batch(records, work, stop)
                    except BaseException:
                        self._rewind()
                        raise
                    records.clear()  # frees them before the next ones are gathered
                    last_record_at = time.monotonic()
                elif self._is_due():
                    self._commit()
                if self._member.waits:
                    last_record_at = time.monotonic()
        finally:
            self._commit_with_retries()
        return self.counts

    def _batch(self, records: list[Any], work: Callable[[Any], object], stop: Callable[[], bool]) -> None:
        self._dropped.clear()
        after = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
        if isinstance(self.mode, AtMostOnce) and not self._committed(after):
            self._member.forget()  # uncommitted records are read again, by us or by the partition's new owner
            return
        paused: set[TopicPartition] = set()
        for number, record in enumerate(records):
            place = TopicPartition(record.topic, record.partition)
            if stop() and isinstance(self.mode, AtLeastOnce):
                self._rewind()
                return
            if place in self._dropped or place in paused:
                continue
            if self._member.is_paused(place):
                self._member.give_back(each for each in records[number:] if (each.topic, each.partition) == place)
                paused.add(place)
                continue
            self._work(record, work)
            if isinstance(self.mode, AtLeastOnce):
                self._done.offsets[place] = record.offset + 1
                self._done.records += 1
                if self._is_due():
                    self._commit()
            if time.monotonic() - self._member.polled_at > _KEEP_ALIVE_S:
                self._member.poll(0)

    def _rewind(self) -> None:
        """Commit and rewind: unprocessed records are read again. In at_most_once they are committed already, and lost."""
        self._commit_with_retries()
        self._member.forget()

    def _work(self, record: Any, work: Callable[[Any], object]) -> None:
        attempts = self._dead_letter.attempts if self._dead_letter else 1
        for attempt in range(1, attempts + 1):
            try:
                self._once(record, work)
                return
            except StoreFailed:
                raise
            except Exception as error:
                if attempt < attempts:
                    continue
                if self._dead_letter is None or self._letters is None:
                    raise PoisonRecord(record.topic, record.partition, record.offset, error, attempts) from error
                letter = self._dead_letter.letter(record, error)
                with self._reread_all_on_failure():
                    self._letters.send(letter.topic, letter.value, key=letter.key, headers=letter.headers)
                self.counts.dead += 1

    def _once(self, record: Any, work: Callable[[Any], object]) -> None:
        event_id = self._deduplicate.event_id(record) if self._deduplicate else None
        if self._deduplicate is None or event_id is None:
            work(record)
            self.counts.worked += 1
            return
        with self._deduplicate.seen.once(event_id) as fresh:
            if fresh:
                work(record)
        self.counts.worked += fresh
        self.counts.duplicates += not fresh

    def _is_due(self) -> bool:
        done = self._done
        return done.records >= self._commit_records or (done.records > 0 and time.monotonic() - done.since >= self._commit_s)

    def _commit(self) -> bool:
        """Commit; False if it failed, as during a rebalance, when the broker accepts no offsets. A later commit repeats it.

        If their partition is revoked first, the offsets are dropped.
        """
        if self._letters is not None:
            with self._reread_all_on_failure():
                self._letters.flush()  # before the offsets: if a letter is lost after its record is committed, the record is lost
        if self._done.offsets and not self._committed(self._done.offsets):
            self._done.since = time.monotonic()
            self._done.records = 1  # due again after commit_ms
            return False
        self._done = _Progress()
        return True

    @contextmanager
    def _reread_all_on_failure(self) -> Iterator[None]:
        """If a letter fails, all records since the last commit are read again, even by a later run: it may belong to any of them."""
        try:
            yield
        except DeliveryFailed:
            self._done = _Progress()
            self._member.forget()
            raise

    def _commit_with_retries(self) -> None:
        """Retry the commit until it succeeds or the partitions are revoked, for at most `_LAST_COMMIT_WITHIN_S`."""
        deadline = time.monotonic() + _LAST_COMMIT_WITHIN_S
        while not self._commit() and time.monotonic() < deadline:
            self._member.poll(0.1)

    def _committed(self, offsets: Offsets) -> bool:
        try:
            self._member.commit(offsets)
        except KafkaError as error:
            _log.info("offsets were not committed: %r", error)
            return False
        return True

    def _finish(self, gone: set[TopicPartition]) -> Offsets:
        if self._letters is not None and self._done.records:
            return {}  # this cannot wait for letters, so the records are read again
        return {place: offset for place, offset in self._done.offsets.items() if place in gone}

    def _drop(self, gone: set[TopicPartition], finished: bool) -> None:
        self._dropped |= gone
        for place in gone:
            late = self._done.offsets.pop(place, None) is not None and not finished
            self.counts.late_commits += late
