"""The trail of an event id in the application's database: outbox row, database sinks, dead letters, and effects with their history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine, select

from ingest.delivery.database.tables import dead_letter, effect, effect_history, outbox, sink_event
from ingest.delivery.trace.sighting import Sighting


def database_trail(engine: Engine, event_id: str) -> list[Sighting]:
    """Every row of our tables that has this event id."""
    with engine.connect() as connection:
        return [
            *_outbox(connection, event_id),
            *_sinks(connection, event_id),
            *_dead_letters(connection, event_id),
            *_effects(connection, event_id),
        ]


def _outbox(connection: Connection, event_id: str) -> Iterator[Sighting]:
    for row in connection.execute(select(outbox).where(outbox.c.id == event_id)):
        state = f"published {_time(row.published_at)}" if row.published_at else "not published yet"
        if row.parked_at:
            state = f"parked {_time(row.parked_at)} after {row.attempts} attempts: {row.last_error}"
        what = f"{row.aggregatetype} {row.aggregateid}, {row.type}, stored {_time(row.created_at)}, {state}"
        yield Sighting("outbox", row.aggregatetype, what, _details(row, without=("payload",)))
        if row.topic is not None:
            yield Sighting(
                "kafka", row.topic, f"{_position(row)}, as the relay was told", _details(row, only=("topic", "partition", "offset"))
            )


def _sinks(connection: Connection, event_id: str) -> Iterator[Sighting]:
    for row in connection.execute(select(sink_event).where(sink_event.c.event_id == event_id).order_by(sink_event.c.sink)):
        copies = f", {row.duplicates} {'copy' if row.duplicates == 1 else 'copies'} skipped" if row.duplicates else ""
        yield Sighting("sink", row.sink, f"stored {_time(row.stored_at)} from {_position(row)}{copies}", _details(row))


def _dead_letters(connection: Connection, event_id: str) -> Iterator[Sighting]:
    for row in connection.execute(select(dead_letter).where(dead_letter.c.event_id == event_id).order_by(dead_letter.c.stored_at)):
        yield Sighting(
            "dead letter",
            row.sink,
            f"{_position(row)}, {_time(row.stored_at)}: {row.error}",
            _details(row, without=("key", "value", "headers")),
        )


def _effects(connection: Connection, event_id: str) -> Iterator[Sighting]:
    for row in connection.execute(select(effect).where(effect.c.event_id == event_id).order_by(effect.c.effect)):
        steps = connection.execute(
            select(effect_history)
            .where(effect_history.c.effect == row.effect, effect_history.c.event_id == event_id)
            .order_by(effect_history.c.step)
        )
        history = tuple(f"{_time(step.at)} {step.state}{f': {step.detail}' if step.detail else ''}" for step in steps)
        reference = f", reference {row.reference}" if row.reference else ""
        what = f"{row.state}{reference} after {row.attempts} {'attempt' if row.attempts == 1 else 'attempts'}"
        yield Sighting("effect", row.effect, what, _details(row, without=("request",)), history)


def _position(row: Any) -> str:
    return f"{row.topic}[{row.partition}]@{row.offset}"


def _time(at: Any) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def _details(row: Any, *, only: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> dict[str, Any]:
    return {key: value for key, value in row._mapping.items() if key not in without and (not only or key in only)}
