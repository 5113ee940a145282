"""A topic of payments, a sink that stores them, and what the database must contain at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from sqlalchemy import Engine, select, text

from ingest.delivery.database.tables import dead_letter, sink_event, sink_offset
from ingest.delivery.sink import Counts, Sink
from tests.database.sink_instance import metadata, paid, pay
from tests.polling import until

# For group members that join and leave within a test.
QUICK: Mapping[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300}


def numbered(first: int, end: int) -> list[str]:
    return [f"event-{number}" for number in range(first, end)]


class SinkScene:
    """Writes records with event ids, runs sinks named after the topic, and compares the database with the topic."""

    def __init__(self, engine: Engine, url: str, servers: str, topic: str, partitions: int) -> None:
        self.engine, self.url, self.servers, self.topic, self.partitions = engine, url, servers, topic, partitions
        metadata.create_all(engine)
        self.producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)
        self.written: list[tuple[int, str | None]] = []

    def produce(self, ids: Iterable[str | None], partition: int | None = None, value: bytes = b"{}") -> None:
        """Write a record per id (None: without the header), to one partition or to all in turn."""
        futures = []
        for number, event_id in enumerate(ids):
            at = number % self.partitions if partition is None else partition
            headers = [] if event_id is None else [("id", event_id.encode())]
            futures.append(self.producer.send(self.topic, value, key=b"key", headers=headers, partition=at))
            self.written.append((at, event_id))
        self.producer.flush()
        assert all(future.succeeded() for future in futures)

    def renew(self) -> None:
        """Use a producer that knows the topic as it is now."""
        self.producer.close()
        self.producer = KafkaProducer(bootstrap_servers=self.servers, acks="all", linger_ms=5)

    def sink(self, write: Any = pay, database: Engine | str | None = None, **more: Any) -> Sink:
        options = {"consumer_options": dict(QUICK), **more}
        return Sink(self.topic, self.topic, write, database or self.engine, self.servers, **options)

    def run(self, records: int, write: Any = pay, *, within_s: float = 30.0, **more: Any) -> Counts:
        """Run a sink in this process until it has processed that many records."""
        with self.sink(write, **more) as sink:
            return sink.run(stop=self.done(sink, records), idle_s=within_s)

    @staticmethod
    def done(sink: Sink, records: int) -> Callable[[], bool]:
        return lambda: sink.counts.stored + sink.counts.duplicates + sink.counts.dead >= records

    def settings(self, **more: Any) -> dict[str, Any]:
        """The settings of an instance in its own process."""
        return {"name": self.topic, "topics": [self.topic], "database": self.url, "servers": self.servers, **more}

    def place(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def paid(self) -> Counter[str]:
        """How many rows each event has."""
        with self.engine.connect() as connection:
            return Counter(connection.scalars(select(paid.c.event_id).where(paid.c.topic == self.topic)))

    def offsets(self) -> dict[int, int]:
        with self.engine.connect() as connection:
            rows = connection.execute(select(sink_offset.c.partition, sink_offset.c.next_offset).where(sink_offset.c.sink == self.topic))
            return {row.partition: row.next_offset for row in rows}

    def owners(self) -> dict[int, str]:
        with self.engine.connect() as connection:
            rows = connection.execute(select(sink_offset.c.partition, sink_offset.c.owner).where(sink_offset.c.sink == self.topic))
            return {row.partition: row.owner for row in rows}

    def events(self) -> dict[str, int]:
        """The ids in our table, with the number of their duplicates."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(sink_event.c.event_id, sink_event.c.duplicates).where(sink_event.c.sink == self.topic))
            return {row.event_id: row.duplicates for row in rows}

    def dead(self) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(select(dead_letter).where(dead_letter.c.sink == self.topic).order_by(dead_letter.c.offset)))

    def consistent(self) -> None:
        """At any time: the offsets cover exactly the events that have a row, and each of them has one row."""
        with self.engine.connect() as connection, connection.execution_options(isolation_level="REPEATABLE READ").begin():
            offsets = {row.partition: row.next_offset for row in connection.execute(select(sink_offset).where(self._mine(sink_offset)))}
            ids = set(connection.scalars(select(sink_event.c.event_id).where(self._mine(sink_event))))
            rows = Counter(connection.scalars(select(paid.c.event_id).where(paid.c.topic == self.topic)))
        numbers: Counter[int] = Counter()
        covered: set[str | None] = set()
        for partition, event_id in self.written:
            if numbers[partition] < offsets.get(partition, 0):
                covered.add(event_id)
            numbers[partition] += 1
        assert set(rows.values()) <= {1}, "no event has two rows"
        assert set(rows) == ids == covered, "rows, ids and offsets tell the same"

    def complete(self, deadline_s: float = 90.0) -> None:
        """Wait until all is stored, then check that each event has one row."""
        ends = dict(Counter(partition for partition, _ in self.written))
        until(lambda: {at: end for at, end in self.offsets().items() if end} == ends, lambda: f"{self.offsets()} of {ends}", deadline_s)
        self.consistent()
        assert set(self.paid()) == {event_id for _, event_id in self.written}

    def committed(self) -> dict[int, int | None]:
        """The offsets that Kafka knows for the group."""
        with KafkaConsumer(bootstrap_servers=self.servers, group_id=self.topic, enable_auto_commit=False) as reader:
            return {at: reader.committed(self.place(at)) for at in range(self.partitions)}

    def commit(self, offset: int) -> None:
        """Set the group's offsets in Kafka, without the sink."""
        with KafkaConsumer(bootstrap_servers=self.servers, group_id=self.topic, enable_auto_commit=False) as other:
            other.commit({self.place(at): OffsetAndMetadata(offset, "", -1) for at in range(self.partitions)})

    def execute(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement))

    def close(self) -> None:
        self.producer.close()

    def _mine(self, table: Any) -> Any:
        return table.c.sink == self.topic


@contextmanager
def scenes(engine: Engine, servers: str, topic: Callable[..., str]) -> Iterator[Callable[..., SinkScene]]:
    """`make(partitions=1, own=…)` creates a topic, and tables for its payments in the test's database or in that of another engine."""
    with ExitStack() as stack:

        def make(partitions: int = 1, own: Engine | None = None) -> SinkScene:
            used = own or engine
            url = used.url.render_as_string(hide_password=False)
            made = SinkScene(used, url, servers, topic(partitions), partitions)
            stack.callback(made.close)
            return made

        yield make
