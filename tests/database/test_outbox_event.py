"""An event is stored in the application's own transaction, whichever library it uses. Bad events are refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from ingest.delivery.database.database import is_temporary
from ingest.delivery.outbox.event import add
from ingest.runtime.errors import InvalidInput
from tests.database.shop import Shop, orders
from tests.polling import until

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


@pytest.mark.parametrize("opened", [session, plain])
def test_a_tombstone_is_stored_whichever_library_sends_it(engine: Engine, opened: Opened) -> None:
    shop = Shop(engine)
    with opened(engine) as transaction:
        event_id = add(transaction, "order", "1", "OrderDeleted", None)
    assert shop.row(event_id).payload is None


def waits(engine: Engine) -> bool:
    """Whether a transaction of this database waits for the lock of an aggregate."""
    with engine.connect() as opened:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
        return bool(opened.exec_driver_sql(waiting).scalar_one())


@pytest.mark.parametrize("opened", [connection, cursor])
def test_events_of_an_aggregate_are_numbered_in_the_order_in_which_their_transactions_commit(engine: Engine, opened: Opened) -> None:
    """Without a lock the second transaction could commit first, and a relay would publish its event before the first one's."""
    shop = Shop(engine)
    committed: list[str] = []

    def second() -> None:
        with engine.begin() as transaction:
            add(transaction, "order", "7", "OrderPaid", b"2", event_id="second")
        committed.append("second")

    with ThreadPoolExecutor(1) as pool:
        with opened(engine) as transaction:
            add(transaction, "order", "7", "OrderPlaced", b"1", event_id="first")
            following = pool.submit(second)
            until(lambda: waits(engine) or following.done(), "the second transaction waits", 20)
            with engine.begin() as another:  # of another id, and of another type: these do not wait
                add(another, "order", "8", "OrderPlaced", b"1")
                add(another, "invoice", "7", "InvoiceSent", b"1")
                add(another, "invoice", "7", "InvoicePaid", b"1")
            assert committed == []
            committed.append("first")
        following.result(20)
    assert committed == ["first", "second"] and shop.row("first").position < shop.row("second").position


def test_two_transactions_that_wait_for_each_others_aggregate_are_a_deadlock_that_one_of_them_repeats(engine: Engine) -> None:
    Shop(engine)
    met = threading.Barrier(2)

    def both(first: str, second: str) -> int:
        for attempt in range(3):
            try:
                with engine.begin() as transaction:
                    add(transaction, "order", first, "OrderMerged", b"1", event_id=f"{first}-{second}-1")
                    if attempt == 0:
                        met.wait(20)
                    add(transaction, "order", second, "OrderMerged", b"2", event_id=f"{first}-{second}-2")
                return attempt
            except OperationalError as error:
                assert is_temporary(error) and getattr(error.orig, "sqlstate", None) == "40P01"
        raise AssertionError("three deadlocks in a row")

    with ThreadPoolExecutor(2) as pool:
        repeated = [each.result(30) for each in [pool.submit(both, "a", "b"), pool.submit(both, "b", "a")]]
    assert sorted(repeated) == [0, 1] and stored(engine) == (0, 4)
