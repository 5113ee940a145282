"""The outbox's statements: read rows to publish, mark published and failed ones, count the backlog, retry and purge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, case, delete, func, select, tuple_, update

from ingest.delivery.database.tables import outbox
from ingest.delivery.kafka.outgoing import Outgoing

_ERROR_CHARACTERS_MAX: Final = 500
_PURGE_ROWS: Final = 5_000
# What a row takes besides its payload and trace context: ids and names, in columns and in headers.
_ROW_BYTES: Final = 1_000
_RATE_OVER_S: Final = 60
_OPEN = outbox.c.published_at.is_(None) & outbox.c.parked_at.is_(None)
_MARK: Final = f"""
UPDATE {outbox.name} SET published_at = clock_timestamp(), topic = m.topic, partition = m.partition, "offset" = m.next, last_error = NULL
FROM unnest(%(positions)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[])
    AS m (position, topic, partition, next)
WHERE {outbox.name}.position = m.position AND published_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A row to publish."""

    position: int
    event_id: str
    aggregate_type: str
    aggregate_id: str
    type: str
    payload: bytes | None
    trace_context: str | None
    attempts: int

    def record(self, topic: str) -> Outgoing:
        """The record, as Debezium's outbox event router makes it: key = aggregate id, header `id` = event id.

        The type and the aggregate are headers too; Debezium's option for them is
        `table.fields.additional.placement=type:header:eventType,aggregatetype:header:aggregateType`.
        """
        headers = [
            ("id", self.event_id),
            ("eventType", self.type),
            ("aggregateType", self.aggregate_type),
            ("aggregateId", self.aggregate_id),
        ]
        for line in (self.trace_context or "").splitlines():
            name, equals, value = line.partition("=")
            if equals and name.strip() and not name.startswith("#"):  # java.util.Properties writes its date as a comment
                headers.append((name.strip(), value.strip()))
        return Outgoing(topic, self.payload, self.aggregate_id.encode(), [(name, value.encode()) for name, value in headers])


@dataclass(frozen=True, slots=True)
class Backlog:
    """The outbox's state: rows to publish, age of the oldest in seconds, parked rows, rows published per second in the last minute."""

    rows: int
    oldest_age_s: float
    parked: int
    published_per_s: float


def unpublished(
    connection: Connection, rows_max: int, bytes_max: int, aggregates: Sequence[tuple[str, str]], types: Sequence[str]
) -> list[Unpublished]:
    """The next rows to publish, in the order of their position, without these aggregates (type, id) and these aggregate types.

    They fit into `bytes_max`, except that the first one comes whatever its size is.
    """
    c = outbox.c
    columns = (c.position, c.id, c.aggregatetype, c.aggregateid, c.type, c.payload, c.tracingspancontext, c.attempts)
    size = func.coalesce(func.octet_length(c.payload), 0) + func.coalesce(func.octet_length(c.tracingspancontext), 0) + _ROW_BYTES
    query = select(*columns, size.label("size")).where(_OPEN).order_by(c.position).limit(rows_max)
    if aggregates:
        query = query.where(tuple_(c.aggregatetype, c.aggregateid).not_in(aggregates))
    if types:
        query = query.where(c.aggregatetype.not_in(types))
    first = query.subquery("first")
    summed = select(first, func.sum(first.c.size).over(order_by=first.c.position).label("bytes")).subquery("summed")
    fitting = (summed.c.bytes <= bytes_max) | (summed.c.bytes == summed.c.size)
    found = connection.execute(select(*(summed.c[column.name] for column in columns)).where(fitting).order_by(summed.c.position))
    return [Unpublished(*row) for row in found]


def mark_published(connection: Connection, rows: Sequence[Unpublished], places: Sequence[tuple[str, int, int]]) -> None:
    """Store where each row is in Kafka: topic, partition, offset."""
    topics, partitions, offsets = zip(*places, strict=True)
    values = {
        "positions": [row.position for row in rows],
        "topics": list(topics),
        "partitions": list(partitions),
        "offsets": list(offsets),
    }
    connection.exec_driver_sql(_MARK, values)


def mark_failed(
    connection: Connection, error: str, attempts_max: int, *, position: int | None = None, aggregate_type: str | None = None
) -> int:
    """Count a failed attempt of one row, or of all unpublished rows of a type. Returns how many of them are parked with it.

    Nobody publishes a parked row until `retry`.
    """
    c = outbox.c
    rows = c.position == position if position is not None else _OPEN & (c.aggregatetype == aggregate_type)
    parked_at = case((c.attempts + 1 >= attempts_max, func.clock_timestamp()))
    values = {"attempts": c.attempts + 1, "last_error": error[:_ERROR_CHARACTERS_MAX].replace("\0", ""), "parked_at": parked_at}
    marked = connection.scalars(update(outbox).where(rows).values(values).returning(c.parked_at.is_not(None)))
    return sum(marked)


def backlog(engine: Engine) -> Backlog:
    """The outbox's metrics. Each reads a partial index, so none depends on how many published rows are kept."""
    c = outbox.c
    with engine.connect() as connection:
        age = func.extract("epoch", func.clock_timestamp() - func.min(c.created_at))
        rows, oldest = connection.execute(select(func.count(), func.coalesce(age, 0)).where(_OPEN)).one()
        parked = connection.execute(select(func.count()).where(c.parked_at.is_not(None))).scalar_one()
        since = func.clock_timestamp() - timedelta(seconds=_RATE_OVER_S)
        lately = connection.execute(select(func.count()).where(c.published_at > since)).scalar_one()
    return Backlog(rows, float(oldest), parked, lately / _RATE_OVER_S)


def parked(engine: Engine) -> list[dict[str, Any]]:
    """The parked rows: event id, aggregate, attempts, last error and time, oldest first."""
    c = outbox.c
    columns = (c.id.label("event_id"), c.aggregatetype, c.aggregateid, c.type, c.attempts, c.last_error, c.parked_at)
    with engine.connect() as connection:
        found = connection.execute(select(*columns).where(c.parked_at.is_not(None)).order_by(c.position))
        return [dict(row._mapping) for row in found]


def retry(engine: Engine, event_ids: Sequence[str] = ()) -> int:
    """Let the relay try parked rows again (default: all of them), with all their attempts. Returns how many."""
    statement = update(outbox).where(outbox.c.parked_at.is_not(None)).values(parked_at=None, attempts=0)
    if event_ids:
        statement = statement.where(outbox.c.id.in_(event_ids))
    with engine.begin() as connection:
        return connection.execute(statement).rowcount


def purge(engine: Engine, older_than: timedelta) -> int:
    """Delete rows that were published more than this long ago, 5,000 in a transaction. Returns how many."""
    deleted = 0
    while number := purge_batch(engine, older_than):
        deleted += number
    return deleted


def purge_batch(engine: Engine, older_than: timedelta) -> int:
    """Delete up to 5,000 of these rows. Returns how many."""
    old = select(outbox.c.position).where(outbox.c.published_at < func.clock_timestamp() - older_than).limit(_PURGE_ROWS)
    with engine.begin() as connection:
        return connection.execute(delete(outbox).where(outbox.c.position.in_(old))).rowcount
