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


def _overlaps(bounds: Mapping[str, tuple[Any, Any]], file: DataFile) -> bool:
    """Whether the bounds overlap those of the file in every column that has them in both. A greatest value of None: there is no bound."""
    for name, (least, greatest) in bounds.items():
        low, high = file.least.get(name), file.greatest.get(name)
        if (high is not None and least > high) or (low is not None and greatest is not None and greatest < low):
            return False
    return True
