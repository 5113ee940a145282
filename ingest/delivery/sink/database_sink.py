"""A consumer that stores the rows of each event in PostgreSQL exactly once.

    def write(connection, records):
        connection.execute(insert(payments), [row(record) for record in records])

    with Sink("payments", "shop.payment", write, "postgresql://…", "127.0.0.1:9092") as sink:
        sink.run(stop=stopping.is_set)

One transaction contains the business rows, the event ids and the next offset. A sink starts at the offsets in the database; those in Kafka
are only for tools that show the lag.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from kafka import TopicPartition
from kafka.errors import KafkaError, LogTruncationError, OffsetOutOfRangeError, RetriableError
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.delivery.database.tables import NAME_CHARACTERS_MAX
from ingest.delivery.kafka.buffer import Buffer
from ingest.delivery.kafka.member import Member
from ingest.delivery.kafka.mode import AtLeastOnce
from ingest.delivery.sink.claims import Claims, Fenced, StartingOffsets
from ingest.delivery.sink.record_id import EventId, header
from ingest.delivery.sink.sink_errors import database_silent, passes, statement_refused, topic_recreated
from ingest.delivery.sink.store import Store, Write
from ingest.kafka import kafka_errors
from ingest.kafka.connection import as_options
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import PASSING
from ingest.runtime.errors import IngestError, InvalidEnvironment, InvalidInput

BATCH: Final = 500
# A restart or failover of PostgreSQL or of the brokers takes less.
_ANSWER_WITHIN_S: Final = 60.0
_PAUSE_S, _PAUSE_S_MAX = 0.1, 2.0
_KAFKA_OFFSETS_EVERY_S: Final = 1.0
_KAFKA_OFFSETS_WITHIN_S: Final = 2.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """Counts of a run, in records up to `dead`. A transaction whose commit was not answered is not counted; `ingest sink status` has it.

    `repeated`: transactions that were rolled back because the database was lost or refused them for now, and tried again. `fenced`:
    partitions that another owner had claimed when a transaction began.
    """

    stored: int = 0
    duplicates: int = 0
    dead: int = 0
    repeated: int = 0
    fenced: int = 0


class Sink(AbstractContextManager["Sink"]):
    """Reads `topics` as a member of the consumer group `name`, and calls `write` with new events. A context manager; for one thread.

    `write(connection, records)` inserts the business rows of up to `batch` records of one partition, in their order, and neither commits
    nor rolls back. It may be called again for records whose transaction did not commit, so its other side effects happen at least once.
    `event_id` returns a record's id: 1 to 255 characters, unique within the sink over all its topics. A record whose id is stored already
    is counted as a duplicate and skipped.

    A record on which `write` fails alone `attempts` times, or without a usable event id, goes to the table oncelake_dead_letter. With
    `dead_letter=False` it ends the run with PoisonRecord. `starting_offsets` is where the first start of a sink begins; partitions that
    are added later are read from their beginning. `database` is a URL, or an engine with driver psycopg. `instance` makes it a static
    member. `consumer_options` are kafka-python's; isolation_level is read_committed unless they say otherwise.

    Raises InvalidInput SINK_OPTION or SINK_AUTOCOMMIT, the errors of `connect`, Refused SCHEMA_MISSING, SCHEMA_NEWER or SCHEMA_CHANGED,
    GuaranteeBroken, and the errors of `Member`.
    """

    def __init__(
        self,
        name: str,
        topics: str | Iterable[str],
        write: Write,
        database: Engine | str,
        kafka: KafkaOptions | str,
        *,
        event_id: EventId | None = None,
        batch: int = BATCH,
        attempts: int = 1,
        dead_letter: bool = True,
        starting_offsets: StartingOffsets = "earliest",
        instance: str | None = None,
        on_step: Callable[[str], object] = lambda step: None,
        consumer_options: dict[str, Any] | None = None,
    ) -> None:
        if not 1 <= len(name) <= NAME_CHARACTERS_MAX or batch < 1 or attempts < 1:
            expected = f"a name of 1 to {NAME_CHARACTERS_MAX} characters, at least 1 of the others."
            raise InvalidInput("SINK_OPTION", f"{name=}, {batch=}, {attempts=}.", expected=expected, remedy="correct them.")
        options = {"max_poll_records": batch, **(consumer_options or {})} | ({"group_instance_id": instance} if instance else {})
        options = AtLeastOnce().consumer_options(name, **options)
        self._name, self._batch, self._kafka = name, batch, as_options(kafka)
        self.counts = Counts()
        self._failing: dict[TopicPartition, float] = {}  # since when
        self._unreported: dict[TopicPartition, int] = {}  # next offsets that Kafka does not know yet
        self._reported_at = time.monotonic()
        self._own_engine = isinstance(database, str)
        self._engine = connect(database) if isinstance(database, str) else database
        try:
            schema.check(self._engine)
            self._claims = Claims(self._engine, name, self._kafka, starting_offsets, on_step)
            event_id = event_id or header("id")
            self._store = Store(self._engine, name, write, event_id, self._claims, on_step, attempts=attempts, dead_letter=dead_letter)
            named = [topics] if isinstance(topics, str) else list(topics)
            hooks: dict[str, Any] = {"finish": self._finish, "dropped": self._drop, "positions": self._claims.take}
            self._member = Member(self._kafka, named, options, buffer=Buffer(), **hooks)
        except BaseException:
            self._release()
            raise

    def __exit__(self, *_: object) -> None:
        self._member.close()
        self._release()

    def run(self, *, stop: Callable[[], bool] = lambda: False, idle_s: float = float("inf")) -> Counts:
        """Run until `stop` returns True or no record arrives for `idle_s`. A transaction that has begun is finished first.

        Waits up to a minute for a database or brokers that do not answer. Raises PoisonRecord, InvalidInput SINK_WRITE_COMMITS, RunStopped
        SINK_RECORDS_EXPIRED, SINK_TOPIC_RECREATED, SINK_STATEMENT_REFUSED or SINK_WRITE_ENDED, InvalidEnvironment DATABASE_UNREACHABLE,
        DATABASE_LOGIN or BROKER_UNREACHABLE, and kafka.errors.KafkaError. Another run continues at the stored offsets.
        """
        began_at = last_record_at = answered_at = time.monotonic()
        pause_s = _PAUSE_S
        self._failing.clear()
        try:
            while not stop() and time.monotonic() - last_record_at < idle_s:
                try:
                    records = self._member.gather(self._batch, 0.0, stop)
                    answered_at = time.monotonic()
                    if self._member.waits or (not self._member.assignment and answered_at - began_at < _ANSWER_WITHIN_S):
                        last_record_at = answered_at  # for a position, or the group still waits for a member that was killed
                    for place, of_place in _by_place(records).items():
                        self._partition(place, of_place)
                    if records:
                        records.clear()  # frees them before the next ones are gathered
                        last_record_at, pause_s = time.monotonic(), _PAUSE_S
                    self._claims.check_topics()
                    self._report()
                except Exception as error:
                    if isinstance(error, OffsetOutOfRangeError):
                        self._claims.check_positions()
                    self._forget()
                    if not _may_pass(error):
                        raise
                    if time.monotonic() - min([answered_at, *self._failing.values()]) > _ANSWER_WITHIN_S:
                        self._give_up(error)
                    _log.info("no answer from the database or the brokers, trying again: %r", error)
                    _wait(pause_s, stop)
                    pause_s = min(2 * pause_s, _PAUSE_S_MAX)
                    last_record_at = time.monotonic()  # an outage does not count as idle time
        except LogTruncationError as error:
            place = next(iter(error.divergent_offsets))
            why = f"partition {place.partition} has lost records that were read (unclean leader election)"
            raise topic_recreated(self._name, place.topic, why) from error
        except DBAPIError as error:
            raise statement_refused(error) from None  # the cause would show the statement's parameters
        except BaseException:
            self._forget()
            raise
        finally:
            self._report(last=True)
        return self.counts

    def _partition(self, place: TopicPartition, records: Sequence[Any]) -> None:
        try:
            for done in self._store.store(place, records):
                self.counts.stored += done.stored
                self.counts.duplicates += done.duplicates
                self.counts.dead += done.dead
                self._unreported[place] = done.end
            self._failing.pop(place, None)
        except Fenced:
            # The poll that follows finds out whether the group gave the partition away. If it is still ours, it is claimed again.
            _log.warning("another owner has claimed %s[%d]; its records are read again", *place)
            self.counts.fenced += 1
            self._drop({place}, False)
            self._member.forget(place)
        except Exception as error:
            if _may_pass(error):
                self.counts.repeated += 1
                self._failing.setdefault(place, time.monotonic())
            raise

    def _give_up(self, error: Exception) -> NoReturn:
        if isinstance(error, InvalidEnvironment):
            raise error
        if isinstance(error, KafkaError):
            raise kafka_errors.unreachable(self._kafka.bootstrap_servers, type(error).__name__).environment_error() from error
        raise database_silent(self._engine.url, error, _ANSWER_WITHIN_S) from None

    def _report(self, *, last: bool = False) -> None:
        """Commit the stored offsets to Kafka, for tools that show the lag. Nothing reads them, so a failure does not matter."""
        if self._unreported and (last or time.monotonic() - self._reported_at > _KAFKA_OFFSETS_EVERY_S):
            with suppress(KafkaError):
                self._member.commit(self._unreported, _KAFKA_OFFSETS_WITHIN_S)
                self._unreported.clear()
            self._reported_at = time.monotonic()

    def _finish(self, gone: set[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: offset for place, offset in self._unreported.items() if place in gone}

    def _drop(self, gone: set[TopicPartition], finished: bool) -> None:
        self._claims.drop(gone)
        for place in gone:
            self._unreported.pop(place, None)
            self._failing.pop(place, None)

    def _forget(self) -> None:
        """Claim all partitions again at the next poll, also in a second run, which would otherwise skip records."""
        self._claims.drop()
        self._member.forget()

    def _release(self) -> None:
        if self._own_engine:
            self._engine.dispose()


def _by_place(records: Iterable[Any]) -> dict[TopicPartition, list[Any]]:
    found: dict[TopicPartition, list[Any]] = {}
    for record in records:
        found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
    return found


def _may_pass(error: Exception) -> bool:
    if isinstance(error, IngestError):
        return isinstance(error, InvalidEnvironment) and error.code in PASSING
    return isinstance(error, RetriableError | OffsetOutOfRangeError) or passes(error)


def _wait(seconds: float, stop: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not stop() and time.monotonic() < until:
        time.sleep(min(0.05, seconds))
