"""Offset ranges of a micro-batch, as Spark's checkpoint has them.

Spark writes `offsets/N` (where batch N ends) before it runs batch N and `commits/N` after. The start of batch N is the end
of batch N−1; of batch 0 the source's initial-offset log `sources/0/0`; of a partition that was added later offset 0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ingest.errors import Refused
from ingest.files import Files

INITIAL = "sources/0/0"


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
class BatchId:
    """Which micro-batch: the checkpoint's query id and the batch's number in it."""

    query_id: str
    number: int

    def __post_init__(self) -> None:
        if not self.query_id or self.number < 0:
            raise ValueError(f"not a batch id: {self.query_id!r}, {self.number}")

    def __str__(self) -> str:
        return f"{self.query_id}/{self.number}"


@dataclass(frozen=True)
class PlannedBatch:
    """A batch as the offset log plans it: its ranges by partition and its time, which is the rows' ingestion time."""

    id: BatchId
    topic: str
    ranges: tuple[OffsetRange, ...]
    planned_at: datetime


class CheckpointTorn(Refused):
    """A file of a checkpoint that is missing or cannot be read; `file` is its name below the checkpoint."""

    def __init__(self, root: str, file: str) -> None:
        self.file = file
        super().__init__(
            "CHECKPOINT_TORN",
            f"the file {root}/{file} is missing, empty, not in the format in which it is written, or ends before it begins.",
            expected="the complete file: without it the batch's offset range is unknown, and a guess could lose records.",
            remedy="restore the file from a backup of the checkpoint; or `ingest rebase TABLE --to table` makes a new checkpoint that goes "
            "on where the table ends, and keeps the old one aside.",
        )


class CheckpointFiles:
    """Reads one streaming checkpoint of Spark (format v1 of MetadataLog and OffsetSeqLog)."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self.root = root

    def query_id(self) -> str | None:
        """The checkpoint's identity, or None if nothing was ever planned in it. Raises CheckpointTorn."""
        data = self._files.read(f"{self.root}/metadata")
        if data is None:
            return None
        try:
            return str(json.loads(data)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointTorn(self.root, "metadata") from error

    def numbers(self, log: str) -> list[int]:
        """The batch numbers in `offsets` or `commits`, ascending."""
        return sorted(int(name) for name in self._files.names(f"{self.root}/{log}") if name.isdigit())

    def planned(self, query_id: str, number: int) -> PlannedBatch:
        """Batch `number` as the offset log has it. Raises CheckpointTorn if a file is missing or unreadable."""
        starts = self._offset_log(f"offsets/{number - 1}")[1] if number > 0 else self._initial_offsets(self._read(INITIAL))
        return self._planned(query_id, number, starts)

    def baseline(self, query_id: str) -> PlannedBatch:
        """Batch 0 of a rebased checkpoint: it reads nothing, and ends where batch 1 begins. Raises as `planned`."""
        return self._planned(query_id, 0, self._offset_log("offsets/0")[1])

    def check_commit(self, number: int) -> None:
        """Raises CheckpointTorn if `commits/<number>` is not as Spark writes it."""
        lines = self._lines(f"commits/{number}", self._read(f"commits/{number}"))
        try:
            json.loads(lines[1])
        except (IndexError, ValueError) as error:
            raise CheckpointTorn(self.root, f"commits/{number}") from error

    def initial_offsets(self) -> dict[int, int] | None:
        """Where batch 0 begins or will begin, by partition; None without the source's initial-offset log, which Spark then begins.

        Raises CheckpointTorn if it is there and not as Spark writes it.
        """
        data = self._files.read(f"{self.root}/{INITIAL}")
        if data is None:
            return None
        try:
            (of_topic,) = self._initial_offsets(data).values()
            return _by_partition(of_topic)
        except (ValueError, TypeError, AttributeError) as error:
            raise CheckpointTorn(self.root, INITIAL) from error

    def _planned(self, query_id: str, number: int, starts: dict[str, Any]) -> PlannedBatch:
        name = f"offsets/{number}"
        metadata, ends = self._offset_log(name)
        try:
            (topic,) = ends
            of_topic, before = _by_partition(ends[topic]), _by_partition(starts[topic])
            ranges = tuple(OffsetRange(partition, before.get(partition, 0), end) for partition, end in sorted(of_topic.items()))
            planned_at = datetime.fromtimestamp(metadata["batchTimestampMs"] / 1000, UTC)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise CheckpointTorn(self.root, name) from error
        return PlannedBatch(BatchId(query_id, number), topic, ranges, planned_at)

    def _offset_log(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        lines = self._lines(name, self._read(name))
        try:
            return json.loads(lines[1]), json.loads(lines[2])
        except (IndexError, ValueError) as error:
            raise CheckpointTorn(self.root, name) from error

    def _initial_offsets(self, data: bytes) -> dict[str, Any]:
        lines = self._lines(INITIAL, data)
        try:
            initial: dict[str, Any] = json.loads(lines[1])
        except (IndexError, ValueError) as error:
            raise CheckpointTorn(self.root, INITIAL) from error
        return initial

    def _read(self, name: str) -> bytes:
        data = self._files.read(f"{self.root}/{name}")
        if data is None:
            raise CheckpointTorn(self.root, name)
        return data

    def _lines(self, name: str, data: bytes) -> list[str]:
        # Spark still writes a zero byte before the version of sources/0/0, for readers of version 2.1.
        lines = data.lstrip(b"\0").decode(errors="replace").splitlines()
        if not lines or lines[0] != "v1":
            raise CheckpointTorn(self.root, name)
        return lines


def _by_partition(given: Any) -> dict[int, int]:
    """Offsets as Spark writes those of one topic. Raises ValueError, TypeError or AttributeError for what it would not write."""
    if wrong := {partition: offset for partition, offset in given.items() if type(offset) is not int or int(partition) < 0 or offset < 0}:
        raise ValueError(f"no offsets: {wrong}")
    return {int(partition): offset for partition, offset in given.items()}
