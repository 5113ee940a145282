"""An event is stored in the application's own transaction, whichever library it uses. Bad events are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ingest.delivery.outbox.event import add
from ingest.runtime.errors import InvalidInput
from tests.database.shop import Shop, orders

Opened = Callable[[Engine], Any]


@contextmanager
def session(engine: Engine) -> Iterator[Any]:
    with Session(engine) as opened, opened.begin():
        opened.execute(orders.insert(), {"number": 1, "customer": "7"})
        yield opened


@contextmanager
def connection(engine: Engine) -> Iterator[Any]:
    with engine.begin() as opened:
        opened.execute(orders.insert(), {"number": 1, "customer": "7"})
        yield opened


@contextmanager
def plain(engine: Engine) -> Iterator[Any]:
    with psycopg.connect(engine.url.set(drivername="postgresql").render_as_string(hide_password=False)) as opened:
        opened.execute("INSERT INTO orders VALUES (1, '7')")
        yield opened


@contextmanager
def cursor(engine: Engine) -> Iterator[Any]:
    with plain(engine) as opened, opened.cursor() as made:
        yield made


def stored(engine: Engine) -> tuple[int, int]:
    """Numbers of orders and of events."""
    with engine.connect() as opened:
        return tuple(opened.exec_driver_sql("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM oncelake_outbox)").one())


class Crashed(Exception):
    """Ends a transaction before its commit."""


@pytest.mark.parametrize("opened", [session, connection, plain, cursor])
def test_order_and_event_are_committed_together_or_not_at_all(engine: Engine, opened: Opened) -> None:
    shop = Shop(engine)
    with pytest.raises(Crashed), opened(engine) as transaction:
        add(transaction, "order", 7, "OrderPlaced", {"number": 1})
        raise Crashed
    assert stored(engine) == (0, 0)
    with opened(engine) as transaction:
        event_id = add(transaction, "order", 7, "OrderPlaced", {"number": 1, "café": "ß"}, trace_context="traceparent=00-1-2-01")
    assert stored(engine) == (1, 1)
    row = shop.row(event_id)
    assert (row.aggregatetype, row.aggregateid, row.type, row.payload) == ("order", "7", "OrderPlaced", '{"number":1,"café":"ß"}'.encode())
    assert (row.tracingspancontext, row.published_at, row.attempts) == ("traceparent=00-1-2-01", None, 0)


def test_a_connection_that_commits_each_statement_by_itself_is_refused(engine: Engine) -> None:
    Shop(engine)
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as opened, pytest.raises(InvalidInput, match="OUTBOX_AUTOCOMMIT"):
        add(opened, "order", "1", "OrderPlaced", b"1")
    with psycopg.connect(url, autocommit=True) as plain_connection:
        with pytest.raises(InvalidInput, match="OUTBOX_AUTOCOMMIT"):
            add(plain_connection, "order", "1", "OrderPlaced", b"1")
        with plain_connection.transaction():
            add(plain_connection, "order", "1", "OrderPlaced", b"1")
    assert stored(engine) == (0, 1)


def test_an_asynchronous_connection_is_refused(engine: Engine) -> None:
    """It would return a coroutine that nobody awaits: the business row would be stored without its event."""
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)

    async def store() -> None:
        async with await psycopg.AsyncConnection.connect(url) as opened:
            add(opened, "order", "1", "OrderPlaced", b"1")  # type: ignore[arg-type]

    with pytest.raises(InvalidInput, match="OUTBOX_ASYNC"):
        asyncio.run(store())


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"event_id": ""}, "event_id is ''"),
        ({"event_id": "x" * 256}, "event_id has 256 characters"),
        ({"event_id": "a\0b"}, "event_id is"),
        ({"aggregate_id": None}, "aggregate_id is None"),
        ({"aggregate_type": "x" * 300}, "aggregate_type has 300 characters"),
        ({"type": ""}, "type is ''"),
    ],
)
def test_a_bad_id_or_name_is_refused_and_the_transaction_can_continue(engine: Engine, changed: dict[str, Any], found: str) -> None:
    Shop(engine)
    good: dict[str, Any] = {"aggregate_type": "order", "aggregate_id": "1", "type": "OrderPlaced", "payload": b"1"}
    with engine.begin() as opened:
        with pytest.raises(InvalidInput, match="OUTBOX_EVENT") as refused:
            add(opened, **{**good, **changed})
        assert found in refused.value.found
        add(opened, **good)
    assert stored(engine) == (0, 1)


def test_an_event_id_that_is_stored_already_is_an_error_of_the_database(engine: Engine) -> None:
    Shop(engine)
    with pytest.raises(IntegrityError, match="oncelake_outbox_id"), engine.begin() as opened:
        for _ in range(2):
            add(opened, "order", "1", "OrderPlaced", b"1", event_id="twice")
    assert stored(engine) == (0, 0)
