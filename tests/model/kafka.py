"""A topic: records by partition and offset, offsets that hold none (transaction markers, aborted records), a log start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

NAME = "events"


class Record(NamedTuple):
    """`kind`: good; poison (no contract takes it); odd (the stricter of the two contracts refuses it)."""

    id: int
    payload: int
    kind: str


class Read(NamedTuple):
    """A record where it was read."""

    partition: int
    offset: int
    record: Record


@dataclass
class Topic:
    """One incarnation of the topic. An offset that holds None has no record for our isolation level."""

    id: str
    partitions: list[list[Record | None]] = field(default_factory=list)
    log_start: list[int] = field(default_factory=list)

    def add_partition(self) -> None:
        self.partitions.append([])
        self.log_start.append(0)

    def bounds(self) -> dict[int, tuple[int, int]]:
        """(earliest, end) by partition."""
        return {number: (self.log_start[number], len(log)) for number, log in enumerate(self.partitions)}

    def read(self, partition: int, start: int, end: int) -> list[Read]:
        """The records of [start, end). Raises DataLoss as Spark with failOnDataLoss."""
        if start == end:
            return []
        if partition >= len(self.partitions) or start < self.log_start[partition] or end > len(self.partitions[partition]):
            raise DataLoss(f"partition {partition} [{start}, {end})")
        log = self.partitions[partition]
        found = ((offset, log[offset]) for offset in range(start, end))
        return [Read(partition, offset, record) for offset, record in found if record is not None]


class DataLoss(Exception):
    """What Spark's Kafka source says where offsets that it was to read are not there."""
