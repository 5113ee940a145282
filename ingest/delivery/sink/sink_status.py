"""How far the sinks are, and their dead letters, for `ingest sink status` and `ingest sink dead`."""

from __future__ import annotations

from typing import Any, Final

from kafka.errors import KafkaError
from sqlalchemy import Engine, and_, func, select

from ingest.delivery.database.tables import dead_letter, sink_event, sink_offset
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import describe_with_bounds
from ingest.runtime.errors import IngestError

_ANSWER_WITHIN_S: Final = 3.0


def statuses(engine: Engine, kafka: KafkaOptions) -> list[dict[str, Any]]:
    """One row per sink, topic and partition: the columns of oncelake_sink_offset, and the numbers stored, duplicates, dead and lag.

    `duplicates` are copies of events that were stored from this partition. `lag` counts offsets, also those of transaction markers. It is
    None if no broker answers or if the topic is another one now. All event ids are counted, which takes seconds for tens of millions.
    """
    copies = func.sum(sink_event.c.duplicates).label("duplicates")
    stored, dead = _grouped(sink_event, func.count().label("stored"), copies), _grouped(dead_letter, func.count().label("dead"))
    joined = sink_offset.outerjoin(stored, _same_place(stored)).outerjoin(dead, _same_place(dead))
    numbers = [func.coalesce(column, 0).label(column.name) for column in (stored.c.stored, stored.c.duplicates, dead.c.dead)]
    wanted = select(sink_offset, *numbers).select_from(joined)
    with engine.connect() as connection:
        found = connection.execute(wanted.order_by(sink_offset.c.sink, sink_offset.c.topic, sink_offset.c.partition)).mappings().all()
    ends = {place: end for topic in {row["topic"] for row in found} for place, end in _ends(kafka, topic).items()}
    rows: list[dict[str, Any]] = []
    for row in found:
        end = ends.get((row["topic"], row["topic_id"], row["partition"]))
        rows.append({**row, "duplicates": int(row["duplicates"]), "lag": None if end is None else max(0, end - row["next_offset"])})
    return rows


def dead_letters(engine: Engine, sink: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """The newest dead letters of one sink (None: of all), without their bytes."""
    names = ("sink", "topic", "partition", "offset", "event_id", "error", "stored_at")
    wanted = select(*(dead_letter.c[name] for name in names)).order_by(dead_letter.c.stored_at.desc(), dead_letter.c.offset.desc())
    with engine.connect() as connection:
        rows = connection.execute((wanted if sink is None else wanted.where(dead_letter.c.sink == sink)).limit(limit)).mappings()
        return [dict(row) for row in rows]


def _grouped(table: Any, *numbers: Any) -> Any:
    place = (table.c.sink, table.c.topic, table.c.partition)
    return select(*place, *numbers).group_by(*place).subquery()


def _same_place(other: Any) -> Any:
    return and_(*(sink_offset.c[name] == other.c[name] for name in ("sink", "topic", "partition")))


def _ends(kafka: KafkaOptions, topic: str) -> dict[tuple[str, str, int], int]:
    """The end of each partition by topic, topic id and partition; empty if no broker answers."""
    try:
        found, limits = describe_with_bounds(kafka, topic, _ANSWER_WITHIN_S)
    except (IngestError, KafkaError):
        return {}
    return {(topic, found.id, partition): end for partition, (_, end) in limits.items()}
