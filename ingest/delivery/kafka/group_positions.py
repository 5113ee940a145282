"""Where a consumer group reads on: at its committed offsets. They begin with a call, and no consumer ever guesses them.

    begin_group("billing", "orders", "127.0.0.1:9092")                   # once, before the first start: at the earliest record
    begin_group("billing", "orders", "127.0.0.1:9092", at="latest")      # only what becomes visible from now on
    begin_group("billing", "orders", "127.0.0.1:9092", at={3: 1_200})    # a person's decision: go on from there in partition 3

Kafka forgets the offsets of a group that had no members for offsets.retention.minutes, and of a topic that is deleted. Such a group looks
like one that never began, so only the call tells the two apart. (docs/decisions/group-positions.md)
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    RebalanceInProgressError,
)

from ingest.delivery.kafka import position_errors
from ingest.kafka import kafka_errors
from ingest.kafka.connection import as_options, quiet
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import ANSWER_WITHIN_S, Topic, describe, describe_with_bounds, id_text, topic_state
from ingest.runtime.errors import RunStopped

At: TypeAlias = Literal["earliest", "latest"] | Mapping[int, int]

# A poll waits this long for the answer; the next poll goes on waiting.
_ASK_S: Final = 0.2
# The broker does not return offsets that an open transaction holds (KIP-447). That transaction's timeout bounds the wait.
_COMMITTED_WITHIN_S: Final = 60.0
_MARK: Final = re.compile(r"oncelake/(\d+)/([\w-]*)")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Mark:
    """The metadata of our committed offsets: the topic's id, and how many of its partitions have begun.

    So a partition without an offset is new if its number is higher; else its offset was lost.
    """

    topic_id: str
    partitions: int

    def __str__(self) -> str:
        return f"oncelake/{self.partitions}/{self.topic_id}"

    @staticmethod
    def of(committed: OffsetAndMetadata) -> _Mark | None:
        found = _MARK.fullmatch(committed.metadata or "")
        return None if found is None else _Mark(found[2], int(found[1]))

    def names_another(self, topic_id: str) -> bool:
        """Whether the topic was recreated; False if the broker has no topic ids."""
        return bool(self.topic_id and topic_id) and self.topic_id != topic_id


class _Patience:
    """With failures in a row: it ends `_COMMITTED_WITHIN_S` after the first one. A gap of that length begins another row."""

    def __init__(self) -> None:
        self._first_at = self._last_at = -math.inf

    def ends(self) -> bool:
        """A failure: whether it is one too many. Then the next one is the first of another row."""
        now = time.monotonic()
        if now - self._last_at > _COMMITTED_WITHIN_S:
            self._first_at = now
        ended = now - self._first_at > _COMMITTED_WITHIN_S
        self._last_at = -math.inf if ended else now
        return ended

    def renew(self) -> None:
        """No failure."""
        self._last_at = -math.inf


def begin_group(group_id: str, topic: str, kafka: KafkaOptions | str, at: At = "earliest") -> dict[int, int]:
    """Commit where a group begins in a topic, and return these next offsets by partition. Call it once, not at every start of a service.

    `at` can be "latest": the group then reads what becomes visible from now on, also records of transactions that are open. Next offsets
    by partition, as an error of a consumer names them, also move a group that has begun; all other partitions stay where they are.

    Raises Refused GROUP_BEGUN or GROUP_ACTIVE, InvalidInput GROUP_OFFSETS, and the errors of ingest.kafka.topic.describe.
    """
    connection = as_options(kafka)
    with quiet():
        now = describe(connection, topic)
        state = topic_state(connection, now, "read_committed")
        with _client(connection, group_id) as client:
            have = {number: found.offset for number, found in _committed(client, now).items() if not _of_another(found, now.id)}
            if at in ("earliest", "latest"):
                if have:
                    raise position_errors.begun(group_id, topic, connection.bootstrap_servers, have)
                begin = {number: first for number, (first, _) in state.bounds.items()} if at == "earliest" else state.ends()
            else:
                begin = position_errors.checked_offsets(topic, at, state.bounds, have)
            mark = _Mark(now.id, len(now.partitions))
            try:
                marked = {TopicPartition(topic, number): _with_mark(offset, mark) for number, offset in begin.items()}
                client.commit(marked, timeout_ms=ANSWER_WITHIN_S * 1000)
            except CommitFailedError as error:
                raise position_errors.active(group_id) from error
    return begin


class GroupPositions:
    """The committed offsets of the group of `consumer`, for its member. For the thread that polls; `marked` for any."""

    def __init__(self, consumer: Any, kafka: KafkaOptions, group_id: str) -> None:
        self._consumer, self._kafka, self._group_id = consumer, kafka, group_id
        self._servers = kafka.bootstrap_servers
        self._marks: dict[str, _Mark] = {}
        self._asking, self._beginning = _Patience(), _Patience()

    def take(self, places: set[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offsets of assigned partitions. Those that the broker does not return yet are left out: ask again.

        A new partition begins at its first record, which is committed here. Raises RunStopped GROUP_POSITION_MISSING or
        GROUP_TOPIC_RECREATED, the errors of ingest.kafka.topic.describe, KafkaTimeoutError after a minute without an answer, and the
        KafkaError for which that commit fails: at once if trying again is useless, else after a minute.
        """
        try:
            committed = self._consumer._coordinator.fetch_committed_offsets(places, timeout_ms=_ASK_S * 1000)
        except KafkaTimeoutError:
            if self._asking.ends():
                raise
            return {}
        self._asking.renew()
        taken: dict[TopicPartition, int] = {}
        for topic in sorted({place.topic for place in places}):
            numbers = {place.partition for place in places if place.topic == topic}
            taken |= self._take(topic, numbers, {place.partition: found for place, found in committed.items() if place.topic == topic})
        return taken

    def _take(self, topic: str, numbers: set[int], committed: Mapping[int, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        marks = [mark for mark in map(_Mark.of, committed.values()) if mark is not None]
        self._check_topic(topic, self._topic_id(topic), marks)
        new: set[int] = set()
        there = len(self._consumer.partitions_for_topic(topic) or ())
        # An offset is missing, or was committed by another program or an earlier version of this one; or the topic has grown since.
        if len(marks) < len(numbers) or there > max(mark.partitions for mark in marks):
            new, mark = self._look(topic, numbers - committed.keys())
            marks.append(mark)
        if topic in self._marks:
            marks.append(self._marks[topic])
        self._marks[topic] = max(marks, key=lambda mark: (mark.partitions, mark.topic_id))
        if new:
            begin = self.marked({TopicPartition(topic, number): 0 for number in new})
            try:
                self._consumer.commit(begin, timeout_ms=ANSWER_WITHIN_S * 1000)
                self._beginning.renew()
            except KafkaError as error:
                # A rebalance passes: the partitions may be about to get another owner.
                passes = error.retriable or isinstance(error, CommitFailedError | RebalanceInProgressError)
                if not passes or self._beginning.ends():
                    raise
                _log.info("the new partitions %s%s have not begun yet: %r", topic, sorted(new), error)
                new = set()
        return {TopicPartition(topic, number): committed[number].offset if number in committed else 0 for number in committed.keys() | new}

    def _look(self, topic: str, missing: set[int]) -> tuple[set[int], _Mark]:
        """Which of the missing partitions are new, and the mark of our offsets from now on. Raises RunStopped for lost offsets."""
        now, limits, have = self._ask(topic)
        marks = [mark for mark in map(_Mark.of, have.values()) if mark is not None]
        self._check_topic(topic, now.id, marks)
        missing = missing & limits.keys()  # a partition of a topic that is gone can still be assigned
        begun = max((mark.partitions for mark in marks), default=0)
        if lost := {number for number in missing if not have or number < begun or limits[number][0] > 0}:
            within = {number: limits[number] for number in lost}
            raise position_errors.missing(self._group_id, topic, self._servers, within, begun=bool(have))
        complete = limits.keys() <= have.keys() | missing
        return missing, _Mark(now.id, len(limits) if complete else begun)

    def marked(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """These next offsets of taken partitions, as they have to be committed."""
        return {place: _with_mark(offset, self._marks[place.topic]) for place, offset in offsets.items()}

    def check_topics(self) -> None:
        """Raise RunStopped GROUP_TOPIC_RECREATED if the client has learned that a topic is another one. Asks no broker otherwise."""
        for topic, mark in self._marks.items():
            self._check_topic(topic, self._topic_id(topic), [mark])

    def explain(self, error: KafkaError) -> RunStopped:
        """The error for a position at which the broker has no record. Raises the errors of ingest.kafka.topic.describe."""
        truncated = isinstance(error, LogTruncationError)
        places: Mapping[TopicPartition, Any] = error.divergent_offsets if truncated else error.args[0]
        (topic, number), at = next(iter(places.items()))
        now, limits, have = self._ask(topic)
        self._check_topic(topic, now.id, [self._marks[topic]])
        first, end = limits[number]
        if truncated:
            to, why = (first, "they were replaced by others") if at is None else (at.offset, f"from the offset {at.offset} on")
            return position_errors.lost(self._group_id, topic, self._servers, number, why, to)
        if at >= first:
            why = f"it ended before the offset {at}, and ends at {end} now"
            return position_errors.lost(self._group_id, topic, self._servers, number, why, min(at, end))
        positions = {other: found.offset for other, found in have.items()} | {number: at}
        gaps = {each: (offset, limits[each][0]) for each, offset in positions.items() if offset < limits[each][0]}
        return position_errors.expired(self._group_id, topic, self._servers, gaps)

    def _ask(self, topic: str) -> tuple[Topic, dict[int, tuple[int, int]], dict[int, OffsetAndMetadata]]:
        """The topic, its first offsets and ends, and the group's committed offsets, also those of partitions of other members."""
        with quiet():
            now, limits = describe_with_bounds(self._kafka, topic, ANSWER_WITHIN_S)
            with _client(self._kafka, self._group_id) as client:
                return now, limits, _committed(client, now)

    def _check_topic(self, topic: str, topic_id: str, marks: Iterable[_Mark]) -> None:
        for mark in marks:
            if mark.names_another(topic_id):
                _, limits, _ = self._ask(topic)
                raise position_errors.recreated(self._group_id, topic, self._servers, limits, mark.topic_id, topic_id)

    def _topic_id(self, topic: str) -> str:
        return id_text(self._consumer._cluster.topic_id(topic))


def _committed(client: Any, topic: Topic) -> dict[int, OffsetAndMetadata]:
    """The group's committed offsets in a topic, by partition; without those that an open transaction holds."""
    places = [TopicPartition(topic.name, number) for number in topic.partitions]
    found = client._coordinator.fetch_committed_offsets(places, timeout_ms=ANSWER_WITHIN_S * 1000)
    return {place.partition: committed for place, committed in found.items()}


def _of_another(committed: OffsetAndMetadata, topic_id: str) -> bool:
    mark = _Mark.of(committed)
    return mark is not None and mark.names_another(topic_id)


def _with_mark(offset: int, mark: _Mark) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, str(mark), -1)


@contextmanager
def _client(kafka: KafkaOptions, group_id: str) -> Iterator[Any]:
    """A client that reads and commits the group's offsets without being a member."""
    settings: dict[str, Any] = {"group_id": group_id, "enable_auto_commit": False, "isolation_level": "read_uncommitted"}
    try:
        client = KafkaConsumer(**kafka.for_python(), **settings, metrics_enabled=False, bootstrap_timeout_ms=ANSWER_WITHIN_S * 1000)
        try:
            yield client
        finally:
            client.close(autocommit=False)
    except GroupAuthorizationFailedError as error:
        raise position_errors.group_forbidden(kafka, group_id) from error
    except KafkaError as error:
        raise kafka_errors.unreachable(kafka.bootstrap_servers, type(error).__name__).environment_error() from error
