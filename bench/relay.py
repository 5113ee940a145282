"""How fast does the outbox's relay publish, and what does its database part cost beside the bare transactional producer?

    .venv/bin/python -m bench.relay [--events 30000] [--rounds 3] [--json docs/benchmarks/relay.json]

Both publish the same events of about 226 bytes in transactions of 1,000, in turn, on one broker and one PostgreSQL. The first round warms
up and does not count. Processor seconds are those of the publishing process alone; broker and PostgreSQL share its two cores.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from bench.events import order
from bench.result import about, keep
from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.delivery.kafka import ExactlyOnce, Grouped, TransactionalProducer
from ingest.delivery.outbox.event import add
from ingest.delivery.outbox.relay import Relay
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.embedded_postgres import Postgres

CUSTOMERS = 1_000
TARGET = 5_000

Spent = tuple[float, float]


def filled(engine: Engine, count: int) -> None:
    """Store the events, a thousand in a transaction."""
    for start in range(0, count, 1_000):
        with engine.begin() as connection:
            for number in range(start, min(start + 1_000, count)):
                add(connection, "order", f"customer-{number % CUSTOMERS:08}", "OrderPlaced", order(number, customers=CUSTOMERS))


def relayed(engine: Engine, servers: str, topic: str) -> Spent:
    """Seconds of wall and processor time until the outbox is empty."""
    with Relay(engine, servers, topic=topic) as relay:
        began, cpu = time.perf_counter(), time.process_time()
        relay.run(idle_s=0.001)
        return time.perf_counter() - began, time.process_time() - cpu


def produced(servers: str, topic: str, count: int) -> Spent:
    """The same events by the transactional producer alone."""
    with TransactionalProducer(ExactlyOnce(f"bench-{uuid.uuid4().hex}"), servers) as producer:
        producer.partitions(topic)
        began, cpu = time.perf_counter(), time.process_time()
        with Grouped(producer) as out:
            for number in range(count):
                out.send(topic, order(number, customers=CUSTOMERS), key=b"customer-%08d" % (number % CUSTOMERS))
        return time.perf_counter() - began, time.process_time() - cpu


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--events", type=int, default=30_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, Broker(f"{folder}/broker") as broker, Postgres(f"{folder}/postgres") as server:
        engine = connect(server.url)
        schema.migrate(engine)
        for number in range(given.rounds + 1):
            names = [f"{kind}-{number}" for kind in ("relay", "producer")]
            for name in names:
                broker.create_topic(name, 4)
            filled(engine, given.events)
            ours, theirs = relayed(engine, broker.bootstrap_servers, names[0]), produced(broker.bootstrap_servers, names[1], given.events)
            row = {
                "relay_events_per_s": given.events / ours[0],
                "relay_cpu_us_per_event": ours[1] / given.events * 1e6,
                "producer_events_per_s": given.events / theirs[0],
                "producer_cpu_us_per_event": theirs[1] / given.events * 1e6,
            }
            print(f"round {number}: " + ", ".join(f"{key} {value:,.0f}" for key, value in row.items()), flush=True)
            if number:
                rounds.append(row)
        engine.dispose()
    median = {key: statistics.median(row[key] for row in rounds) for key in rounds[0]}
    measured = {"events": given.events, "target_events_per_s": TARGET, "rounds": rounds, "median": median}
    keep(given.json, {**about("relay/1"), **measured}, page)


def page(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    median = result["median"]
    lines = [
        "# How fast the outbox's relay publishes",
        "",
        f"`python -m bench.relay`: {result['events']:,} events of 226 bytes in transactions of 1,000, {len(result['rounds'])} rounds,",
        f"medians. Broker, PostgreSQL and the publishing process share {result['cores']} cores; commit {result['commit']}.",
        "",
        "| | events/s | CPU µs per event (publishing process) |",
        "|---|---|---|",
        f"| relay | {median['relay_events_per_s']:,.0f} | {median['relay_cpu_us_per_event']:,.0f} |",
        f"| transactional producer alone | {median['producer_events_per_s']:,.0f} | {median['producer_cpu_us_per_event']:,.0f} |",
        "",
        f"The target is {result['target_events_per_s']:,} events/s. kafka-python bounds the relay, as the producer alone shows.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
