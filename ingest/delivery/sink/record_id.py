"""Where a record carries its event id, and which ids a table can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ingest.delivery.database.tables import NAME_CHARACTERS_MAX
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import InvalidInput

EventId: TypeAlias = Callable[[Any], str | None]


def header(name: str) -> EventId:
    """The text of this header, the last one of that name. The outbox relay and Debezium put the event id into the header `id`."""

    def of(record: Any) -> str | None:
        values = [value for each, value in record.headers if each == name]
        return values[-1].decode() if values and values[-1] is not None else None

    return of


def json_field(name: str) -> EventId:
    """This field of a value that is a JSON object: a string, or an integer, which becomes its decimal text."""

    def of(record: Any) -> str | None:
        found = read_json(record.value)[name]
        return str(found) if isinstance(found, int) and not isinstance(found, bool) else found

    return of


def key() -> EventId:
    """The record's key as text: for topics with one record per key."""
    return lambda record: None if record.key is None else record.key.decode()


def parse(text: str) -> EventId:
    """The event id that a command names: `header:NAME`, `json:FIELD` or `key`. Raises InvalidInput SINK_EVENT_ID."""
    kind, _, name = text.partition(":")
    if kind == "key" and not name:
        return key()
    if name and kind in ("header", "json"):
        return header(name) if kind == "header" else json_field(name)
    expected = "header:NAME, json:FIELD or key."
    raise InvalidInput("SINK_EVENT_ID", f"--event-id {text!r}.", expected=expected, remedy="correct it; the default is header:id.")


def checked(event_id: object) -> str:
    """Return the id if the table can hold it. Raises ValueError with the reason otherwise."""
    if event_id is None:
        raise ValueError("the record has no event id")
    if not isinstance(event_id, str):
        raise ValueError(f"the event id is {type(event_id).__name__}, expected text")
    if not event_id:
        raise ValueError("the event id is empty")
    if len(event_id) > NAME_CHARACTERS_MAX:
        raise ValueError(f"the event id has {len(event_id)} characters, at most {NAME_CHARACTERS_MAX} are allowed")
    if "\0" in event_id:
        raise ValueError("the event id contains a NUL character, which PostgreSQL cannot store")
    event_id.encode()  # raises UnicodeEncodeError, a ValueError, for a lone surrogate
    return event_id
