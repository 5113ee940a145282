"""One batch of one partition in one database transaction: offset, event ids, business rows and dead letters."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kafka import TopicPartition
from psycopg.pq import TransactionStatus
from sqlalchemy import BigInteger, Connection, Engine, Integer, Text, bindparam, event, func, literal_column, select
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.exc import DBAPIError

from ingest.delivery.database.tables import sink_event
from ingest.delivery.kafka.delivery_errors import PoisonRecord
from ingest.delivery.sink.claims import Claims
from ingest.delivery.sink.dead_letters import bury
from ingest.delivery.sink.record_id import EventId, checked
from ingest.delivery.sink.sink_errors import RecordFailed, autocommit, is_of_a_record, passes, write_commits, write_ended
from ingest.runtime.errors import IngestError

Write: TypeAlias = Callable[[Connection, Sequence[Any]], object]


def _insert_ids() -> Any:
    """Insert ids, or count a copy of those that are there. Sorted: two transactions with the same ids must lock them in the same order."""
    columns = [bindparam(name, type_=ARRAY(kind)) for name, kind in (("ids", Text), ("offsets", BigInteger), ("copies", Integer))]
    given = func.unnest(*columns).table_valued("event_id", "offset", "copies", name="given").render_derived()
    place: tuple[Any, ...] = (bindparam("sink"), bindparam("topic"), bindparam("partition", type_=Integer))
    rows = select(*place, given.c.event_id, given.c.offset, given.c.copies).order_by(given.c.event_id)
    insertion = insert(sink_event).from_select(["sink", "topic", "partition", "event_id", "offset", "duplicates"], rows)
    more = sink_event.c.duplicates + literal_column("1") + insertion.excluded.duplicates
    counted = insertion.on_conflict_do_update(index_elements=[sink_event.c.sink, sink_event.c.event_id], set_={"duplicates": more})
    return counted.returning(sink_event.c.event_id, sink_event.c.duplicates)


_INSERT_IDS: Final = _insert_ids()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """A committed transaction, in records, and the offset after them."""

    end: int
    stored: int = 0
    duplicates: int = 0
    dead: int = 0


class Store:
    """The transactions of one sink. `attempts` counts those of a record alone; `dead_letter` is what becomes of it after the last one."""

    def __init__(
        self,
        engine: Engine,
        sink: str,
        write: Write,
        event_id: EventId,
        claims: Claims,
        on_step: Callable[[str], object],
        *,
        attempts: int,
        dead_letter: bool,
    ) -> None:
        self._engine = engine.execution_options()  # a copy on the same pool: the listener sees only our transactions
        event.listen(self._engine, "commit", self._refuse_commit)
        self._writing = False
        with self._engine.begin() as connection:
            connection.execute(select(1))
            if _status(connection) != TransactionStatus.INTRANS:
                raise autocommit()
        self._sink, self._write, self._event_id, self._claims = sink, write, event_id, claims
        self._step, self._attempts, self._dead_letter = on_step, attempts, dead_letter

    def store(self, place: TopicPartition, records: Sequence[Any]) -> Iterator[Stored]:
        """Store records of a partition, in their order; yield each committed transaction.

        That is one, unless records fail. Then each half is stored by itself, down to the failing records alone. Raises PoisonRecord,
        Fenced, DBAPIError, PendingRollbackError, InvalidInput SINK_WRITE_COMMITS and RunStopped SINK_WRITE_ENDED. The open transaction is
        rolled back, unless its commit was lost on the way: then the stored offset tells its outcome.
        """
        for attempt in range(self._attempts if len(records) == 1 else 1):
            try:
                yield self._together(place, records)
                return
            except (RecordFailed, DBAPIError) as error:
                if passes(error) or (isinstance(error, DBAPIError) and not is_of_a_record(error)):
                    raise
                cause = error.cause if isinstance(error, RecordFailed) else error.orig or error
            if len(records) == 1 and attempt + 1 == self._attempts:
                yield self._bury(place, records[0], cause)
        if len(records) > 1:
            middle = len(records) // 2
            yield from self.store(place, records[:middle])
            yield from self.store(place, records[middle:])

    def _together(self, place: TopicPartition, records: Sequence[Any]) -> Stored:
        """Steps: 1 move the offset; 2 bury records without an id; 3 insert the ids; 4 call `write` with the records whose ids are new."""
        topic_id = self._claims.topic_id(place)
        first, copies, dead = self._identified(records)
        if dead and not self._dead_letter:
            raise RecordFailed(dead[0][2])
        with self._transaction(place, records) as connection:
            bury(connection, self._sink, topic_id, dead)
            fresh = self._fresh(connection, place, first, copies) if first else []
            self._step("identified")
            if fresh:
                self._call_write(connection, place, fresh)
            self._step("written")
        return Stored(records[-1].offset + 1, len(fresh), len(records) - len(dead) - len(fresh), len(dead))

    def _bury(self, place: TopicPartition, record: Any, error: BaseException) -> Stored:
        if not self._dead_letter:
            raise PoisonRecord(place.topic, place.partition, record.offset, error, self._attempts) from error
        _log.warning("%s[%d]@%d goes to the dead letters: %s", place.topic, place.partition, record.offset, type(error).__name__)
        topic_id = self._claims.topic_id(place)
        with self._transaction(place, [record]) as connection:
            bury(connection, self._sink, topic_id, [(record, self._event_id(record), error)])
            self._step("buried")
        return Stored(record.offset + 1, dead=1)

    @contextmanager
    def _transaction(self, place: TopicPartition, records: Sequence[Any]) -> Iterator[Connection]:
        first, end = records[0].offset, records[-1].offset + 1
        with self._engine.begin() as connection:
            self._step("begun")
            self._claims.advance(connection, place, first, end)
            self._step("advanced")
            yield connection
        self._step("committed")
        self._claims.advanced(place, end)

    def _identified(self, records: Sequence[Any]) -> tuple[dict[str, Any], Counter[str], list[tuple[Any, object, BaseException]]]:
        """The first record of each id, the further copies of each id, and the records without a usable id with the reason."""
        first: dict[str, Any] = {}
        copies: Counter[str] = Counter()
        dead: list[tuple[Any, object, BaseException]] = []
        for record in records:
            found = None
            try:
                found = self._event_id(record)
                event_id = checked(found)
            except Exception as error:
                dead.append((record, found, error))
                continue
            if event_id in first:
                copies[event_id] += 1
            first.setdefault(event_id, record)
        return first, copies, dead

    def _fresh(self, connection: Connection, place: TopicPartition, first: Mapping[str, Any], copies: Counter[str]) -> list[Any]:
        """Insert the ids; return the records whose ids were not there, in their order."""
        given = {
            "sink": self._sink,
            "topic": place.topic,
            "partition": place.partition,
            "ids": list(first),
            "offsets": [record.offset for record in first.values()],
            "copies": [copies[event_id] for event_id in first],
        }
        # A new row has the copies of this batch. A row that was there has at least one more.
        rows = connection.execute(_INSERT_IDS, given)
        new = {row.event_id for row in rows if row.duplicates == copies[row.event_id]}
        return [record for event_id, record in first.items() if event_id in new]

    def _call_write(self, connection: Connection, place: TopicPartition, records: list[Any]) -> None:
        failed: Exception | None = None
        self._writing = True
        try:
            self._write(connection, records)
        except Exception as error:
            failed = error
        finally:
            self._writing = False
        # Other errors of this package come from `write` itself, for example from the outbox, and belong to a record.
        ours = isinstance(failed, IngestError) and failed.code == "SINK_WRITE_COMMITS"
        if failed is not None and (ours or (isinstance(failed, DBAPIError) and connection.invalidated)):
            raise failed
        status = _status(connection)  # raises PendingRollbackError if the connection was lost
        if status == TransactionStatus.IDLE:
            raise write_ended(place, records[0].offset, records[-1].offset) from failed
        if isinstance(failed, DBAPIError):
            raise failed
        if failed is not None:
            raise RecordFailed(failed) from failed
        if status == TransactionStatus.INERROR:
            # PostgreSQL answers the COMMIT of a failed transaction with a rollback, and psycopg reports no error.
            what = "a statement of write failed, and write went on; use `with connection.begin_nested():` for a part that may fail"
            raise RecordFailed(RuntimeError(what))

    def _refuse_commit(self, connection: Connection) -> None:
        if self._writing:
            driver: Any = connection.connection.driver_connection
            driver.rollback()  # after an error of its commit, SQLAlchemy takes the transaction for ended and would keep it open
            raise write_commits()


def _status(connection: Connection) -> TransactionStatus:
    driver: Any = connection.connection.driver_connection
    status: TransactionStatus = driver.info.transaction_status
    return status
