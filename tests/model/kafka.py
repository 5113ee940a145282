"""A topic: records by partition and offset, offsets without a record (transaction markers, aborted records), a log start."""

from __future__ import annotations

from typing import NamedTuple

NAME = "events"


class Record(NamedTuple):
    """`kind`: good; odd (the strict contract refuses it); poison (every contract refuses it)."""

    id: int
    payload: int
    kind: str


class Topic:
    """One incarnation of the topic. At an offset with None, a read_committed consumer finds no record."""

    def __init__(self, id: str, partitions: int) -> None:
        self.id = id
        self.partitions: list[list[Record | None]] = [[] for _ in range(partitions)]
        self.log_start = [0] * partitions

    def add_partition(self) -> None:
        self.partitions.append([])
        self.log_start.append(0)

    def bounds(self) -> dict[int, tuple[int, int]]:
        """(earliest, end) by partition."""
        return {p: (self.log_start[p], len(log)) for p, log in enumerate(self.partitions)}

    def read(self, partition: int, start: int, end: int) -> list[tuple[int, int, Record]]:
        """The records of [start, end) with their positions. Raises LookupError if Kafka has expired some."""
        if start < end and start < self.log_start[partition]:
            raise LookupError(f"partition {partition} starts at {self.log_start[partition]}, not at {start}")
        log = self.partitions[partition]
        return [(partition, offset, record) for offset in range(start, end) if (record := log[offset]) is not None]
