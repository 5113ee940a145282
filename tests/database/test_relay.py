"""The relay: what it publishes, in which order, and what it does with rows that the brokers refuse."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, func, make_url, select

from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.delivery.database.tables import outbox
from ingest.delivery.outbox import leadership
from ingest.delivery.outbox.event import add
from ingest.delivery.outbox.relay import Relay, Relayed
from ingest.delivery.outbox.unpublished import backlog, parked, purge, retry
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.embedded_postgres import Postgres
from ingest.runtime.errors import Refused
from tests.database.shop import Shop, event_ids, in_order, published
from tests.database.tcp_cutter import TcpCutter

MakeTopic = Callable[..., str]


def relay(engine: Engine, broker: Broker, topic: str, **more: Any) -> Relayed:
    """Publish until the outbox is empty."""
    with Relay(engine, broker.bootstrap_servers, topic=topic, **more) as running:
        return running.run(idle_s=0.05)


def test_events_are_published_in_order_as_debezium_would_and_marked_with_their_offsets(
    engine: Engine, broker: Broker, topic: MakeTopic
) -> None:
    shop, name = Shop(engine), topic(3)
    made = shop.place(250)
    counts = relay(engine, broker, name, batch=100)
    records = published(broker.bootstrap_servers, name)
    assert sorted(event_ids(records)) == sorted(made) and in_order(records)
    assert (counts.published, counts.parked, counts.repeated, shop.unpublished()) == (250, 0, 0, 0)
    record = records[0]
    row = shop.row(dict(record.headers)["id"].decode())
    assert (row.topic, row.partition, row.offset) == (name, record.partition, record.offset)
    assert (record.key, record.value) == (row.aggregateid.encode(), row.payload)
    headers = {"id": row.id, "eventType": "OrderPlaced", "aggregateType": "order", "aggregateId": row.aggregateid}
    assert {key: value.decode() for key, value in record.headers} == headers


def test_the_topic_follows_the_aggregate_and_the_trace_context_becomes_headers(engine: Engine, broker: Broker, topic: MakeTopic) -> None:
    Shop(engine)
    names = {kind: topic() for kind in ("a", "b")}
    context = "#Wed Nov 25 2026\ntraceparent=00-aa-bb-01\ntracestate = x=1"
    with engine.begin() as connection:
        for kind, name in names.items():
            add(connection, name, "1", kind, None if kind == "b" else b"\xff", trace_context=context)
    relay(engine, broker, "{aggregatetype}")
    (one,), (two,) = (published(broker.bootstrap_servers, name) for name in names.values())
    assert (one.value, two.value) == (b"\xff", None)
    assert dict(one.headers)["traceparent"] == b"00-aa-bb-01" and dict(one.headers)["tracestate"] == b"x=1"


def test_a_refused_row_is_parked_after_its_attempts_and_holds_up_only_its_own_aggregate(
    engine: Engine, broker: Broker, topic: MakeTopic
) -> None:
    shop, name = Shop(engine), topic(max_message_bytes="20000")
    with engine.begin() as connection:
        large = add(connection, "order", "x", "OrderPlaced", os.urandom(100_000))
        behind = add(connection, "order", "x", "OrderShipped", b"2")
    made = shop.place(20)
    counts = relay(engine, broker, name, attempts=2)
    found = event_ids(published(broker.bootstrap_servers, name))
    assert sorted(found) == sorted([*made, behind])
    rows = [shop.row(each) for each in made]
    assert min(row.published_at for row in rows) < shop.row(large).parked_at, "the others do not wait for its next attempt"
    assert not any(row.attempts for row in rows), "only the refused row has failed attempts"
    assert shop.row(large).parked_at < shop.row(behind).published_at, "the aggregate's next event waits until the refused one is parked"
    assert (counts.published, counts.parked) == (21, 1)
    (row,) = parked(engine)
    assert (row["event_id"], row["attempts"]) == (large, 2) and "MessageSizeTooLarge" in row["last_error"]
    assert backlog(engine).parked == 1 and backlog(engine).rows == 0
    assert retry(engine, [large]) == 1 and backlog(engine).rows == 1


def test_events_of_a_topic_that_does_not_exist_are_parked_and_published_once_it_does(
    engine: Engine, broker: Broker, topic: MakeTopic
) -> None:
    shop, name = Shop(engine), topic()
    with engine.begin() as connection:
        lost = add(connection, f"{name}-later", "1", "OrderPlaced", b"1")
        add(connection, name, "1", "OrderPlaced", b"2")
    relay(engine, broker, "{aggregatetype}", attempts=1)
    assert len(published(broker.bootstrap_servers, name)) == 1
    assert [row["event_id"] for row in parked(engine)] == [lost] and "no topic" in parked(engine)[0]["last_error"]
    broker.create_topic(f"{name}-later")
    assert retry(engine) == 1
    relay(engine, broker, "{aggregatetype}", attempts=1)
    assert shop.unpublished() == 0 and len(published(broker.bootstrap_servers, f"{name}-later")) == 1


def test_a_missing_topic_with_a_backlog_holds_up_no_other_events(engine: Engine, broker: Broker, topic: MakeTopic) -> None:
    shop, name = Shop(engine, customers=1_000), topic()
    shop.place(2_500, kind=f"{name}-missing")
    made = shop.place(10, kind=name)
    with Relay(engine, broker.bootstrap_servers, topic="{aggregatetype}", attempts=3) as running:
        running.run(stop=lambda: running.counts.published == 10, idle_s=20)
        counts = running.run(stop=lambda: running.counts.parked == 2_500, idle_s=20)
    assert event_ids(published(broker.bootstrap_servers, name)) == made
    assert (counts.published, counts.parked) == (10, 2_500), "all events of the missing topic are parked together"
    parked_at = parked(engine)[0]["parked_at"]
    assert all(shop.row(each).published_at < parked_at for each in made)


@pytest.mark.parametrize("delivered", [False, True], ids=["before the mark", "before its answer"])
def test_a_connection_cut_at_the_mark_repeats_at_most_the_batch(
    engine: Engine, database_url: str, postgres: Postgres, broker: Broker, topic: MakeTopic, delivered: bool
) -> None:
    shop, name = Shop(engine), topic()
    made = shop.place(30)
    with TcpCutter(postgres.port) as cutter:
        through = connect(make_url(database_url).set(port=cutter.port).render_as_string(hide_password=False))
        cut = cutter.cut_at(b"SET published_at", delivered=delivered)
        with Relay(through, broker.bootstrap_servers, topic=name) as running:
            counts = running.run(stop=lambda: shop.unpublished() == 0, idle_s=20)
        through.dispose()
    assert cut.done.is_set() and counts.led == 2, "the connection was lost, and with it the lead"
    found = event_ids(published(broker.bootstrap_servers, name))
    assert set(found) == set(made) and len(found) in (30, 60)


def test_two_relays_of_one_outbox_share_one_lead(engine: Engine, broker: Broker, topic: MakeTopic) -> None:
    shop, name = Shop(engine), topic()
    shop.place(20)
    with (
        Relay(engine, broker.bootstrap_servers, topic=name) as one,
        Relay(engine, broker.bootstrap_servers, topic=name) as two,
    ):
        one.run(stop=lambda: one.counts.published == 20)
        assert two.run(idle_s=0.1).led == 0, "it ends although another one leads"
    assert len(published(broker.bootstrap_servers, name)) == 20


def test_relays_of_two_databases_do_not_fence_each_other(
    engine: Engine, new_database: Callable[[], str], broker: Broker, topic: MakeTopic
) -> None:
    other, name = connect(new_database()), topic()
    schema.migrate(other)
    shops = Shop(engine), Shop(other)
    with (
        Relay(engine, broker.bootstrap_servers, topic=name) as one,
        Relay(other, broker.bootstrap_servers, topic=name) as two,
    ):
        for _ in range(3):
            for shop, running in zip(shops, (one, two), strict=True):
                shop.place(10)
                running.run(idle_s=0.05)
                assert shop.unpublished() == 0
        assert (one.counts.led, two.counts.led, one.counts.repeated, two.counts.repeated) == (1, 1, 0, 0)
    other.dispose()


def test_a_transaction_has_a_limit_in_bytes_and_a_row_beyond_it_goes_alone(engine: Engine, broker: Broker, topic: MakeTopic) -> None:
    Shop(engine)
    name, sizes = topic(), [30_000] * 10 + [250_000] + [30_000] * 5
    with engine.begin() as connection:
        made = [add(connection, "order", "1", "OrderPlaced", os.urandom(size)) for size in sizes]
    transactions: list[int] = []
    with Relay(engine, broker.bootstrap_servers, topic=name, batch_bytes=100_000) as running:
        running._on_step = lambda step: transactions.append(running.counts.published) if step == "begun" else None
        running.run(stop=lambda: running.counts.published == 16, idle_s=20)
    assert event_ids(published(broker.bootstrap_servers, name)) == made
    assert transactions == [0, 3, 6, 9, 10, 11, 14]


@pytest.mark.parametrize("inside", [False, True], ids=["between transactions", "inside a transaction"])
def test_a_leader_that_is_silent_for_too_long_loses_the_lead(
    engine: Engine, broker: Broker, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    monkeypatch.setattr(leadership, "SILENT_MAX_S", 2)
    shop, name = Shop(engine), topic()
    silent = leadership.Leadership(engine, broker.bootstrap_servers, 1_000, {})
    assert silent.take(lambda: None)
    if inside:
        silent.connection.exec_driver_sql("SELECT 1")
    shop.place(5)
    with Relay(engine, broker.bootstrap_servers, topic=name) as following:
        following.run(stop=lambda: following.counts.published == 5, idle_s=30)
    assert shop.unpublished() == 0
    silent.give_up()


def test_old_rows_are_deleted_while_the_relay_works(engine: Engine, broker: Broker, topic: MakeTopic) -> None:
    shop, name = Shop(engine), topic()
    shop.place(20)
    relay(engine, broker, name, keep=timedelta())
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(outbox)).scalar_one() == 0


def test_the_backlog_is_counted_and_only_old_published_rows_are_purged(engine: Engine, broker: Broker, topic: MakeTopic) -> None:
    shop, name = Shop(engine), topic()
    shop.place(30)
    before = backlog(engine)
    assert (before.rows, before.parked) == (30, 0) and 0 < before.oldest_age_s < 300
    relay(engine, broker, name)
    after = backlog(engine)
    assert (after.rows, after.oldest_age_s, after.published_per_s) == (0, 0, 0.5)
    shop.place(5)
    assert purge(engine, timedelta(days=1)) == 0
    assert purge(engine, timedelta()) == 30
    assert shop.unpublished() == 5


def test_a_relay_refuses_tables_that_are_missing_or_changed_by_hand(
    engine: Engine, new_database: Callable[[], str], broker: Broker
) -> None:
    with pytest.raises(Refused, match="SCHEMA_MISSING"):
        Relay(connect(new_database()), broker.bootstrap_servers)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE oncelake_outbox DROP COLUMN published_at")
    with pytest.raises(Refused, match="published_at is missing"):
        Relay(engine, broker.bootstrap_servers)
