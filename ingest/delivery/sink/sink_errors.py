"""The errors of the database sink, and which errors of the database pass or belong to a record."""

from __future__ import annotations

from typing import Final

from kafka import TopicPartition
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, PendingRollbackError

from ingest.delivery.database.database import is_temporary
from ingest.delivery.database.database_errors import not_connected
from ingest.delivery.database.tables import sink_offset
from ingest.runtime.errors import IngestError, InvalidEnvironment, InvalidInput, RunStopped

# Classes of SQLSTATE that a record's own values cause: data exception, integrity constraint violation, check option of a view,
# program limit (a row or index entry that is too large), and errors that a trigger raises.
_OF_A_RECORD: Final = ("22", "23", "44", "54", "P0")
_LOCK_NOT_AVAILABLE: Final = "55P03"


class RecordFailed(Exception):
    """Thrown when `write` or `event_id` fails on a record; `cause` is their error."""

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause
        super().__init__(str(cause))


def passes(error: BaseException | None) -> bool:
    """Whether the transaction may succeed later. Looks at the causes too: `write` may have wrapped a lost connection or a deadlock."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        # SQLAlchemy raises the first one for the next statement after a lost connection that `write` ignored.
        if isinstance(error, PendingRollbackError) or is_temporary(error):
            return True
        # A server may end idle transactions, and with them the connection.
        if isinstance(error, DBAPIError) and (error.connection_invalidated or _state(error) == _LOCK_NOT_AVAILABLE):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_of_a_record(error: DBAPIError) -> bool:
    """Whether values of a record caused the error. Others concern the statement or the database: every record would fail alike."""
    state = _state(error)
    return state is None or state.startswith(_OF_A_RECORD)


def autocommit() -> InvalidInput:
    """The engine commits each statement: an offset would be stored without its rows."""
    found, expected = "the engine commits each statement (AUTOCOMMIT).", "an engine whose transactions end with a commit."
    return InvalidInput("SINK_AUTOCOMMIT", found, expected=expected, remedy="pass an engine without isolation_level='AUTOCOMMIT'.")


def write_commits() -> InvalidInput:
    """`write` called commit(): rows that it inserts afterwards would be in another transaction than the offset."""
    return InvalidInput(
        "SINK_WRITE_COMMITS",
        "write called commit() on its connection. The commit was refused, and nothing of this transaction is stored.",
        expected="a function that leaves the commit to the sink.",
        remedy="remove commit(); use `with connection.begin_nested():` for a part that may fail.",
    )


def write_ended(place: TopicPartition, first: int, last: int) -> RunStopped:
    """`write` ended the transaction by rollback(), or by a COMMIT in SQL. A COMMIT before further statements is not noticed."""
    return RunStopped(
        "SINK_WRITE_ENDED",
        f"write ended the transaction of {place.topic}[{place.partition}] offsets {first} to {last} itself. After rollback() nothing of it "
        "is stored; after a COMMIT in SQL, its event ids and offset are, without the rows that write inserted later.",
        expected="a function that neither commits nor rolls back.",
        remedy="remove the COMMIT or rollback() from write and check the rows of these offsets; then run again.",
    )


def statement_refused(error: DBAPIError) -> RunStopped:
    """A missing table or right: as a dead letter, every record of the topic would be one."""
    return RunStopped(
        "SINK_STATEMENT_REFUSED",
        f"PostgreSQL refuses a statement, whatever the record is (SQLSTATE {_state(error)}: {_text(error)}). The batch is not stored.",
        expected="tables, columns and rights that the statements of write need; a database that accepts writes.",
        remedy="create or grant what is missing, or correct write; then run again: it continues with the same records.",
    )


def database_silent(url: URL, error: BaseException, within_s: float) -> IngestError:
    """No transaction has succeeded for that long."""
    if isinstance(error, DBAPIError) and _state(error) is None:
        return not_connected(url, error)
    return InvalidEnvironment(
        "DATABASE_UNREACHABLE",
        f"no transaction has succeeded for {within_s:.0f} s at {url.host or 'the local socket'}:{url.port or 5432} (last: {_text(error)}).",
        expected="a PostgreSQL server that accepts connections and transactions.",
        remedy="mend the cause and run again: the sink continues at its stored offsets.",
    )


def records_expired(sink: str, place: TopicPartition, stored: int, first: int) -> RunStopped:
    """Retention or DeleteRecords removed records before the sink had read them."""
    return RunStopped(
        "SINK_RECORDS_EXPIRED",
        f"the offsets {stored} to {first - 1} of {place.topic}[{place.partition}] were deleted before sink {sink} had read them.",
        expected="a topic that keeps its records until the sink has read them.",
        remedy=f"restore them from another copy, or accept the gap: `UPDATE {sink_offset.name} SET next_offset = {first} WHERE "
        f"{_where(sink, place.topic)} AND partition = {place.partition}`. Then raise the topic's retention.ms.",
    )


def topic_recreated(sink: str, topic: str, why: str) -> RunStopped:
    """The topic of this name is not the one that the stored offsets belong to."""
    return RunStopped(
        "SINK_TOPIC_RECREATED",
        f"the offsets of sink {sink} belong to another topic {topic}: {why}.",
        expected="the topic that the sink has read so far: offsets of one topic mean nothing in another.",
        remedy=f"connect to the right cluster. If the topic was recreated, run `DELETE FROM {sink_offset.name} WHERE {_where(sink, topic)}`"
        " to read it from its beginning; events that are stored already are recognised by their ids.",
    )


def _where(sink: str, topic: str) -> str:
    return "sink = '{}' AND topic = '{}'".format(sink.replace("'", "''"), topic)


def _state(error: DBAPIError) -> str | None:
    state = getattr(error.orig, "sqlstate", None)
    return None if state is None else str(state)


def _text(error: BaseException) -> str:
    return " ".join(str(error.orig if isinstance(error, DBAPIError) else error).split())[:300]
