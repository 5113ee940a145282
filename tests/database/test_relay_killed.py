"""Relays that are killed, paused or cut off: each event is published, in order, and copies carry the same event id."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url

from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.delivery.outbox import relay as relay_module
from ingest.delivery.outbox.event import add
from ingest.delivery.outbox.relay import Relay
from ingest.lab.broker import embedded_broker
from ingest.lab.broker.broker_config import Listener, server_properties
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.embedded_postgres import Postgres
from ingest.lab.proxy import Api, Proxy
from ingest.runtime.errors import RunStopped
from tests.database.relay_instance import STEPS, RelayInstance
from tests.database.shop import Shop, event_ids, in_order, published
from tests.polling import until

pytestmark = pytest.mark.timeout(300)

Start = Callable[..., RelayInstance]
slow = pytest.mark.slow
# After these steps the transaction is committed but not marked, so the next relay publishes the batch once more.
REPEATED = ("committed",)
QUICK = ("flushed", "committed")


@pytest.fixture
def start(tmp_path: Path, broker: Broker) -> Iterator[Start]:
    """`start(url, topic, **settings)` starts a relay in its own process. All of them end with the test."""
    made: list[RelayInstance] = []

    def run(url: str, topic: str, **settings: Any) -> RelayInstance:
        values: Mapping[str, Any] = {
            "url": url,
            "topic": topic,
            "servers": broker.bootstrap_servers,
            "batch": 50,
            **settings,
        }
        made.append(RelayInstance(values, tmp_path / f"relay-{len(made)}.log"))
        return made[-1]

    yield run
    for each in made:
        each.kill()


@pytest.mark.parametrize("step", [step if step in QUICK else pytest.param(step, marks=slow) for step in STEPS])
def test_a_relay_killed_at_each_step_loses_nothing_and_repeats_at_most_its_batch(
    engine: Engine, database_url: str, broker: Broker, topic: Callable[..., str], start: Start, step: str
) -> None:
    shop, name = Shop(engine), topic(2)
    made = shop.place(120)
    start(database_url, name, at=step, nth=1 if step == "leads" else 2).killed()
    following = start(database_url, name)
    until(lambda: shop.unpublished() == 0, "all is published", 60)
    following.stop()
    records = published(broker.bootstrap_servers, name)
    found = event_ids(records)
    assert set(found) == set(made) and in_order(records)
    assert len(found) - len(made) == (50 if step in REPEATED else 0), "the copies of one batch, and only where the mark is missing"


def test_of_three_relays_one_leads_and_when_it_dies_another_takes_over(
    engine: Engine, database_url: str, broker: Broker, topic: Callable[..., str], start: Start
) -> None:
    shop, name = Shop(engine), topic(2)
    relays = [start(database_url, name) for _ in range(3)]
    made = shop.place(200)
    until(lambda: shop.unpublished() == 0, "all is published", 60)
    leaders = [each for each in relays if "leads" in each.log.read_text()]
    assert len(leaders) == 1
    leaders[0].kill()
    made += shop.place(200)
    until(lambda: shop.unpublished() == 0, "the next leader publishes", 60)
    counts = [each.stop() for each in relays if each not in leaders]
    assert sorted(each["published"] for each in counts) == [0, 200]
    records = published(broker.bootstrap_servers, name)
    assert sorted(event_ids(records)) == sorted(made) and in_order(records)


def test_a_paused_relay_that_wakes_up_behind_its_successor_publishes_nothing(
    engine: Engine, database_url: str, broker: Broker, topic: Callable[..., str], start: Start
) -> None:
    """It holds a batch that it has read. Its session is ended, as the server does after a minute, so another relay leads meanwhile."""
    shop, name = Shop(engine), topic()
    made = shop.place(60)
    paused = start(database_url, name, at="flushed", signal="SIGSTOP")
    paused.wait_for("reached flushed")
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    following = start(database_url, name)
    until(lambda: shop.unpublished() == 0, "the successor publishes", 60)
    os.kill(paused.process.pid, signal.SIGCONT)
    made += shop.place(40)
    until(lambda: shop.unpublished() == 0, "the successor still publishes", 60)
    assert following.stop()["published"] == 100
    assert paused.stop()["published"] == 0
    records = published(broker.bootstrap_servers, name)
    assert sorted(event_ids(records)) == sorted(made) and in_order(records)


@slow
def test_a_database_killed_in_the_middle_delays_the_relay_and_loses_nothing(
    tmp_path: Path, broker: Broker, topic: Callable[..., str], start: Start
) -> None:
    name = topic(2)
    with Postgres(tmp_path / "postgres") as server:
        engine = connect(server.url)
        schema.migrate(engine)
        shop = Shop(engine)
        made = shop.place(3_000)
        relay = start(make_url(server.url).render_as_string(hide_password=False), name)
        until(lambda: shop.unpublished() < 2_500, "a part is published", 60)
        server.kill()
        server.start()
        engine.dispose()
        until(lambda: shop.unpublished() == 0, "all is published", 90)
        counts = relay.stop()
        engine.dispose()
    records = published(broker.bootstrap_servers, name)
    found = event_ids(records)
    assert set(found) == set(made) and in_order(records) and counts["led"] == 2
    assert len(found) - len(made) in (0, 50), "at most the batch that was committed and not marked"


@slow
def test_a_broker_killed_in_the_middle_delays_the_relay_and_loses_nothing(
    engine: Engine, database_url: str, tmp_path: Path, start: Start
) -> None:
    with Broker(tmp_path / "broker") as own:
        own.create_topic("orders")
        shop = Shop(engine)
        made = shop.place(3_000)
        relay = start(database_url, "orders", servers=own.bootstrap_servers)
        until(lambda: shop.unpublished() < 2_500, "a part is published", 60)
        own.kill()
        own.start()
        until(lambda: shop.unpublished() == 0, "all is published", 120)
        relay.stop()
        found = event_ids(published(own.bootstrap_servers, "orders"))
        assert set(found) == set(made) and (len(found) - len(made)) % 50 == 0


@pytest.fixture
def strict_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker that aborts a transaction soon after its timeout. Kafka looks every 10 s only."""

    def strict(listeners: tuple[Listener, ...], controller_port: int) -> str:
        more = "transaction.abort.timed.out.transaction.cleanup.interval.ms=100\n"
        return server_properties(listeners, controller_port) + more

    monkeypatch.setattr(embedded_broker, "server_properties", strict)
    with Broker(tmp_path / "broker") as running:
        yield running


