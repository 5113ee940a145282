"""An event for the outbox, and the one line that stores it in the application's own transaction.

    with Session(engine) as session, session.begin():
        session.add(order)
        add(session, "order", order.number, "OrderPlaced", {"number": order.number, "total": "9.90"})

Either both rows are committed or neither is. The relay publishes the event afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy import bindparam, func, literal_column, select
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect

from ingest.contract.event_id import mint
from ingest.delivery.database.tables import NAME_CHARACTERS_MAX, outbox
from ingest.runtime.errors import InvalidInput

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    Target: TypeAlias = Session | Connection | psycopg.Connection[Any] | psycopg.Cursor[Any]

Payload: TypeAlias = bytes | str | Mapping[str, Any] | None

_COLUMNS: Final = ("id", "aggregatetype", "aggregateid", "type", "payload", "tracingspancontext")
_values = {name: bindparam(name, type_=outbox.c[name].type) for name in _COLUMNS}
# The lock of the aggregate comes before the row's number, and is held until the transaction ends. So the events of an aggregate are
# numbered in the order in which their transactions commit. The planner leaves a subquery with a volatile function as it is.
_hash = func.hashtextextended(_values["aggregateid"], func.hashtextextended(_values["aggregatetype"], literal_column("0")))
_lock = func.pg_advisory_xact_lock(_hash)
_STORE: Final = outbox.insert().from_select(_COLUMNS, select(*_values.values()).select_from(select(_lock).subquery("locked")))
_STORE_TEXT: Final = str(_STORE.compile(dialect=psycopg_dialect.dialect()))  # type: ignore[no-untyped-call]


def add(
    connection: Target,
    aggregate_type: str,
    aggregate_id: str | int,
    type: str,
    payload: Payload,
    *,
    event_id: str | None = None,
    trace_context: str | None = None,
) -> str:
    """Store an event in the transaction of `connection`, and return its event id.

    `connection` is a SQLAlchemy Session or Connection (of any driver), or a psycopg Connection or Cursor. `payload` becomes the record's
    value: bytes, text, a mapping that is written as JSON, or None for a tombstone. `aggregate_id` becomes its key. `event_id` (default: a
    new UUIDv7) is the identity on which consumers and the lake deduplicate. `trace_context` is the text that Debezium expects in the
    column `tracingspancontext`: lines of `name=value`, such as a W3C `traceparent`. They become headers.

    The events of an aggregate are published in the order in which their transactions commit: another transaction that stores one waits
    until this one ends. If two transactions wait for each other, PostgreSQL ends one with an error, as it ends every deadlock.

    From asyncio, use `await session.run_sync(...)`. Raises InvalidInput OUTBOX_EVENT for an id or a name that is empty, longer than 255
    characters or contains a NUL character, OUTBOX_AUTOCOMMIT for a connection without a transaction, and OUTBOX_ASYNC for an asynchronous
    one. An event id that is already stored raises the driver's IntegrityError.
    """
    values = (
        _text("event_id", mint() if event_id is None else event_id),
        _text("aggregate_type", aggregate_type),
        _text("aggregate_id", str(aggregate_id) if isinstance(aggregate_id, int) else aggregate_id),
        _text("type", type),
        _bytes(payload),
        trace_context,
    )
    row = dict(zip(_COLUMNS, values, strict=True))
    given: Any = connection
    if iscoroutinefunction(given.execute):
        raise InvalidInput(
            "OUTBOX_ASYNC",
            "the connection is asynchronous: `add` would return before anything is stored.",
            expected="a synchronous Session, Connection or Cursor.",
            remedy="with SQLAlchemy, call it through `await session.run_sync(lambda session: add(session, ...))`.",
        )
    if hasattr(given, "get_bind") or hasattr(given, "dialect"):  # a Session, or a Connection
        core = given.connection() if hasattr(given, "get_bind") else given
        if getattr(core.connection.dbapi_connection, "autocommit", False):
            raise _autocommit()
        core.execute(_STORE, row)
    else:
        raw = getattr(given, "connection", given)  # a cursor's connection
        if raw.autocommit and raw.info.transaction_status.name == "IDLE":
            raise _autocommit()
        given.execute(_STORE_TEXT, row)
    return values[0]


def _text(name: str, given: object) -> str:
    if isinstance(given, str) and 0 < len(given) <= NAME_CHARACTERS_MAX and "\0" not in given:
        return given
    found = f"{name} has {len(given):,} characters" if isinstance(given, str) and given and "\0" not in given else f"{name} is {given!r}"
    raise InvalidInput(
        "OUTBOX_EVENT",
        f"{found}.",
        expected=f"a text of 1 to {NAME_CHARACTERS_MAX} characters without NUL.",
        remedy="correct it before the transaction commits; nothing was stored.",
    )


def _bytes(payload: Payload) -> bytes | None:
    if payload is None or isinstance(payload, bytes):
        return payload
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def _autocommit() -> InvalidInput:
    return InvalidInput(
        "OUTBOX_AUTOCOMMIT",
        "the connection commits each statement by itself.",
        expected="one transaction for the business row and the event, or a crash between the two loses one of them.",
        remedy="use the connection inside a transaction: `with session.begin():`, or `with connection.transaction():`.",
    )
