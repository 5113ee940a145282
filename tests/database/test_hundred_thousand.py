"""100,000 events through the outbox, two relays, Kafka and three sinks at once, while one process after the other is killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from ingest.lab.broker.embedded_broker import Broker
from tests.database.relay_instance import RelayInstance
from tests.database.shop import Shop, event_ids, in_order, published
from tests.database.sink_instance import SinkInstance, metadata, paid

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EVENTS = 100_000
KILL_EVERY_S = 4.0
WITHIN_S = 600.0
BATCH = 500


class Crew:
    """Two relays and three sinks, which are replaced when they are killed."""

    def __init__(self, folder: Path, url: str, servers: str, topic: str) -> None:
        self._folder = folder
        self._relay = {"url": url, "servers": servers, "name": topic, "topic": topic, "batch": BATCH}
        self._sink = {"name": topic, "topics": [topic], "database": url, "servers": servers, "batch": BATCH}
        self.started = self.killed = 0
        self.relays = [self._new_relay() for _ in range(2)]
        self.sinks = [self._new_sink() for _ in range(3)]

    def strike(self, chance: random.Random) -> None:
        """Kill one of them, and start another in its place."""
        self.killed += 1
        if chance.random() < 0.5:
            at = chance.randrange(len(self.relays))
            self.relays[at].kill()
            self.relays[at] = self._new_relay()
        else:
            at = chance.randrange(len(self.sinks))
            self.sinks[at].kill()
            self.sinks[at] = self._new_sink()

    def end(self) -> None:
        workers: list[RelayInstance | SinkInstance] = [*self.relays, *self.sinks]
        for each in workers:
            each.kill()

    def _new_relay(self) -> RelayInstance:
        self.started += 1
        return RelayInstance(self._relay, self._folder / f"relay-{self.started}.log")

    def _new_sink(self) -> SinkInstance:
        self.started += 1
        return SinkInstance(self._sink, self._folder / f"sink-{self.started}.log")


@pytest.fixture
def crew(tmp_path: Path, database_url: str, broker: Broker, topic: Callable[..., str]) -> Iterator[tuple[Crew, str]]:
    name = topic(6)
    made = Crew(tmp_path, database_url, broker.bootstrap_servers, name)
    yield made, name
    made.end()


def test_a_hundred_thousand_events_are_stored_once_each_whatever_is_killed(engine: Engine, broker: Broker, crew: tuple[Crew, str]) -> None:
    workers, name = crew
    metadata.create_all(engine)
    shop, made = Shop(engine, customers=1_000), set[str]()
    application = threading.Thread(target=lambda: made.update(shop.place(EVENTS)), daemon=True)
    application.start()
    chance, deadline, struck_at = random.Random(1), time.monotonic() + WITHIN_S, time.monotonic()
    rows = 0
    while application.is_alive() or rows < EVENTS:
        assert time.monotonic() < deadline, f"{rows:,} rows after {workers.killed} kills"
        if time.monotonic() - struck_at > KILL_EVERY_S and rows < EVENTS * 0.8:
            workers.strike(chance)
            struck_at = time.monotonic()
        with engine.connect() as connection:
            rows = connection.execute(select(func.count()).select_from(paid)).scalar_one()
        time.sleep(0.2)
    assert workers.killed >= 5
    with engine.connect() as connection:
        stored = list(connection.scalars(select(paid.c.event_id)))
    assert len(stored) == len(made) == EVENTS and set(stored) == made
    records = published(broker.bootstrap_servers, name)
    assert set(event_ids(records)) == made and in_order(records)
    copies = len(records) - EVENTS
    assert copies <= BATCH * workers.killed, f"{copies} copies: at most a batch for each kill"
    print(f"{workers.killed} kills, {copies:,} copies in Kafka")
