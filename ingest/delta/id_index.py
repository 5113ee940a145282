"""Which live files of a table hold an event id, answered from sorted hashes beside the checkpoints: a cache of files that were read.

Only files that statistics do not exclude are asked. One that most ids of a batch may be in, or that is read a second time, gets a segment.
From then on the segment answers for it wherever it is live in the snapshot that was looked at. A file without a segment is read. So nothing
has to be invalidated, and the cache may be deleted, or be older than the table (docs/decisions/id-index.md).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from ingest.delta.id_hash import id_hashes
from ingest.delta.id_segment import ROW_BYTES, SUFFIX, Damaged, Hashes, InTable, Of, Segment, merged, opened, stamp, write
from ingest.delta.index_state import IndexState, index_place
from ingest.delta.live_table import DataFile, LiveTable
from ingest.delta.partition import InPartition, read_by_group
from ingest.runtime.canonical_json import read_json
from ingest.runtime.files import local_path
from ingest.runtime.places import Places

# The upkeep of a run merges segments into fewer levels. A batch does so itself only if nobody else has for so long.
LEVELS, SEGMENTS_MAX = 16, 32
# A file that a killed process was writing is older.
UNFINISHED_S = 3600.0
SAY_EVERY_S, SAY_ROWS, AGAIN_S = 10.0, 1_000_000, 60.0


class Readable(InTable, InPartition, Protocol):
    """A data file, live or staged."""


class IdIndex:
    """The segments in a local folder, at most `bytes_max` together. An object serves one thread; any number may share the folder."""

    def __init__(self, folder: Path, bytes_max: int, say: Callable[[str], None] = lambda _: None) -> None:
        self._folder, self._say, self._said_at, self._unsaid = folder, say, time.monotonic(), 0
        self._known: dict[str, Segment] = {}
        self._secret = os.urandom(32).hex()
        self._read: set[str] = set()  # files that were read and have no segment
        self._state = IndexState(bytes_max)
        self._again_at = 0.0

    @staticmethod
    def of(places: Places, say: Callable[[str], None] = lambda _: None) -> IdIndex | None:
        """The index of a table; None if it may have none. `say` gets notes for the user. Raises as `index_place`."""
        place = index_place(places)
        return IdIndex(*place, lambda line: say(f"{places.name}: {line}")) if place is not None else None

    def covered(self, target: LiveTable, ids: pa.Schema, files: Sequence[DataFile]) -> list[DataFile]:
        """Those of these files that have a segment."""
        segments = self._segments(target, ids)[1]
        return [file for file in files if any(segment.number(file) is not None for segment in segments)]

    def held(self, target: LiveTable, ids: pa.Table, files: Sequence[DataFile]) -> dict[str, np.ndarray]:
        """The rows of `ids` (their numbers) that each of these live files holds, by path, for those that have a segment."""
        of, segments = self._segments(target, ids.schema)
        found: dict[str, np.ndarray] = {}
        if not segments:
            return found
        high, low = id_hashes(ids, bytes.fromhex(of.secret))
        order = np.argsort(high)
        high, low = high[order], low[order]
        for segment in segments:
            numbers = {number: file.path for file in files if file.path not in found and (number := segment.number(file)) is not None}
            if not numbers:
                continue
            asked = np.zeros(len(segment.files), bool)
            asked[list(numbers)] = True
            rows, of_files = _equal(segment.columns, high, low, asked)
            for number, path in numbers.items():
                found[path] = order[rows[of_files == number]]
        return found

    def cover(self, target: LiveTable, ids: pa.Schema, file: Readable, folder: str, *, worthwhile: bool = True) -> bool:
        """Read the ids of a file and write its segment; False if it gets none now. Raises FileNotFoundError if the file has vanished.

        Not `worthwhile` is a file that only few ids of a batch may be in. It gets a segment when it is read again.
        """
        if time.monotonic() < self._again_at:
            return False
        if not worthwhile and file.path not in self._read:
            self._read = {file.path, *(self._read & target.live.keys())}
            return False
        of, segments = self._segments(target, ids)
        if sum(each.size for each in self._known.values()) + ROW_BYTES * (file.rows or 0) > self._state.bytes_max:
            self._state.no_room += 1
            return False
        secret, rows, groups = bytes.fromhex(of.secret), 0, []
        for group in read_by_group(folder, file, ids):
            high, low = id_hashes(group, secret)
            order = np.argsort(high)
            own: Hashes = high[order], low[order], np.broadcast_to(np.uint32(0), len(order))
            groups.append((own, np.zeros(1, np.uint32)))
            rows += len(order)
        if file.rows not in (None, rows):
            return False
        try:
            write(self._folder, of, [(file.path, file.size, rows)], groups)
            if len(segments) >= SEGMENTS_MAX:
                self._merge_smallest(target, segments)
        except OSError:  # of the cache: the disk may be full
            self._again_at = time.monotonic() + AGAIN_S
            return False
        self._read.discard(file.path)
        now, self._unsaid = time.monotonic(), self._unsaid + rows
        if now - self._said_at > SAY_EVERY_S:
            if self._unsaid >= SAY_ROWS:  # fewer are those of a run's own batches
                self._say(f"event ids are being indexed: {sum(segment.rows for segment in segments) + rows:,} rows so far")
            self._said_at, self._unsaid = now, 0
        return True

    def follow(self, target: LiveTable, schema: pa.Schema, group: Sequence[DataFile], file: Readable) -> None:
        """Before a commit names a file with the rows of these: it gets a segment if all of them have one. `schema` is the table's."""
        for of in {segment.of for segment in self._scan() if segment.number(group[0]) is not None}:
            names = [name for name, _ in read_json(of.columns)]
            ids = pa.schema([schema.field(name) for name in names if name in schema.names])
            if len(self.covered(target, ids, group)) == len(group):
                self.cover(target, ids, file, str(local_path(target.path)))

    def count(self, answered: int, read: int) -> None:
        """Count probes of files, for `status`."""
        state = self._state
        state.answered, state.read, state.levels = state.answered + answered, state.read + read, len(self._known)
        state.rows, state.bytes = sum(each.rows for each in self._known.values()), sum(each.size for each in self._known.values())
        with suppress(OSError):
            state.write(self._folder)

    def tidy(self, target: LiveTable, *, thoroughly: bool = False) -> None:
        """Remove segments whose files are all gone, and merge the smallest if there are too many.

        Of files that are gone, a segment keeps its hashes as long as they are less than half of it, unless `thoroughly`. Raises OSError.
        """
        groups: dict[Of, list[Segment]] = defaultdict(list)
        for segment in self._scan():
            if segment.of.table == target.snapshot.table_id:
                groups[segment.of].append(segment)
            else:
                segment.path.unlink(missing_ok=True)
        # Of two processes that started a cache at once, one has hashed in vain.
        best = {of.columns: of for of in sorted(groups, key=lambda of: sum(each.rows for each in groups[of]))}
        for of, segments in groups.items():
            kept = []
            for segment in segments:
                live = sum(file[2] for file in segment.files if file[0] in target.live and segment.number(target.live[file[0]]) is not None)
                if not live or of != best[of.columns]:
                    segment.path.unlink(missing_ok=True)
                elif live < segment.rows and (thoroughly or live * 2 < segment.rows):
                    self._merge(target, [segment])
                else:
                    kept.append(segment)
            self._merge_smallest(target, kept)
        for path in self._folder.glob(f".*{SUFFIX}"):
            if thoroughly or time.time() - path.stat().st_mtime > UNFINISHED_S:
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete all of it. Raises OSError."""
        if self._folder.exists():
            shutil.rmtree(self._folder)

    def _merge_smallest(self, target: LiveTable, segments: Sequence[Segment]) -> None:
        """Merge until each level has more than twice the hashes of all smaller ones: levels are few, and a hash is seldom written again."""
        ordered = sorted(segments, key=lambda segment: segment.rows)
        sums = np.cumsum([segment.rows for segment in ordered])
        number = max([at + 1 for at in range(1, len(ordered)) if ordered[at].rows <= 2 * sums[at - 1]], default=0)
        if (number := max(number, len(ordered) - LEVELS + 1)) > 1:
            self._merge(target, ordered[:number])

    def _merge(self, target: LiveTable, segments: Sequence[Segment]) -> None:
        with suppress(Damaged):  # which of them is not told: all are made again
            merged(self._folder, segments, target.live)
        for segment in segments:
            segment.path.unlink(missing_ok=True)

    def _segments(self, target: LiveTable, ids: pa.Schema) -> tuple[Of, list[Segment]]:
        """The segments of these columns of the table, of one secret, and what a new one has to be of."""
        table, columns = target.snapshot.table_id, json.dumps([(field.name, str(field.type)) for field in ids])
        rows: dict[Of, int] = defaultdict(int)
        for segment in (known := self._scan()):
            if (segment.of.table, segment.of.columns) == (table, columns):
                rows[segment.of] += segment.rows
        of = max(rows, key=rows.__getitem__, default=Of(table, columns, self._secret))
        return of, [segment for segment in known if segment.of == of]

    def _scan(self) -> list[Segment]:
        """The segments that are in the folder now, each verified since its file was last touched. Damaged ones are removed."""
        for _ in range(LEVELS):  # somebody may merge meanwhile; what he removes is in a segment that he has written before
            found, vanished = {}, False
            for path in self._folder.glob(f"*{SUFFIX}"):
                try:
                    segment = self._known.get(path.name)
                    if segment is None or segment.stamp != stamp(path):
                        segment = opened(path)
                        segment.verify()
                    found[path.name] = segment
                except FileNotFoundError:
                    vanished = True
                except Damaged:
                    with suppress(OSError):
                        path.unlink()
                except OSError:
                    continue  # not ours to read: its files are read instead
            self._known = found
            if not vanished:
                break
        return list(self._known.values())


def _equal(columns: Hashes, high: np.ndarray, low: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of these hashes (by number; `high` ascends) are in a segment with all 128 bits, and in which of the `asked` files."""
    highs, lows, numbers = columns
    left = np.arange(len(high))
    at = np.searchsorted(highs, high)
    rows, files = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
    while left.size:  # several rows may have the same upper half: an id that was in files before, or chance
        there = at < len(highs)
        left, at = left[there], at[there]
        same = highs[at] == high[left]
        left, at = left[same], at[same]
        hit = (lows[at] == low[left]) & asked[numbers[at]]
        rows.append(left[hit])
        files.append(numbers[at[hit]])
        at += 1
    return np.concatenate(rows), np.concatenate(files)
