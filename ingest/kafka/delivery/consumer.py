"""A consumer that commits its offsets before the work (at_most_once) or after it (at_least_once), never by a clock.

    with Consumer(AtLeastOnce(), ["orders"], "billing", "127.0.0.1:9092", dead_letter=DeadLetter("orders.dead")) as consumer:
        consumer.run(work, stop=stopping.is_set)

Exactly once is no property of a consumer alone: its offsets have to be committed together with the work's result. That is
`transform` where the result goes to Kafka, `SeenIds` where it goes to a database, and the MERGE of `ingest run` for the lake.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from kafka import TopicPartition
from kafka.errors import KafkaError

from ingest.kafka.delivery.buffer import INPUT_BUFFER_MAX_BYTES, Buffer
from ingest.kafka.delivery.connection import as_options
from ingest.kafka.delivery.delivery_errors import DeliveryFailed, GuaranteeBroken, PoisonRecord, StoreFailed
from ingest.kafka.delivery.member import Member, Offsets, Rebalance
from ingest.kafka.delivery.mode import AtLeastOnce, AtMostOnce, DeliveryMode
from ingest.kafka.delivery.poison import DeadLetter
from ingest.kafka.delivery.producer import Producer
from ingest.kafka.delivery.seen import SeenIds
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidInput

# Between two records: so that a slow piece of work does not hold a rebalance up, and none is thrown out of the group.
_KEEP_ALIVE_S: Final = 1.0
# A rebalance takes as long as the slowest member takes to come to its next poll.
_LAST_COMMIT_WITHIN_S: Final = 10.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Consumed:
    """What a run did: records worked on, copies passed over, records put away, and how often a partition went away before the
    offset of what was done there could be committed."""

    worked: int = 0
    duplicates: int = 0
    dead: int = 0
    late_commits: int = 0


@dataclass(frozen=True)
class Deduplicate:
    """How copies are recognised: `event_id` takes a record and gives its id (None: no id, always worked on)."""

    seen: SeenIds
    event_id: Callable[[Any], str | None]


@dataclass
class _Progress:
    """Next offsets of what is done and not committed."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    records: int = 0
    since: float = field(default_factory=time.monotonic)


class Consumer:
    """Reads `topics` as a member of `group_id`. A context manager; for one thread.

    Offsets are committed every `commit_records` records or `commit_ms`, when partitions go away, and at the end. `instance` makes it a
    static member: after a restart it gets its partitions back without a rebalance. Records that were fetched before their turn take up
    to `input_buffer_max_bytes` (64 MB; called as in Kafka Streams), shared out evenly over the partitions, and a fetch of each besides.
    `options` are kafka-python's, checked against the mode. Raises GuaranteeBroken, InvalidInput COMMIT_EVERY, INPUT_BUFFER, TOPIC_UNKNOWN,
    REBALANCE_UNKNOWN or CLIENT_OPTIONS, InvalidEnvironment BROKER_UNREACHABLE.
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
            guarantee = "offsets that are committed apart from the work's result are lost or doubled by a crash between the two"
            raise GuaranteeBroken(mode.name, "Consumer", "alone", expected="transform() in its place", guarantee=guarantee)
        if isinstance(mode, AtMostOnce) and dead_letter is not None and dead_letter.attempts > 1:
            option, guarantee = "dead_letter.attempts", "work that failed half way would be done twice"
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

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._member.close()
        if self._letters is not None:
            self._letters.__exit__(kind, error, trace)

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are ours as of the last poll."""
        return self._member.assignment

    def pause(self, topic: str, partition: int) -> None:
        """Work on no more records of this partition until `resume`; it stays ours. To be called from the work or from `stop`."""
        self._member.pause(TopicPartition(topic, partition))

    def resume(self, topic: str, partition: int) -> None:
        """See pause."""
        self._member.resume(TopicPartition(topic, partition))

    def run(self, work: Callable[[Any], object], *, stop: Callable[[], bool] = lambda: False, idle_s: float = float("inf")) -> Consumed:
        """Give each record to `work` until `stop` says so or nothing has come for `idle_s`; what is done is committed at the end.

        A record is kafka-python's: topic, partition, offset, key, value, headers, timestamp. What `work` raises makes the record
        poison: it goes to the dead-letter topic, or PoisonRecord ends the run with the record's offset not committed.
        """
        came = time.monotonic()
        try:
            while not stop() and time.monotonic() - came < idle_s:
                records = self._member.gather(self._commit_records, 0.0, stop)
                if records:
                    try:
                        self._batch(records, work, stop)
                    except BaseException:
                        self._back()
                        raise
                    records.clear()  # not held while the next ones are gathered
                    came = time.monotonic()
                elif self._is_due():
                    self._commit()
        finally:
            self._commit_surely()
        return self.counts

    def _batch(self, records: list[Any], work: Callable[[Any], object], stop: Callable[[], bool]) -> None:
        self._dropped.clear()
        if isinstance(self.mode, AtMostOnce) and not self._committed(_after(records)):
            self._member.forget()  # if it was not done, and they are still ours, they come again; another member may have them
            return
        rests: set[TopicPartition] = set()
        for number, record in enumerate(records):
            place = TopicPartition(record.topic, record.partition)
            if stop() and isinstance(self.mode, AtLeastOnce):
                self._back()
                return
            if place in self._dropped or place in rests:
                continue
            if self._member.is_paused(place):
                self._member.give_back(each for each in records[number:] if (each.topic, each.partition) == place)
                rests.add(place)
                continue
            self._work(record, work)
            if isinstance(self.mode, AtLeastOnce):
                self._done.offsets[place] = record.offset + 1
                self._done.records += 1
                if self._is_due():
                    self._commit()
            if time.monotonic() - self._member.polled_at > _KEEP_ALIVE_S:
                self._member.poll(0)

    def _back(self) -> None:
        """What was taken and not worked on comes again; in at_most_once it is committed already, and lost."""
        self._commit_surely()
        self._member.rewind()

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
                with self._or_all_again():
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
        """False while a rebalance is under way: the broker takes no offsets then. They wait, or go with their partition."""
        if self._letters is not None:
            with self._or_all_again():
                self._letters.flush()  # first: a letter that is lost while its record counts as done is a lost record
        if self._done.offsets and not self._committed(self._done.offsets):
            self._done.since = time.monotonic()
            self._done.records = 1  # due again after commit_ms
            return False
        self._done = _Progress()
        return True

    @contextmanager
    def _or_all_again(self) -> Iterator[None]:
        """A letter that did not arrive may be of any record since the last commit: they all come again, also after the run's end."""
        try:
            yield
        except DeliveryFailed:
            self._done = _Progress()
            self._member.forget()
            raise

    def _commit_surely(self) -> None:
        """What is done is committed, or its partitions are gone."""
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
            return {}  # letters cannot be waited for here; the records come again instead
        return {place: offset for place, offset in self._done.offsets.items() if place in gone}

    def _drop(self, gone: set[TopicPartition], finished: bool) -> None:
        self._dropped |= gone
        for place in gone:
            late = self._done.offsets.pop(place, None) is not None and not finished
            self.counts.late_commits += late


def _after(records: list[Any]) -> dict[TopicPartition, int]:
    return {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
