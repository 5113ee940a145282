"""Every copy of an event id in a topic, found by reading the topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ingest.delivery.trace.sighting import Sighting
from ingest.kafka.committed_records import committed_records
from ingest.kafka.kafka_options import KafkaOptions


def kafka_trail(kafka: KafkaOptions, topic: str, event_id: str) -> Iterator[Sighting]:
    """The committed records whose header `id` or key is the event id, or whose value contains it as text.

    Reads the whole topic, up to the end at the time of the call. Raises the errors of `describe`.
    """
    wanted = event_id.encode()
    for record in committed_records(kafka, topic):
        where = _where(record, wanted)
        if where is not None:
            place = {"topic": topic, "partition": record.partition, "offset": record.offset, "found_in": where}
            yield Sighting("kafka", topic, f"{topic}[{record.partition}]@{record.offset}, found in its {where}", place)


def _where(record: Any, wanted: bytes) -> str | None:
    if ("id", wanted) in record.headers:
        return "header id"
    if record.key == wanted:
        return "key"
    return "value" if wanted in (record.value or b"") else None
