"""The staged rows of a batch on the driver: files that no commit names yet, or rows in memory, and records that are no event."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.batch.dedup import PAYLOAD, POSITION, ROW, later_copies, twice
from ingest.batch.probe import probe
from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.decode.row_hash import row_hashes
from ingest.delta.data_file import StagedFile, sync, write_file
from ingest.delta.live_table import LiveTable

Conflicts = dict[tuple[int, int], str]
"""Copies that differ from the first one: by partition and offset, what differs."""
_ARRAYS = (("hashes", np.uint64), ("partitions", np.int32), ("offsets", np.int64))


@dataclass
class Part:
    """Some of the rows: those of a file, or in memory. `hashes`, `partitions` and `offsets` have a value for each row.

    `lost` marks rows that are later copies of an event id.
    """

    hashes: np.ndarray
    partitions: np.ndarray
    offsets: np.ndarray
    file: StagedFile | None = None
    data: pa.Table | None = None
    lost: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.lost = np.zeros(len(self.hashes), bool)

    def columns(self, folder: str, names: Sequence[str]) -> pa.Table:
        """These columns of all rows."""
        if self.data is not None:
            return self.data.select(list(names))
        assert self.file is not None, "a part is a file or in memory"
        return pq.read_table(os.path.join(folder, self.file.path), columns=list(names), partitioning=None).select(list(names))


@dataclass
class Staged:
    """The staged rows of a batch of the table in `folder`. `refused` has the records that are no event (None: there are none)."""

    contract: Contract
    folder: str
    schema: pa.Schema
    statistics: tuple[str, ...]
    parts: list[Part]
    refused: pa.Table | None
    _written: list[StagedFile] = field(default_factory=list)

    @staticmethod
    def of(contract: Contract, folder: str, schema: pa.Schema, statistics: tuple[str, ...], outputs: pa.Table) -> Staged:
        """The staged rows that workers describe (`staging.STAGED`). The rows of all small tasks become one part."""
        parts, small, refused = [], [], []
        for row in outputs.to_pylist():
            if row["refused"] is not None:
                refused.append(_table(row["refused"]))
                continue
            hashes, partitions, offsets = (np.frombuffer(row[name], kind) for name, kind in _ARRAYS)
            if row["data"] is not None:
                small.append(Part(hashes, partitions, offsets, data=_table(row["data"])))
            else:
                parts.append(Part(hashes, partitions, offsets, StagedFile(row["path"], row["size"], row["rows"], row["stats"])))
        if small:
            hashes, partitions, offsets = (np.concatenate([getattr(each, name) for each in small]) for name, _ in _ARRAYS)
            parts.append(Part(hashes, partitions, offsets, data=pa.concat_tables([each.data for each in small])))
        return Staged(contract, folder, schema, statistics, parts, pa.concat_tables(refused) if refused else None)

    def mark_copies(self) -> Conflicts:
        """Mark later copies of an event id as lost; the least position wins (I3). Returns the copies with another payload."""
        again = twice(np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in self.parts)]))
        if not again.size:
            return {}
        starts = np.cumsum([0, *(len(part.hashes) for part in self.parts)])
        later, differs = later_copies(pa.concat_tables(self._candidates(again, starts)))
        conflicts = {}
        for row, text in zip(later.tolist(), differs, strict=True):
            at = int(np.searchsorted(starts, row, side="right")) - 1
            part, inside = self.parts[at], row - int(starts[at])
            part.lost[inside] = True
            if text is not None:
                conflicts[int(part.partitions[inside]), int(part.offsets[inside])] = text
        return conflicts

    def _candidates(self, rows: np.ndarray, starts: np.ndarray) -> list[pa.Table]:
        names = [column.name for column in self.contract.columns]
        found = []
        for part, start, end in zip(self.parts, starts, starts[1:], strict=False):
            own = rows[(rows >= start) & (rows < end)]
            if own.size:
                there = part.columns(self.folder, [*dict.fromkeys((*names, *POSITION))]).take(pa.array(own - start))
                payload = pa.array(row_hashes([there[name].combine_chunks() for name in names]))
                there = there.select([*event_id_columns(self.contract), *POSITION])
                found.append(there.append_column(PAYLOAD, payload).append_column(ROW, pa.array(own)))
        return found

    def new_files(self, target: LiveTable) -> list[StagedFile]:
        """The files of the rows that are no later copies and that the target does not hold, on the disk.

        A part that loses rows is written again; a part that loses all has no file.
        """
        ids, live = event_id_columns(self.contract), list(target.live.values())
        found = []
        for part in self.parts:
            keep = ~part.lost
            if live and keep.any():
                keep[keep] = ~probe(part.columns(self.folder, ids).filter(pa.array(keep)), live, self.folder)
            if not keep.any():
                continue
            if part.file is not None and keep.all():
                found.append(part.file)
            else:
                rows = part.columns(self.folder, self.schema.names).filter(pa.array(keep))
                self._written.append(write_file(self.folder, rows.cast(self.schema), self.statistics))
                found.append(self._written[-1])
        for each in found:  # a size too small would make a reader find nothing
            if (size := os.path.getsize(os.path.join(self.folder, each.path))) != each.size:
                raise OSError(f"{each.path} has {size} bytes, and {each.size} were staged")
        sync(self.folder, [each.path for each in found])
        return found

    def remove(self, kept: Sequence[StagedFile] = ()) -> None:
        """Delete the staged files that are not `kept`: those of a failed batch, and those that were written again."""
        for file in (*(part.file for part in self.parts if part.file is not None), *self._written):
            if file not in kept:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.folder, file.path))

    def by_partition(self, *, lost: bool) -> Counter[int]:
        """The number of rows by partition; with `lost` only later copies."""
        found: Counter[int] = Counter()
        for part in self.parts:
            partitions, numbers = np.unique(part.partitions[part.lost] if lost else part.partitions, return_counts=True)
            found.update(dict(zip(partitions.tolist(), numbers.tolist(), strict=True)))
        return found


def _table(data: bytes) -> pa.Table:
    found: Any = pa.ipc.open_stream(data).read_all()
    return found
