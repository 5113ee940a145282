"""What the broker says of a topic: its id, its partitions, where each ends. Every question has a deadline."""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from ingest.errors import Unfit
from ingest.kafka_options import KafkaOptions

# A cluster that answers at all answers in a second or two; a minute of silence is a wrong address.
ANSWER_WITHIN_MS = 15_000
# The lag is for show; no batch waits for it.
LAG_WITHIN_MS = 2_000


@dataclass(frozen=True)
class Topic:
    """A topic as the broker knows it. `id` is how Kafka prints it; it is empty if the broker is too old to have ids."""

    name: str
    id: str
    partitions: tuple[int, ...]


def describe(kafka: KafkaOptions, name: str, within_ms: int = ANSWER_WITHIN_MS) -> Topic:
    """Ask for the topic. Raises Unfit BROKER_UNREACHABLE, BROKER_REFUSED or TOPIC_UNKNOWN."""
    _quiet()
    try:
        client = KafkaAdminClient(**kafka.for_python(), request_timeout_ms=within_ms, bootstrap_timeout_ms=within_ms)
        try:
            found = client.describe_topics([name])[0]
        finally:
            client.close()
    except KafkaError as error:
        raise _unreachable(kafka, error) from error
    if found.get("error_code"):
        raise Unfit(
            "TOPIC_UNKNOWN",
            f"{kafka.bootstrap_servers} has no topic {name!r} that we may read (Kafka's error code {found['error_code']}).",
            expected="an existing topic and the right to read it.",
            remedy="create the topic, correct source.topic in the contract, or grant Describe and Read.",
        )
    return Topic(name, _id_text(found.get("topic_id")), tuple(sorted(p["partition_index"] for p in found["partitions"])))


def look(kafka: KafkaOptions, name: str, within_ms: int) -> tuple[Topic, dict[int, tuple[int, int]]]:
    """`describe` and `bounds` in one go, for who cannot wait: each question may take `within_ms`. Raises as both."""
    topic = describe(kafka, name, within_ms)
    return topic, bounds(kafka, topic, within_ms)


def bounds(kafka: KafkaOptions, topic: Topic, within_ms: int = ANSWER_WITHIN_MS) -> dict[int, tuple[int, int]]:
    """The earliest offset of each partition and its end (the high watermark). Raises Unfit BROKER_UNREACHABLE."""
    _quiet()
    partitions = [TopicPartition(topic.name, partition) for partition in topic.partitions]
    try:
        consumer = KafkaConsumer(**kafka.for_python(), enable_auto_commit=False, group_id=None, bootstrap_timeout_ms=within_ms)
        try:
            first = consumer.beginning_offsets(partitions, timeout_ms=within_ms)
            end = consumer.end_offsets(partitions, timeout_ms=within_ms)
        finally:
            consumer.close(autocommit=False)
    except KafkaError as error:
        raise _unreachable(kafka, error) from error
    return {each.partition: (int(first[each]), int(end[each])) for each in partitions}


def offsets_at(kafka: KafkaOptions, topic: Topic, milliseconds: int) -> dict[int, int | None]:
    """The first offset of each partition whose record is not older than this time (ms since the epoch); None: all are older.

    Raises Unfit BROKER_UNREACHABLE.
    """
    _quiet()
    partitions = [TopicPartition(topic.name, partition) for partition in topic.partitions]
    try:
        consumer = KafkaConsumer(**kafka.for_python(), enable_auto_commit=False, group_id=None, bootstrap_timeout_ms=ANSWER_WITHIN_MS)
        try:
            found = consumer.offsets_for_times(dict.fromkeys(partitions, milliseconds), timeout_ms=ANSWER_WITHIN_MS)
        finally:
            consumer.close(autocommit=False)
    except KafkaError as error:
        raise _unreachable(kafka, error) from error
    return {each.partition: None if found.get(each) is None else int(found[each].offset) for each in partitions}


class Ends:
    """Asks where a topic's partitions end, as a reader of this isolation level sees it; `close` it at the end."""

    def __init__(self, kafka: KafkaOptions, topic: Topic, isolation_level: str) -> None:
        self._kafka = kafka
        self._isolation_level = isolation_level
        self._partitions = [TopicPartition(topic.name, partition) for partition in topic.partitions]
        self._consumer: KafkaConsumer | None = None

    def lag(self, reached: Mapping[int, int]) -> int | None:
        """Offsets between `reached` (by partition) and the ends; None if the broker did not say within LAG_WITHIN_MS."""
        try:
            if self._consumer is None:
                settings = {"enable_auto_commit": False, "group_id": None, "isolation_level": self._isolation_level}
                self._consumer = KafkaConsumer(**self._kafka.for_python(), **settings, bootstrap_timeout_ms=LAG_WITHIN_MS)
            ends = self._consumer.end_offsets(self._partitions, timeout_ms=LAG_WITHIN_MS)
        except KafkaError:
            self.close()
            return None
        return sum(max(0, int(end) - reached.get(each.partition, 0)) for each, end in ends.items())

    def close(self) -> None:
        """Leave the broker."""
        if self._consumer is not None:
            self._consumer.close(autocommit=False)
            self._consumer = None


def _unreachable(kafka: KafkaOptions, error: Exception) -> Unfit:
    # The kind of error only: some messages of the client repeat its settings.
    return Unfit(
        "BROKER_UNREACHABLE",
        f"no answer from the Kafka brokers {kafka.bootstrap_servers} ({type(error).__name__}).",
        expected=f"an answer within {ANSWER_WITHIN_MS // 1000} s.",
        remedy="check --bootstrap-servers and the INGEST_KAFKA_* options; `ingest broker start` starts an embedded broker.",
    )


def _id_text(value: object) -> str:
    """Kafka's own notation of a topic id: URL-safe base64 of the 16 bytes, without padding."""
    if value is None:
        return ""
    number = value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))
    return "" if number.int == 0 else base64.urlsafe_b64encode(number.bytes).rstrip(b"=").decode()


def _quiet() -> None:
    """kafka-python warns at every try; what matters is said once, by the error."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
