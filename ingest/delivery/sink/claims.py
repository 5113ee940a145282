"""Which partitions this process reads, and from where: the rows of oncelake_sink_offset.

Claiming a partition raises its epoch. Each transaction of the owner first moves the offset under its own epoch. So a former owner, one
that was paused or cut off from the group, changes no row and is fenced, whatever it believes.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from kafka import TopicPartition
from sqlalchemy import ColumnElement, Connection, Engine, and_, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from ingest.delivery.database.tables import NAME_CHARACTERS_MAX, sink_offset
from ingest.delivery.sink.sink_errors import records_expired, topic_recreated
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import ANSWER_WITHIN_S, Topic, describe, describe_with_bounds, topic_state

StartingOffsets: TypeAlias = Literal["earliest", "latest"]
# A recreated topic that is longer than the old one gives no error. Its records are found out this soon; until then their ids protect.
_TOPIC_CHECKED_EVERY_S: Final = 5.0
# A transaction waits this long for a row that another one has locked. Then it starts anew, and the member can poll in between: the lock
# may be that of a stopped process, whose partition this member is to claim.
_LOCK_TIMEOUT: Final = func.set_config("lock_timeout", "10s", True)
# PostgreSQL's idle_in_transaction_session_timeout would not do: its clock does not start after an executemany of psycopg, which sends a
# Flush behind the Sync.
_IDLE_S: Final = 5.0
_END_SLEEPERS: Final = text(
    f"""
    SELECT pg_terminate_backend(session.pid) FROM {sink_offset.name} AS claimed
    JOIN pg_locks AS held ON held.locktype = 'transactionid' AND held.transactionid = claimed.xmax AND held.granted
    JOIN pg_stat_activity AS session ON session.pid = held.pid
    WHERE claimed.sink = :sink AND claimed.topic = :topic AND claimed.partition = ANY(:partitions)
    AND session.state LIKE 'idle in transaction%' AND session.state_change < clock_timestamp() - make_interval(secs => :idle_s)
    """
)

_log = logging.getLogger(__name__)


class Fenced(Exception):
    """Thrown inside a transaction of a partition that another owner has claimed. The transaction must be rolled back."""


@dataclass(slots=True)
class Claim:
    """A claimed partition. `next_offset` is the stored one, as of our last transaction."""

    topic_id: str
    epoch: int
    next_offset: int


class Claims:
    """The claims of one sink in one process."""

    def __init__(self, engine: Engine, sink: str, kafka: KafkaOptions, starting: StartingOffsets, on_step: Callable[[str], object]) -> None:
        self._engine, self._sink, self._kafka, self._starting, self._step = engine, sink, kafka, starting, on_step
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"[-NAME_CHARACTERS_MAX:]
        self._held: dict[TopicPartition, Claim] = {}
        self._checked_at, self._moved = time.monotonic(), False

    def take(self, places: set[TopicPartition]) -> dict[TopicPartition, int]:
        """Claim these partitions; return the offsets to read from. A partition whose row another transaction has locked is left out.

        Raises RunStopped SINK_TOPIC_RECREATED, InvalidEnvironment as `describe` does, and DBAPIError.
        """
        for topic in sorted({place.topic for place in places}):
            self._take(topic, {place.partition for place in places if place.topic == topic})
        return {place: self._held[place].next_offset for place in places if place in self._held}

    def topic_id(self, place: TopicPartition) -> str:
        """The id of a claimed partition's topic. Raises Fenced."""
        return self._claim(place).topic_id

    def advance(self, connection: Connection, place: TopicPartition, first: int, end: int) -> None:
        """Move the stored offset of a claimed partition to `end`, in the caller's transaction, which locks its row. Raises Fenced.

        `first` is the first offset that the transaction contains.
        """
        claim = self._claim(place)
        if first < claim.next_offset:
            raise Fenced(place)  # read before the claim; they are read again
        statement = (
            update(sink_offset)
            .where(self._of(place.topic), sink_offset.c.partition == place.partition)
            .where(sink_offset.c.epoch == claim.epoch, sink_offset.c.next_offset == claim.next_offset)
            .values(next_offset=end, updated_at=func.now())
            .returning(_LOCK_TIMEOUT)
        )
        if connection.execute(statement).first() is None:
            raise Fenced(place)

    def advanced(self, place: TopicPartition, end: int) -> None:
        """Note that the transaction of `advance` was committed."""
        self._claim(place).next_offset = end
        self._moved = True

    def drop(self, places: set[TopicPartition] | None = None) -> None:
        """Forget claims (None: all). The rows stay; the next owner raises their epoch."""
        for place in set(self._held) if places is None else places:
            self._held.pop(place, None)

    def check_topics(self) -> None:
        """Some seconds after new records, check that the topics are still the same. Raises RunStopped SINK_TOPIC_RECREATED."""
        if not self._moved or time.monotonic() - self._checked_at < _TOPIC_CHECKED_EVERY_S:
            return
        for name in {place.topic for place in self._held}:
            now = describe(self._kafka, name)
            for place, claim in self._held.items():
                if place.topic == name:
                    self._same_topic(now, claim.topic_id)
        self._checked_at, self._moved = time.monotonic(), False

    def check_positions(self) -> None:
        """Find out why a broker has no record at one of our positions. Returns if all stored offsets can be read.

        Raises RunStopped SINK_RECORDS_EXPIRED or SINK_TOPIC_RECREATED, and InvalidEnvironment as `describe` does.
        """
        for name in {place.topic for place in self._held}:
            topic, limits = describe_with_bounds(self._kafka, name, ANSWER_WITHIN_S)
            for place, claim in self._held.items():
                if place.topic == name:
                    self._same_topic(topic, claim.topic_id)
                    (first, end), stored = limits[place.partition], claim.next_offset
                    if stored < first:
                        raise records_expired(self._sink, place, stored, first)
                    if stored > end:
                        why = f"partition {place.partition} ends at {end}, before the stored offset {stored}"
                        raise topic_recreated(self._sink, name, why)

    def _take(self, name: str, partitions: set[int]) -> None:
        """Steps: 1 add missing rows; 2 lock the rows that nobody else has locked; 3 check their topic; 4 raise their epochs.

        The group has given these partitions to us. So a transaction that still locks one belongs to a former owner. If it does nothing
        for some seconds, its process or its machine was stopped, and we end it.
        """
        topic = describe(self._kafka, name)
        with self._engine.begin() as connection:
            connection.execute(select(_LOCK_TIMEOUT))
            self._add_missing(connection, topic)
            columns = (sink_offset.c.partition, sink_offset.c.topic_id, sink_offset.c.epoch, sink_offset.c.next_offset)
            mine = and_(self._of(name), sink_offset.c.partition.in_(sorted(partitions)))
            rows = connection.execute(select(*columns).where(mine).with_for_update(skip_locked=True)).all()
            if locked := partitions - {row.partition for row in rows}:
                where = {"sink": self._sink, "topic": name, "partitions": sorted(locked), "idle_s": _IDLE_S}
                ended = connection.execute(_END_SLEEPERS, where).all()
                _log.warning("former owners have locked %s%s; ended %d sleeping transactions", name, sorted(locked), len(ended))
            for row in rows:
                self._same_topic(topic, row.topic_id)
            claimed = and_(self._of(name), sink_offset.c.partition.in_([row.partition for row in rows]))
            change = {"epoch": sink_offset.c.epoch + 1, "owner": self.owner, "updated_at": func.now()}
            connection.execute(update(sink_offset).where(claimed).values(change))
            self._step("claiming")
        self._step("claimed")
        self._held |= {TopicPartition(name, row.partition): Claim(row.topic_id, row.epoch + 1, row.next_offset) for row in rows}
        _log.info("sink %s claimed %s", self._sink, [f"{name}[{row.partition}]@{row.next_offset}" for row in rows])

    def _add_missing(self, connection: Connection, topic: Topic) -> None:
        """The first claim of a topic adds all its partitions. So a missing one is new, and with "latest" too it is read from offset 0.

        If the record at offset 0 is gone, the first poll stops with SINK_RECORDS_EXPIRED.
        """
        known = set(connection.scalars(select(sink_offset.c.partition).where(self._of(topic.name))))
        if missing := [each for each in topic.partitions if each not in known]:
            begin: Mapping[int, int] = dict.fromkeys(missing, 0)
            if not known:
                state = topic_state(self._kafka, topic, "read_committed")  # records of a transaction that is open come after "latest"
                firsts = {each: first for each, (first, _) in state.bounds.items()}
                begin = firsts if self._starting == "earliest" else state.ends()
            common = {"sink": self._sink, "topic": topic.name, "topic_id": topic.id, "epoch": 0, "owner": ""}
            rows = [{**common, "partition": each, "next_offset": begin[each]} for each in missing]
            connection.execute(insert(sink_offset).on_conflict_do_nothing(), rows)

    def _same_topic(self, now: Topic, stored: str) -> None:
        if now.id and stored and now.id != stored:
            raise topic_recreated(self._sink, now.name, f"its id was {stored} and is now {now.id}")

    def _claim(self, place: TopicPartition) -> Claim:
        if place not in self._held:
            raise Fenced(place)
        return self._held[place]

    def _of(self, topic: str) -> ColumnElement[bool]:
        return and_(sink_offset.c.sink == self._sink, sink_offset.c.topic == topic)
