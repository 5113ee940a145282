"""The probe: which event ids of a batch the target holds, at the very snapshot that the commit will name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.delta.data_file import StagedFile
from ingest.delta.held_rows import held
from ingest.delta.live_table import DataFile, LiveTable
from ingest.delta.partition import read


def near(staged: StagedFile | None, target: LiveTable, event_id: Sequence[str]) -> list[DataFile]:
    """The live files of the target that may hold an event id of the staged file, by the bounds of both. None: all files."""
    live = list(target.live.values())
    if staged is None or not live:
        return live
    mine = target.described(staged.addition()["add"])
    least, greatest = ({name: bounds[name] for name in event_id if name in bounds} for bounds in (mine.least, mine.greatest))
    return [file for file in live if _overlaps(least, greatest, file)]


def probe(ids: pa.Table, file: DataFile, folder: str) -> np.ndarray:
    """Which rows of `ids` (bool, shape (rows,)) have their event id in this file of the table in `folder`.

    The file is opened unless its statistics exclude all of them. Raises FileNotFoundError if it has vanished.
    """
    may_be = np.ones(ids.num_rows, bool)
    for name in ids.column_names:
        for bounds, compare in ((file.least, pc.greater_equal), (file.greatest, pc.less_equal)):
            if (bound := bounds.get(name)) is not None:
                may_be &= pc.fill_null(compare(ids[name], pa.scalar(bound, ids[name].type)), False).to_numpy(zero_copy_only=False)
    hits = np.zeros(ids.num_rows, bool)
    if may_be.any():
        hits[may_be] = held(ids.filter(pa.array(may_be)), read(folder, file, ids.schema))
    return hits


def _overlaps(least: Mapping[str, Any], greatest: Mapping[str, Any], file: DataFile) -> bool:
    """Whether the bounds overlap in every column that has them in both files."""
    for name in least:
        low, high = file.least.get(name), file.greatest.get(name)
        if (high is not None and least[name] > high) or (low is not None and name in greatest and greatest[name] < low):
            return False
    return True
