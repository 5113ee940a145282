"""The probe: which event ids of a batch the target holds, at the very snapshot that the commit will name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ingest.batch.dedup import bounds
from ingest.delta.data_file import read_file
from ingest.delta.held_rows import held
from ingest.delta.live_table import DataFile


def probe(ids: pa.Table, files: Sequence[DataFile], folder: str) -> np.ndarray:
    """Which rows of `ids` (bool, shape (rows,)) have their event id in one of these files of the table in `folder`.

    A file is opened unless its statistics exclude the ids. Raises FileNotFoundError for a file that has vanished.
    """
    ends = bounds(ids, ids.column_names)
    hits = np.zeros(ids.num_rows, bool)
    for file in files:
        if _overlaps(file, ends):
            hits |= held(ids, read_file(folder, file.path, ids.schema))  # one file in memory at a time
    return hits


def _overlaps(file: DataFile, ends: Mapping[str, tuple[object, object]]) -> bool:
    for name, (least, greatest) in ends.items():
        low, high = file.least.get(name), file.greatest.get(name)
        if (low is not None and greatest < low) or (high is not None and least > high):
            return False
    return True
