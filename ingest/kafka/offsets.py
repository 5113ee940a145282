"""Offset ranges, and where a micro-batch of Spark ends.

Spark writes `offsets/N` in its checkpoint before it runs batch N. Only the run that planned the batch reads that file (I2): where a batch
begins, the run knows itself, from the table and from the batch before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ingest.runtime.errors import RunStopped
from ingest.runtime.files import Files


@dataclass(frozen=True, order=True)
class OffsetRange:
    """The offsets [start, end) of one partition; a gap inside (transaction markers, compaction) is normal."""

    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.partition < 0 or not 0 <= self.start <= self.end:
            raise ValueError(f"not an offset range: partition {self.partition} [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.partition}:[{self.start},{self.end})"


@dataclass(frozen=True)
class Planned:
    """A batch as Spark has planned it: its ranges by partition and its time, which is the rows' ingestion time."""

    ranges: tuple[OffsetRange, ...]
    planned_at: datetime


def planned(files: Files, checkpoint: str, number: int, starts: Mapping[int, int]) -> Planned:
    """Batch `number` of Spark's, which begins at `starts`; a partition that is not among them begins at 0.

    Raises RunStopped CHECKPOINT_GONE where the file of this very batch is missing or damaged, or ends before `starts`.
    """
    path = f"{checkpoint}/offsets/{number}"
    try:
        version, metadata, offsets = (files.read(path) or b"").decode().splitlines()[:3]
        if version != "v1":
            raise ValueError(version)
        (ends,) = json.loads(offsets).values()
        ranges = tuple(OffsetRange(p, starts.get(p, 0), end) for p, end in sorted((int(p), int(end)) for p, end in ends.items()))
        if missing := starts.keys() - {each.partition for each in ranges}:
            raise ValueError(f"partitions {sorted(missing)} are missing")
        return Planned(ranges, datetime.fromtimestamp(json.loads(metadata)["batchTimestampMs"] / 1000, UTC))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunStopped(
            "CHECKPOINT_GONE",
            f"{path} was deleted, damaged or replaced beneath the run ({error}). Nothing of this batch was written.",
            expected="the offsets that Spark has just written there.",
            remedy="run again: it goes on where the table ends.",
        ) from error
