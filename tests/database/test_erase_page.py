"""docs/how-to/erase-personal-data.md: its SQL leaves nothing of the person in our database tables, and everything of everybody else."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from ingest.delivery.database import tables

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "erase-personal-data.md"
PERSON, EVENT = "4711", "id-1"


def rows_of(person: str, event: str) -> list[tuple[Any, dict[str, Any]]]:
    """A row of each table that may contain a person's data, and further ones that are found by their contents alone."""
    published = "2026-01-01T00:00:00Z"
    payload, other = f'{{"member": {person}}}'.encode(), f"other-{person}"
    outbox = {"id": event, "aggregatetype": "member", "aggregateid": person, "type": "signed up", "payload": payload}
    letter = {"sink": "s", "topic": "t", "partition": 0, "topic_id": "i", "headers": "[]", "error": "no column"}
    effect = {"effect": "mail", "state": "SUCCESS", "step": 2, "attempts": 1, "worker": "w"}
    settled = {**effect, "event_id": event, "request": payload, "reference": person, "detail": f"sent to {person}"}
    settled |= {"lease_until": published, "next_at": published}
    history = {"effect": "mail", "event_id": event, "step": 1, "state": "SENDING", "worker": "w", "detail": f"sends to {person}"}
    number = 2 * int(person)
    return [
        (tables.outbox, {**outbox, "published_at": published}),
        (tables.outbox, {**outbox, "id": other, "aggregateid": "none", "published_at": published}),
        (tables.dead_letter, {**letter, "offset": number, "event_id": event, "value": payload}),
        (tables.dead_letter, {**letter, "offset": number + 1, "event_id": None, "key": person.encode(), "value": b"\xff"}),
        (tables.dead_letter, {**letter, "offset": number + 2, "event_id": None, "error": f"the member {person} is unknown"}),
        (tables.sink_event, {"sink": "s", "event_id": event, "topic": "t", "partition": 0, "offset": number}),
        (tables.effect, settled),
        (tables.effect_history, history),
    ]


def contents(engine: Engine, table: Any) -> list[str]:
    """The rows as text, without their times, whose digits may contain anything."""
    with engine.connect() as connection:
        rows = connection.execute(table.select()).all()
    return [" ".join(str(value) for value in row if not isinstance(value, datetime)) for row in rows]


def test_the_sql_of_the_page_erases_the_person_and_nobody_else(engine: Engine) -> None:
    everything = [tables.outbox, tables.dead_letter, tables.sink_event, tables.effect, tables.effect_history]
    with engine.begin() as connection:
        for person, event in ((PERSON, EVENT), ("815", "e-815")):
            for table, row in rows_of(person, event):
                connection.execute(table.insert().values(row))
    others = {table.name: [row for row in contents(engine, table) if "815" in row] for table in everything}
    first, second = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    dbapi = engine.raw_connection()
    try:
        dbapi.cursor().execute(first)
        dbapi.commit()
        for table in everything:
            assert [row for row in contents(engine, table) if PERSON in row] == [], table.name
        ids = {table.name for table in everything if any(EVENT in row for row in contents(engine, table))}
        assert ids == {tables.sink_event.name, tables.effect.name, tables.effect_history.name}, "they still stop copies"
        dbapi.cursor().execute(second)
        dbapi.commit()
    finally:
        dbapi.close()
    assert {table.name: contents(engine, table) for table in everything} == others


def test_every_table_of_ours_that_holds_event_data_is_on_the_page() -> None:
    """A new table has to say how it is erased. Positions name nobody."""
    page = PAGE.read_text(encoding="utf-8")
    named = {name for name in tables.metadata.tables if name in page}
    assert {*tables.metadata.tables} - named == {tables.sink_offset.name}
