"""Records that could not be processed, kept with their bytes in the table oncelake_dead_letter."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from ingest.delivery.database.tables import dead_letter

_ERROR_CHARACTERS_MAX: Final = 1_000
_INSERT: Final = insert(dead_letter).on_conflict_do_nothing()


def bury(connection: Connection, sink: str, topic_id: str, failed: Iterable[tuple[Any, object, BaseException]]) -> None:
    """Insert failed records, each with its event id (None: unknown) and its error, in the caller's transaction.

    `sink` is the name of the sink or effect that failed. A record that was read and buried before keeps its first row.
    """
    rows = [
        {
            "sink": sink,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "topic_id": topic_id,
            "event_id": _storable(event_id) if isinstance(event_id, str) else None,
            "key": record.key,
            "value": record.value,
            "headers": json.dumps(
                [[_storable(name), None if value is None else b64encode(value).decode()] for name, value in record.headers]
            ),
            "error": described(error),
        }
        for record, event_id, error in failed
    ]
    if rows:
        connection.execute(_INSERT, rows)


def described(error: BaseException) -> str:
    """The error's class and text, without the statement and its parameters that SQLAlchemy adds."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return _storable(f"{type(cause).__name__}: {cause}")[:_ERROR_CHARACTERS_MAX]


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
