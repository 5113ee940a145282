"""The probe: which event ids of a batch the target holds, at the very snapshot that the commit will name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.batch.dedup import bounds
from ingest.delta.held_rows import held
from ingest.delta.live_table import DataFile


def probe(ids: pa.Table, files: Sequence[DataFile], folder: str) -> np.ndarray:
    """Which rows of `ids` (bool, shape (rows,)) have their event id in one of these files of the table in `folder`.

    A file is opened unless its statistics exclude the ids. Raises FileNotFoundError for a file that has vanished.
    """
    ends = bounds(ids, ids.column_names)
    return held(ids, _read(ids.schema, [each for each in files if _overlaps(each, ends)], folder, ends))


def _overlaps(file: DataFile, ends: Mapping[str, tuple[object, object]]) -> bool:
    for name, (least, greatest) in ends.items():
        low, high = file.least.get(name), file.greatest.get(name)
        if (low is not None and greatest < low) or (high is not None and least > high):
            return False
    return True


def _read(schema: pa.Schema, files: Sequence[DataFile], folder: str, ends: Mapping[str, tuple[object, object]]) -> Iterator[pa.Table]:
    inside = [each for name, (least, greatest) in ends.items() for each in ((name, ">=", least), (name, "<=", greatest))]
    for file in files:
        found = pq.read_table(os.path.join(folder, file.path), columns=schema.names, filters=inside or None, partitioning=None)
        yield found.cast(schema)
