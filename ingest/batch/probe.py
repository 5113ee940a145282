"""The probe: which event ids of a batch the target holds, at the very snapshot that the commit will name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.batch.staged_parts import Part
from ingest.delta.held_rows import held
from ingest.delta.live_table import DataFile, LiveTable
from ingest.delta.partition import read
from ingest.runtime.files import local_path

# A file that so many ids of a part may be in gets a segment when it is read. Ids that rise are in few files, and only in the newest.
MOST = 0.5


def near(part: Part, target: LiveTable, event_id: Sequence[str]) -> list[DataFile]:
    """The live files of the target that may hold an event id of this part, by the bounds of both."""
    live = list(target.live.values())
    if not live:
        return live
    if part.file is not None:
        mine = target.described(part.file.addition()["add"])
        bounds = {name: (mine.least[name], mine.greatest.get(name)) for name in event_id if name in mine.least}
    else:
        assert part.data is not None, "a part is a file or in memory"
        bounds = {name: ends for name in event_id if (ends := _ends(part.data[name])) is not None}
    return [file for file in live if _overlaps(bounds, file)]


def _ends(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """The least and the greatest value; None for types without an order, and without values."""
    if pa.types.is_binary(values.type) or values.null_count == len(values):
        return None
    found = pc.min_max(values)
    return found["min"].as_py(), found["max"].as_py()


def probe(ids: pa.Table, files: Sequence[DataFile], target: LiveTable) -> dict[str, np.ndarray]:
    """Which rows of `ids` (their numbers) each of these live files of the target holds, by path.

    A file is excluded by its statistics, answered for by its segment, or read. Raises FileNotFoundError if it has vanished.
    """
    index, folder = target.ids, str(local_path(target.path))
    covered = index.covered(target, ids.schema, files) if index is not None else []
    found, read_now, known = {}, 0, {file.path for file in covered}
    for file in (file for file in files if file.path not in known):
        may = _may_be(ids, [file])
        if not may.any():
            found[file.path] = np.empty(0, np.int64)
            continue
        read_now += 1
        if index is not None and index.cover(target, ids.schema, file, folder, worthwhile=may.mean() > MOST):
            covered.append(file)
        else:
            found[file.path] = np.flatnonzero(may)[held(ids.filter(pa.array(may)), read(folder, file, ids.schema))]
    if index is not None and covered:
        rows = np.flatnonzero(_may_be(ids, covered))
        found |= {path: rows[at] for path, at in index.held(target, ids.take(pa.array(rows)), covered).items()}
    if index is not None and (covered or read_now):
        index.count(len(covered), read_now)
    for file in covered:
        if file.path not in found:  # somebody has removed its segment just now
            found[file.path] = np.flatnonzero(held(ids, read(folder, file, ids.schema)))
    return found


def holding(ids: pa.Table, files: Sequence[DataFile], target: LiveTable) -> Sequence[DataFile]:
    """These live files of the target without those that hold none of the ids for sure."""
    if target.ids is None or not files:
        return files
    found = target.ids.held(target, ids, files)
    return [file for file in files if file.path not in found or found[file.path].size]


def _may_be(ids: pa.Table, files: Sequence[DataFile]) -> np.ndarray:
    """Which rows of `ids` (bool, shape (rows,)) the statistics of these files together do not exclude."""
    may = np.ones(ids.num_rows, bool)
    for name in ids.column_names:
        least: list[Any] = [file.least.get(name) for file in files]
        greatest: list[Any] = [file.greatest.get(name) for file in files]
        for ends, end, compare in ((least, min, pc.greater_equal), (greatest, max, pc.less_equal)):
            if ends and None not in ends:
                may &= pc.fill_null(compare(ids[name], pa.scalar(end(ends), ids[name].type)), False).to_numpy(zero_copy_only=False)
    return may


def _overlaps(bounds: Mapping[str, tuple[Any, Any]], file: DataFile) -> bool:
    """Whether the bounds overlap those of the file in every column that has them in both. A greatest value of None: there is no bound."""
    for name, (least, greatest) in bounds.items():
        low, high = file.least.get(name), file.greatest.get(name)
        if (high is not None and least > high) or (low is not None and greatest is not None and greatest < low):
            return False
    return True
