"""The events that the benchmarks send: orders of seven columns, about 226 bytes of JSON, with ids that rise with time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from confluent_kafka import Producer

from ingest.contract import event_id

COLUMNS = {
    "order_id": "STRING",
    "customer_id": "STRING",
    "status": "STRING",
    "currency": "STRING",
    "amount": "DECIMAL(18,2)",
    "quantity": "INT",
    "ordered_at": "TIMESTAMP",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
TOPIC, PARTITIONS = "events", 4
DUPLICATES = 0.05
RECORD_BYTES = 226


def order(number: int, *, customers: int, padding: str = "", order_id: str | None = None) -> bytes:
    """The event of this number, of about 226 bytes and the padding's; ids are minted anew unless given, customers come round."""
    return json.dumps(
        {
            "order_id": order_id or event_id.mint(),
            "customer_id": f"customer-{number % customers:08}{padding}",
            "status": ("placed", "paid", "shipped", "cancelled")[number % 4],
            "currency": "EUR",
            "amount": f"{number % 100_000 / 100:.2f}",
            "quantity": number % 9 + 1,
            "ordered_at": f"2026-01-{number % 28 + 1:02}T{number % 24:02}:00:00.{number % 1000:03}Z",
        },
        separators=(",", ":"),
    ).encode()


def produce(
    servers: str, events: int, *, topic: str = TOPIC, partitions: int = PARTITIONS, duplicates: float = DUPLICATES, padding: str = ""
) -> int:
    """Send `events` JSON events with time-ordered ids, a share of them at once again; returns the records sent."""

    def events_of_partitions() -> Iterator[tuple[int, bytes, None]]:
        for number in range(events):
            event = order(number, customers=100_000, padding=padding)
            again = int((number + 1) * duplicates) > int(number * duplicates)
            yield from [(number % partitions, event, None)] * (1 + again)

    return send(servers, topic, events_of_partitions())


def send(servers: str, topic: str, records: Iterable[tuple[int, bytes, bytes | None]]) -> int:
    """Send records (partition, value, key) and wait until the broker has them; returns how many."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "batch.size": 1_000_000})
    sent = 0
    for partition, value, key in records:
        while True:
            try:
                producer.produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
        sent += 1
        if sent % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return sent
