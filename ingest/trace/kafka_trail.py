"""Every copy of an event id in a topic, found by reading the topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import describe
from ingest.trace.sighting import Sighting

_POLL_MS = 500


def kafka_trail(kafka: KafkaOptions, topic: str, event_id: str) -> Iterator[Sighting]:
    """The committed records whose header `id` or key is the event id, or whose value contains it as text.

    Reads the whole topic, up to the end at the time of the call. Raises the errors of `describe`.
    """
    wanted = event_id.encode()
    places = [TopicPartition(topic, each) for each in describe(kafka, topic).partitions]
    options = {**kafka.for_python(), "isolation_level": "read_committed", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    with KafkaConsumer(**options) as reader:
        reader.assign(places)
        reader.seek_to_beginning(*places)
        ends = reader.end_offsets(places)
        while any(reader.position(place) < ends[place] for place in places):
            for record in (record for records in reader.poll(_POLL_MS).values() for record in records):
                where = _where(record, wanted)
                if where is not None and record.offset < ends[TopicPartition(topic, record.partition)]:
                    place = {"topic": topic, "partition": record.partition, "offset": record.offset, "found_in": where}
                    yield Sighting("kafka", topic, f"{topic}[{record.partition}]@{record.offset}, found in its {where}", place)


def _where(record: Any, wanted: bytes) -> str | None:
    if ("id", wanted) in record.headers:
        return "header id"
    if record.key == wanted:
        return "key"
    return "value" if wanted in (record.value or b"") else None
