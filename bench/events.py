"""The events that the benchmarks send: orders of seven columns, about 226 bytes of JSON, with ids that rise with time."""

from __future__ import annotations

import json

from confluent_kafka import Producer

from ingest import event_id

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


def order(number: int, *, customers: int) -> bytes:
    """The event of this number, of about 226 bytes; ids are minted anew, customers come round."""
    return json.dumps(
        {
            "order_id": event_id.mint(),
            "customer_id": f"customer-{number % customers:08}",
            "status": ("placed", "paid", "shipped", "cancelled")[number % 4],
            "currency": "EUR",
            "amount": f"{number % 100_000 / 100:.2f}",
            "quantity": number % 9 + 1,
            "ordered_at": f"2026-01-{number % 28 + 1:02}T{number % 24:02}:00:00.{number % 1000:03}Z",
        },
        separators=(",", ":"),
    ).encode()


def produce(servers: str, events: int) -> int:
    """Send `events` JSON events of about 226 bytes with time-ordered ids, one in twenty sent again; returns the records sent."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "batch.size": 1_000_000})
    sent, last = 0, b""
    for number in range(events):
        last = order(number, customers=100_000)
        for _ in range(2 if number % round(1 / DUPLICATES) == 0 else 1):
            while True:
                try:
                    producer.produce(TOPIC, last, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
            sent += 1
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return sent
