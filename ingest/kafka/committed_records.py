"""All committed records of a topic, read once from its beginning to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import describe

_POLL_MS = 500


def committed_records(kafka: KafkaOptions, topic: str) -> Iterator[Any]:
    """kafka-python's records up to the end at the time of the call, in order per partition. Raises the errors of `describe`."""
    places = [TopicPartition(topic, each) for each in describe(kafka, topic).partitions]
    options = {**kafka.for_python(), "isolation_level": "read_committed", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    with KafkaConsumer(**options) as reader:
        reader.assign(places)
        reader.seek_to_beginning(*places)
        ends = reader.end_offsets(places)
        while any(reader.position(place) < ends[place] for place in places):
            for place, records in reader.poll(_POLL_MS).items():
                yield from (record for record in records if record.offset < ends[place])
