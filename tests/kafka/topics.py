"""Access to topics with plain kafka-python, without the code under test."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from ingest.lab.broker.broker_probe import admin
from tests import polling

if TYPE_CHECKING:
    from ingest.delivery.kafka import TransactionalProducer
    from ingest.lab.proxy import ProxyFault

DEADLINE_S = 40.0
Make: TypeAlias = "Callable[..., TransactionalProducer]"
# For group members that join and leave within a test.
QUICK: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300}


def until(reached: Callable[[], bool], what: str, timeout_s: float = DEADLINE_S) -> None:
    """polling.until with a deadline that suits brokers."""
    polling.until(reached, what, timeout_s)


class Interrupted(BaseException):
    """Raised by the signal of `struck`, as Ctrl-C raises KeyboardInterrupt."""


@contextmanager
def struck(held: ProxyFault) -> Iterator[None]:
    """Send a signal to the main thread as soon as the reply is held; it raises Interrupted there."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    def send_signal() -> None:
        held.wait(20)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    signalling = threading.Thread(target=send_signal)
    signalling.start()
    try:
        yield
        signalling.join(20)
    finally:
        signal.signal(signal.SIGUSR1, before)
        held.release()


class Topics:
    def __init__(self, servers: str) -> None:
        self.servers = servers

    def write(self, topic: str, values: Iterable[bytes], key: Callable[[int], bytes | None] = lambda number: None) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers, acks="all", linger_ms=20)
        sent = [producer.send(topic, value, key=key(number)) for number, value in enumerate(values)]
        producer.flush()
        assert all(future.succeeded() for future in sent)
        producer.close()

    def read(self, topic: str, level: str = "read_committed", timeout_s: float = DEADLINE_S) -> list[Any]:
        """All records up to the last stable offset (or the end), ordered by partition and offset."""
        with self._reader(isolation_level=level) as reader:
            places = [TopicPartition(topic, number) for number in sorted(reader.partitions_for_topic(topic))]
            reader.assign(places)
            reader.seek_to_beginning(*places)
            ends = reader.end_offsets(places)
            found: list[Any] = []
            deadline = time.monotonic() + timeout_s
            while any(reader.position(place) < ends[place] for place in places):
                assert time.monotonic() < deadline, f"{topic} could not be read to its end"
                for records in reader.poll(timeout_ms=200).values():
                    found.extend(records)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def values(self, topic: str, level: str = "read_committed") -> list[bytes]:
        return [record.value for record in self.read(topic, level)]

    def stable(self, topic: str) -> bool:
        """Whether no transaction is open: the last stable offset is the end."""
        with self._reader(isolation_level="read_committed") as committed, self._reader() as every:
            places = [TopicPartition(topic, number) for number in every.partitions_for_topic(topic)]
            return bool(every.end_offsets(places) == committed.end_offsets(places))

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """The group's committed offsets by partition, without those of open transactions."""
        with self._reader(group_id=group) as reader:
            places = [TopicPartition(topic, number) for number in reader.partitions_for_topic(topic)]
            return {place.partition: reader.committed(place) or 0 for place in places}

    def add_partition(self, topic: str, values: Iterable[bytes] = ()) -> None:
        """Add partition 1 to a topic with one, and write these values to it."""
        with admin(self.servers, timeout_s=30) as client:
            client.create_partitions({topic: 2})
        with KafkaProducer(bootstrap_servers=self.servers) as producer:
            until(lambda: len(producer.partitions_for(topic)) == 2, "the partition is there")
            for value in values:
                producer.send(topic, value, partition=1).get(30)

    def recreate(self, topic: str) -> None:
        """Delete the topic and create it again, with one partition."""
        with admin(self.servers, timeout_s=30) as client:
            client.delete_topics([topic])

            def created() -> bool:
                try:
                    client.create_topics([NewTopic(topic, 1, 1)], wait_for_metadata=True)
                except KafkaError:  # it is still being deleted
                    return False
                return True

            until(created, "the topic is created again")

    @contextmanager
    def _reader(self, **options: Any) -> Iterator[Any]:
        reader = KafkaConsumer(bootstrap_servers=self.servers, enable_auto_commit=False, metrics_enabled=False, **options)
        try:
            yield reader
        finally:
            reader.close()