@slow
def test_a_batch_that_does_not_fit_into_its_transaction_is_halved_until_it_does(engine: Engine, strict_broker: Broker) -> None:
    """Each record is acknowledged 0.2 s after the one before it, and a transaction may take 1 s."""
    strict_broker.create_topic("orders")
    Shop(engine)
    with engine.begin() as connection:
        made = [add(connection, "order", "1", "OrderPlaced", os.urandom(50_000)) for _ in range(32)]
    with Proxy(strict_broker.bootstrap_servers) as proxy:
        proxy.delay_reply(Api.PRODUCE, 0.2, times=10_000)
        with Relay(engine, proxy.bootstrap_servers, topic="orders", transaction_timeout_ms=1_000) as running:
            counts = running.run(stop=lambda: running.counts.published == 32, idle_s=20)
    assert counts.repeated >= 3 and counts.parked == 0
    assert event_ids(published(strict_broker.bootstrap_servers, "orders")) == made


@slow
def test_a_row_that_alone_does_not_fit_into_a_transaction_ends_the_relay_with_its_name(
    engine: Engine, strict_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "_GONE_WITHIN_S", 5.0)
    strict_broker.create_topic("orders")
    shop = Shop(engine)
    with engine.begin() as connection:
        large = add(connection, "order", "1", "OrderPlaced", os.urandom(50_000))
    with Proxy(strict_broker.bootstrap_servers) as proxy:
        proxy.delay_reply(Api.PRODUCE, 3.0, times=10_000)
        relay = Relay(engine, proxy.bootstrap_servers, topic="orders", transaction_timeout_ms=1_000)
        with relay, pytest.raises(RunStopped, match="RELAY_TOO_SLOW") as ended:
            relay.run()
    assert f"event {large} (50,000 bytes)" in ended.value.found and shop.unpublished() == 1
