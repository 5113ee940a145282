"""Offset ranges, and the end offsets of Spark's micro-batches.

Spark writes `offsets/N` in its checkpoint before it runs batch N. Only the run that planned the batch reads that file (I2). The run
itself knows where a batch starts: from the table and from the previous batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import Files

Partition = tuple[int, int]
"""The number of a topic in its table's list of sources, and Kafka's partition."""


# Source and partition as one number, for arrays.
LANE_BITS = 32


def lane(of: Partition) -> int:
    """A partition as one number: source × 2³² + partition."""
    return of[0] << LANE_BITS | of[1]


def of_lane(number: int) -> Partition:
    """The inverse of `lane`."""
    return divmod(number, 1 << LANE_BITS)


@dataclass(frozen=True)
class OffsetRange:
    """The offsets [start, end) of one partition. Gaps inside (transaction markers, compaction) are normal.

    `leader_epoch` is that of the record before `end`, if known. Ranges are compared without it. `source` is the topic's number.
    """

    partition: int
    start: int
    end: int
    leader_epoch: int | None = field(default=None, compare=False)
    source: int = 0

    def __post_init__(self) -> None:
        if self.source < 0 or self.partition < 0 or not 0 <= self.start <= self.end:
            raise ValueError(f"not an offset range: source {self.source}, partition {self.partition} [{self.start}, {self.end})")

    @property
    def of(self) -> Partition:
        """Its partition."""
        return self.source, self.partition

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def __str__(self) -> str:
        return f"{shown(self.of)}:[{self.start},{self.end})"


def shown(partition: Partition) -> str:
    """A partition for a message: `3`, or `1/3` of the topic with number 1."""
    source, number = partition
    return f"{source}/{number}" if source else str(number)


@dataclass(frozen=True)
class Position:
    """An offset up to which records were read, and the leader epoch of the record before it."""

    offset: int
    leader_epoch: int


def known_positions(ranges: Iterable[OffsetRange]) -> dict[Partition, Position]:
    """The ends whose leader epoch is known, by partition."""
    return {each.of: Position(each.end, each.leader_epoch) for each in ranges if each.leader_epoch is not None}


def empty_ranges(starts: Mapping[Partition, int], read_to: Mapping[Partition, Position]) -> tuple[OffsetRange, ...]:
    """The ranges [start, start), with the leader epochs of those positions that are starts."""
    epochs = {of: each.leader_epoch for of, each in read_to.items() if starts.get(of) == each.offset}
    return tuple(OffsetRange(of[1], start, start, epochs.get(of), of[0]) for of, start in sorted(starts.items()))


Of = TypeVar("Of")


def of_source(values: Mapping[Partition, Of], source: int) -> dict[int, Of]:
    """The values of one topic, by Kafka's partition."""
    return {partition: value for (number, partition), value in values.items() if number == source}


@dataclass(frozen=True)
class Planned:
    """A batch as Spark planned it: one range per partition, sorted, and its time, which becomes the rows' ingestion time."""

    ranges: tuple[OffsetRange, ...]
    planned_at: datetime


def planned(files: Files, checkpoint: str, number: int, starts: Mapping[Partition, int], topics: Mapping[str, int]) -> Planned:
    """Spark's batch `number`, which starts at `starts`; a partition that `starts` lacks starts at 0. `topics` are their numbers by name.

    Raises RunStopped CHECKPOINT_GONE if the batch's file is missing or damaged, if its offsets end before `starts`, or if it lacks
    a partition of `starts`.
    """
    path = f"{checkpoint}/offsets/{number}"
    try:
        version, metadata, offsets = (files.read(path) or b"").decode().splitlines()[:3]
        if version != "v1":
            raise ValueError(version)
        ends = {(topics[name], int(p)): int(end) for name, each in read_json(offsets).items() for p, end in each.items()}
        ranges = tuple(OffsetRange(of[1], starts.get(of, 0), end, source=of[0]) for of, end in sorted(ends.items()))
        if missing := starts.keys() - ends.keys():
            raise ValueError(f"partitions {', '.join(map(shown, sorted(missing)))} are missing")
        return Planned(ranges, datetime.fromtimestamp(read_json(metadata)["batchTimestampMs"] / 1000, UTC))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunStopped(
            "CHECKPOINT_GONE",
            f"{path} was deleted, damaged or replaced during the run ({error}). Nothing of this batch was written.",
            expected="the offsets that Spark has just written there.",
            remedy="run again: it continues where the table ends.",
        ) from error
