"""The staged rows of a batch for one table: files that no commit names yet, and rows in memory (what workers hand over: outputs.py)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.delta.data_file import StagedFile, refuse_changed, sync
from ingest.delta.partition import read, write_files, write_partition
from ingest.kafka.offsets import Partition, lane, of_lane

# What becomes of a record: a new row (or a new record in quarantine), nothing because it is a later copy of an event id inside the batch,
# nothing because the table has it, or a record for the quarantine.
KEPT, DUPLICATE, PRESENT, REFUSED = range(4)


@dataclass
class Part:
    """Some of the rows: those of a file, or in memory.

    `lanes` (source and partition, `offsets.lane`) and `offsets` have a value for each record, and so has `hashes` if the table has event
    ids that may occur twice. Records that a worker found to be later copies come last; they are in `copies` only, and not among the rows.
    `outcome` says of each record whether it is KEPT, or else a DUPLICATE, PRESENT or REFUSED.
    """

    lanes: np.ndarray
    offsets: np.ndarray
    hashes: np.ndarray
    rows: int
    file: StagedFile | None = None
    data: pa.Table | None = None
    copies: pa.Table | None = None
    outcome: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.outcome = np.zeros(len(self.offsets), np.int8)

    @staticmethod
    def of(row: Mapping[str, Any]) -> Part:
        """The part that an output row of a worker describes."""
        file = None
        if row["path"] is not None:
            file = StagedFile(row["path"], row["size"], row["rows"], row["stats"], json.loads(row["partition"]))
        data, copies = (_table(row[name]) if row[name] is not None else None for name in ("data", "copies"))
        lanes, offsets = (np.frombuffer(row[name], np.int64) for name in ("lanes", "offsets"))
        return Part(lanes, offsets, np.frombuffer(row["hashes"] or b"", np.uint64), row["rows"], file, data, copies)

    @property
    def kept(self) -> np.ndarray:
        """Which of the rows are kept (bool, shape (rows,))."""
        return np.asarray(self.outcome[: self.rows] == KEPT)

    def columns(self, folder: str, schema: pa.Schema) -> pa.Table:
        """These columns of all rows."""
        if self.data is not None:
            return self.data.select(schema.names).cast(schema)
        assert self.file is not None, "a part is a file or in memory"
        return read(folder, self.file, schema)


@dataclass
class Parts:
    """The parts of a batch for the table in `folder`, which has the columns of `schema`. New files' names begin with `prefix`."""

    folder: str
    schema: pa.Schema
    statistics: tuple[str, ...]
    partition_by: tuple[str, ...]
    prefix: str
    parts: list[Part]
    _again: dict[tuple[int, ...], tuple[bytes, list[StagedFile]]] = field(default_factory=dict)
    _synced: set[str] = field(default_factory=set)

    def outcomes(self, held: Mapping[int, np.ndarray] | None = None) -> dict[Partition, tuple[np.ndarray, np.ndarray]]:
        """The offset and the outcome of each record, by partition. Kept rows that are `held` (as for `files`) are PRESENT.

        All partitions at once: a topic may have hundreds of them, each in parts of its own.
        """
        outcomes = [part.outcome for part in self.parts]
        for number, there in (held or {}).items():
            outcomes[number] = outcomes[number].copy()
            outcomes[number][: len(there)][there & self.parts[number].kept] = PRESENT
        lanes = np.concatenate([np.empty(0, np.int64), *(part.lanes for part in self.parts)])
        order = np.argsort(lanes, kind="stable")
        offsets = np.concatenate([np.empty(0, np.int64), *(part.offsets for part in self.parts)])[order]
        outcome, lanes = np.concatenate([np.empty(0, np.int8), *outcomes])[order], lanes[order]
        starts = np.flatnonzero(np.diff(lanes, prepend=-1)).tolist()
        return {of_lane(int(lanes[at])): (offsets[at:end], outcome[at:end]) for at, end in pairwise([*starts, len(order)])}

    def mark(self, positions: Mapping[Partition, np.ndarray], outcome: int) -> None:
        """Set the outcome of the records at these offsets, by partition."""
        for part in self.parts:
            for of, offsets in positions.items():
                part.outcome[(part.lanes == lane(of)) & np.isin(part.offsets, offsets)] = outcome

    def files(self, held: Mapping[int, np.ndarray] | None = None) -> list[StagedFile]:
        """The files of the rows that are kept, on the disk. `held` has by number of part the rows that the table holds already.

        A part that loses rows is written again; a part that loses all has no file. Rows in memory are written into one file for each
        partition. The files of the call before are used again if they have the same rows.
        """
        keeps = [part.kept & ~held[at] if held is not None and at in held else part.kept for at, part in enumerate(self.parts)]
        found: list[StagedFile] = []
        memory = [at for at, part in enumerate(self.parts) if part.data is not None and keeps[at].any()]
        for at, (part, keep) in enumerate(zip(self.parts, keeps, strict=True)):
            if part.file is not None and keep.all() and part.rows:
                found.append(part.file)
            elif part.file is not None and keep.any():
                found += self._written((at,), keeps)
        if memory:
            found += self._written(tuple(memory), keeps)
        self._on_disk(found)
        return found

    def _written(self, numbers: tuple[int, ...], keeps: Sequence[np.ndarray]) -> list[StagedFile]:
        which = b"".join(np.packbits(keeps[at]).tobytes() for at in numbers)
        before = self._again.get(numbers)
        if before is not None:
            if before[0] == which:
                return before[1]
            self._unlink(before[1])
        rows = pa.concat_tables([self.parts[at].columns(self.folder, self.schema).filter(pa.array(keeps[at])) for at in numbers])
        file = self.parts[numbers[0]].file
        if file is not None:
            written = [write_partition(self.folder, rows, self.statistics, file.partition_values, self.prefix)]
        else:
            written = write_files(self.folder, rows, self.statistics, self.partition_by, self.prefix)
        self._again[numbers] = which, written
        return written

    def _on_disk(self, files: Sequence[StagedFile]) -> None:
        refuse_changed(self.folder, files)
        if new := [each for each in files if each.path not in self._synced]:
            sync(self.folder, [each.path for each in new])
        self._synced.update(each.path for each in new)

    def remove(self, kept: Sequence[StagedFile] = ()) -> None:
        """Delete the staged files that are not `kept`: those of a failed batch, and those that were written again."""
        again = [file for _, files in self._again.values() for file in files]
        paths = {each.path for each in kept}
        self._unlink([file for file in (*(part.file for part in self.parts if part.file is not None), *again) if file.path not in paths])

    def _unlink(self, files: Sequence[StagedFile]) -> None:
        for file in files:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, file.path))


def remove_all(folder: str, prefix: str) -> None:
    """Delete the files of a failed batch, also those that its failed tasks have left. VACUUM removes what a task still writes."""
    for path in Path(folder).rglob(f"{prefix}*.parquet"):
        path.unlink(missing_ok=True)


def _table(data: bytes) -> pa.Table:
    found: Any = pa.ipc.open_stream(data).read_all()
    return found
