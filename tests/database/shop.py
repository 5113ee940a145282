"""A shop with a table of orders and our outbox, and a reader of what its relay has published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, select, text

from ingest.delivery.database.tables import outbox
from ingest.delivery.outbox.event import add

orders = Table("orders", MetaData(), Column("number", Integer, primary_key=True), Column("customer", Text, nullable=False))


class Shop:
    """Writes orders, each with its event in the same transaction. Order n belongs to customer n modulo `customers`."""

    def __init__(self, engine: Engine, customers: int = 7) -> None:
        self.engine, self._customers = engine, customers
        orders.metadata.create_all(engine)
        self.numbers = 0

    def place(self, number: int = 1, kind: str = "order") -> list[str]:
        """Place orders, up to a thousand in a transaction. Returns their event ids."""
        made: list[str] = []
        while len(made) < number:
            with self.engine.begin() as connection:
                for _ in range(min(1_000, number - len(made))):
                    self.numbers += 1
                    customer = str(self.numbers % self._customers)
                    connection.execute(orders.insert(), {"number": self.numbers, "customer": customer})
                    made.append(add(connection, kind, customer, "OrderPlaced", {"number": self.numbers}))
        return made

    def unpublished(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text(f"SELECT count(*) FROM {outbox.name} WHERE published_at IS NULL")).scalar_one())

    def row(self, event_id: str) -> Any:
        with self.engine.connect() as connection:
            return connection.execute(select(outbox).where(outbox.c.id == event_id)).one()


def published(servers: str, topic: str) -> list[Any]:
    """All committed records of the topic, in order per partition."""
    with KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False) as reader:
        places = [TopicPartition(topic, each) for each in sorted(reader.partitions_for_topic(topic) or ())]
        reader.assign(places)
        reader.seek_to_beginning(*places)
        ends, found = reader.end_offsets(places), []
        while any(reader.position(place) < ends[place] for place in places):
            found += [record for records in reader.poll(200).values() for record in records]
    return found


def event_ids(records: Sequence[Any]) -> list[str]:
    return [dict(record.headers)["id"].decode() for record in records]


def in_order(records: Sequence[Any]) -> bool:
    """Whether the first copies of each key's events have rising numbers."""
    seen: set[str] = set()
    numbers: dict[bytes, list[bytes]] = defaultdict(list)
    for record, event_id in zip(records, event_ids(records), strict=True):
        if event_id not in seen:
            seen.add(event_id)
            numbers[record.key].append(record.value)
    return all(values == sorted(values, key=lambda value: (len(value), value)) for values in numbers.values())
