"""Offset ranges, and the end offsets of Spark's micro-batches.

Spark writes `offsets/N` in its checkpoint before it runs batch N. Only the run that planned the batch reads that file (I2). The run
itself knows where a batch starts: from the table and from the previous batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import Files


@dataclass(frozen=True, order=True)
class OffsetRange:
    """The offsets [start, end) of one partition. Gaps inside (transaction markers, compaction) are normal.

    `leader_epoch` is that of the record before `end`, if known. Ranges are compared without it.
    """

    partition: int
    start: int
    end: int
    leader_epoch: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.partition < 0 or not 0 <= self.start <= self.end:
            raise ValueError(f"not an offset range: partition {self.partition} [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def __str__(self) -> str:
        return f"{self.partition}:[{self.start},{self.end})"


@dataclass(frozen=True)
class Position:
    """An offset up to which records were read, and the leader epoch of the record before it."""

    offset: int
    leader_epoch: int


def known_positions(ranges: Iterable[OffsetRange]) -> dict[int, Position]:
    """The ends whose leader epoch is known, by partition."""
    return {each.partition: Position(each.end, each.leader_epoch) for each in ranges if each.leader_epoch is not None}


def empty_ranges(starts: Mapping[int, int], read_to: Mapping[int, Position]) -> tuple[OffsetRange, ...]:
    """The ranges [start, start), with the leader epochs of those positions that are starts."""
    epochs = {p: each.leader_epoch for p, each in read_to.items() if starts.get(p) == each.offset}
    return tuple(OffsetRange(p, start, start, epochs.get(p)) for p, start in sorted(starts.items()))


@dataclass(frozen=True)
class Planned:
    """A batch as Spark planned it: one range per partition, sorted, and its time, which becomes the rows' ingestion time."""

    ranges: tuple[OffsetRange, ...]
    planned_at: datetime


def planned(files: Files, checkpoint: str, number: int, starts: Mapping[int, int]) -> Planned:
    """Spark's batch `number`, which starts at `starts`; a partition that `starts` lacks starts at 0.

    Raises RunStopped CHECKPOINT_GONE if the batch's file is missing or damaged, if its offsets end before `starts`, or if it lacks
    a partition of `starts`.
    """
    path = f"{checkpoint}/offsets/{number}"
    try:
        version, metadata, offsets = (files.read(path) or b"").decode().splitlines()[:3]
        if version != "v1":
            raise ValueError(version)
        (ends,) = read_json(offsets).values()
        ranges = tuple(OffsetRange(p, starts.get(p, 0), end) for p, end in sorted((int(p), int(end)) for p, end in ends.items()))
        if missing := starts.keys() - {each.partition for each in ranges}:
            raise ValueError(f"partitions {sorted(missing)} are missing")
        return Planned(ranges, datetime.fromtimestamp(read_json(metadata)["batchTimestampMs"] / 1000, UTC))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunStopped(
            "CHECKPOINT_GONE",
            f"{path} was deleted, damaged or replaced during the run ({error}). Nothing of this batch was written.",
            expected="the offsets that Spark has just written there.",
            remedy="run again: it continues where the table ends.",
        ) from error
