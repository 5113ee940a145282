"""How much faster does the database sink store events in batches than a loop does one by one, on one broker and one PostgreSQL?

    .venv/bin/python -m bench.sink [--events 50000] [--rounds 5] [--json docs/benchmarks/sink.json]

All store the same events of about 226 bytes, with the event id in the header `id`, from a topic of four partitions. The loop is what one
writes by hand: event id, row and offset of one record in one transaction. It and the sink with batches of one store a tenth of the events.
Rivals take turns; the first round warms up and does not count. Ratios are taken round by round, their median is what counts. Time runs from
the first transaction to the last. Processor seconds are those of this process alone; broker and PostgreSQL share its cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from sqlalchemy import Column, Connection, Engine, MetaData, Numeric, Table, Text, insert, update
from sqlalchemy.dialects.postgresql import insert as upsert

from bench.events import order
from bench.result import about, keep
from ingest.contract import event_id
from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.delivery.database.tables import sink_event, sink_offset
from ingest.delivery.sink import Sink
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.embedded_postgres import Postgres

CUSTOMERS = 1_000
PARTITIONS = 4
RIVALS = {
    "loop by hand, 1 record": 0,
    "sink, 1 record": 1,
    "sink, 100 records": 100,
    "sink, 500 records (default)": 500,
    "sink, 2,000 records": 2_000,
}
BY_HAND = "loop by hand, 1 record"
TARGET = 10

Spent = tuple[int, float, float]  # events, wall and processor seconds

metadata = MetaData()
orders = Table(
    "orders",
    metadata,
    Column("order_id", Text, primary_key=True),
    Column("customer", Text),
    Column("status", Text),
    Column("amount", Numeric),
)


def store_orders(connection: Connection, records: Sequence[Any]) -> None:
    """What an application would write."""
    found = [json.loads(record.value) for record in records]
    rows = [{"order_id": o["order_id"], "customer": o["customer_id"], "status": o["status"], "amount": o["amount"]} for o in found]
    connection.execute(insert(orders), rows)


def fill(servers: str, topic: str, events: int) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=20, batch_size=64 * 1024)
    for number in range(events):
        headers = [("id", event_id.mint().encode())]
        producer.send(topic, order(number, customers=CUSTOMERS), key=b"customer-%08d" % (number % CUSTOMERS), headers=headers)
    producer.flush()
    producer.close()


def by_hand(engine: Engine, servers: str, topic: str, events: int) -> Spent:
    """A loop with one transaction per record."""
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, isolation_level="read_committed")
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ids = {"sink": f"{topic} by hand", "topic": topic}
    with engine.begin() as connection:
        common = {**ids, "topic_id": "", "next_offset": 0, "epoch": 0, "owner": ""}
        connection.execute(insert(sink_offset), [{**common, "partition": number} for number in range(PARTITIONS)])
    began, done = (time.perf_counter(), time.process_time()), 0
    while done < events:
        for record in (each for records in consumer.poll(1_000).values() for each in records):
            with engine.begin() as connection:
                event = {**ids, "event_id": dict(record.headers)["id"].decode(), "partition": record.partition, "offset": record.offset}
                new = connection.execute(upsert(sink_event).values(event).on_conflict_do_nothing().returning(sink_event.c.event_id)).first()
                if new is not None:
                    store_orders(connection, [record])
                at = (sink_offset.c.sink == ids["sink"], sink_offset.c.topic == topic, sink_offset.c.partition == record.partition)
                connection.execute(update(sink_offset).where(*at).values(next_offset=record.offset + 1))
            done += 1
    spent = done, time.perf_counter() - began[0], time.process_time() - began[1]
    consumer.close()
    return spent


def by_sink(engine: Engine, servers: str, topic: str, events: int, batch: int) -> Spent:
    """The sink with transactions of up to `batch` records."""
    began: list[tuple[float, float]] = []

    def on_step(step: str) -> None:
        if step == "begun" and not began:
            began.append((time.perf_counter(), time.process_time()))

    with Sink(topic, topic, store_orders, engine, servers, batch=batch, on_step=on_step) as sink:
        counts = sink.run(stop=lambda: sink.counts.stored >= events, idle_s=60)
        spent = events, time.perf_counter() - began[0][0], time.process_time() - began[0][1]
    assert (counts.stored, counts.duplicates, counts.dead) == (events, 0, 0), counts
    return spent


def rows(rounds: list[dict[str, Spent]]) -> list[dict[str, Any]]:
    """One row per rival: medians over the rounds."""
    found = []
    for name in RIVALS:
        speeds, alone = ([each[rival][0] / each[rival][1] for each in rounds] for rival in (name, BY_HAND))
        found.append(
            {
                "rival": name,
                "events": rounds[0][name][0],
                "events_per_s": round(statistics.median(speeds)),
                "processor_us_an_event": round(statistics.median(each[name][2] / each[name][0] * 1e6 for each in rounds)),
                "times_by_hand": round(statistics.median(ours / one for ours, one in zip(speeds, alone, strict=True)), 1),
                "seconds": [round(each[name][1], 3) for each in rounds],
            }
        )
    return found


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/."""
    lines = [
        "# The database sink",
        "",
        f"`python -m bench.sink --events {result['events']} --rounds {result['rounds']}` stores orders of about 226 bytes, their event ids",
        f"and their offsets from a topic of {PARTITIONS} partitions. Each transaction is flushed to disk (synchronous_commit is on).",
        f"{result['rounds']} rounds after a warm-up, medians; broker, PostgreSQL and the measured process share {result['cores']} cores;",
        f"commit {result['commit']}. The last column divides by the speed of the loop by hand in the same round.",
        "",
        "| records per transaction | events/s | CPU µs per event (measured process) | times as fast |",
        "|---|---|---|---|",
    ]
    for row in result["rivals"]:
        lines.append(f"| {row['rival']} | {row['events_per_s']:,} | {row['processor_us_an_event']:,} | {row['times_by_hand']} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure and print; with --json keep the result, and the table beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    rounds: list[dict[str, Spent]] = []
    with tempfile.TemporaryDirectory() as folder, Broker(f"{folder}/broker") as broker, Postgres(f"{folder}/postgres") as server:
        engine = connect(server.url)
        schema.migrate(engine)
        metadata.create_all(engine)
        for number in range(chosen.rounds + 1):
            done: dict[str, Spent] = {}
            for name, batch in RIVALS.items():
                topic, events = f"orders-{number}-{batch}", chosen.events // 10 if batch < 2 else chosen.events
                broker.create_topic(topic, PARTITIONS)
                fill(broker.bootstrap_servers, topic, events)
                where = (engine, broker.bootstrap_servers, topic, events)
                done[name] = by_sink(*where, batch) if batch else by_hand(*where)
            if number > 0:
                rounds.append(done)
        engine.dispose()
    result = {**about("sink/1"), "events": chosen.events, "rounds": chosen.rounds, "target_times_by_hand": TARGET, "rivals": rows(rounds)}
    keep(chosen.json, result, page)


if __name__ == "__main__":
    main()
