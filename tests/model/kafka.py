"""Topics: records by partition and offset, offsets without a record (transaction markers, aborted records), a log start."""

from __future__ import annotations

from typing import NamedTuple

from ingest.kafka.topic_state import TopicId, TopicState

# The topics of the contract: the first one is there from the beginning, the other may join.
NAMES = ("events", "more")


class Record(NamedTuple):
    """`kind`: good; odd (the strict contract refuses it); poison (every contract refuses it)."""

    id: int
    payload: int
    kind: str


class Topic:
    """One incarnation of a topic. At an offset with None, a read_committed consumer finds no record. `gone`: it was deleted."""

    def __init__(self, name: str, id: str, partitions: int) -> None:
        self.name, self.id, self.gone = name, id, False
        self.partitions: list[list[Record | None]] = [[] for _ in range(partitions)]
        self.log_start = [0] * partitions

    def add_partition(self) -> None:
        self.partitions.append([])
        self.log_start.append(0)

    def bounds(self) -> dict[int, tuple[int, int]]:
        """(earliest, end) by partition."""
        return {p: (self.log_start[p], len(log)) for p, log in enumerate(self.partitions)}

    def state(self) -> TopicState:
        """The topic as a broker reports it."""
        return TopicState(TopicId(self.name, self.id), self.bounds())

    def read(self, partition: int, start: int, end: int) -> list[tuple[int, Record]]:
        """The records of [start, end) with their offsets. Raises LookupError if Kafka has expired some."""
        if start < end and start < self.log_start[partition]:
            raise LookupError(f"partition {partition} starts at {self.log_start[partition]}, not at {start}")
        log = self.partitions[partition]
        return [(offset, record) for offset in range(start, end) if (record := log[offset]) is not None]
