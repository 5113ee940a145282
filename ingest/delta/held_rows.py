"""Which rows of a table have their key in another one: a semi join on Arrow, for keys of any number of columns."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROW = "__row"


def held(ids: pa.Table, table: Iterable[pa.Table]) -> np.ndarray:
    """Which rows of `ids` (bool, shape (rows,)) occur in one of the parts of `table`, by all columns of `ids`. NULL equals nothing."""
    names = ids.column_names
    parts = [part.select(names) for part in table if part.num_rows]
    if not parts or not ids.num_rows:
        return np.zeros(ids.num_rows, bool)
    there = pa.concat_tables(parts)
    if len(names) == 1:
        return np.asarray(pc.is_in(ids[names[0]], value_set=there[names[0]].combine_chunks()).to_numpy(zero_copy_only=False))
    numbered = ids.append_column(ROW, pa.array(np.arange(ids.num_rows)))
    found = numbered.join(there.group_by(names).aggregate([]), names, join_type="left semi")
    hits = np.zeros(ids.num_rows, bool)
    hits[found[ROW].to_numpy()] = True
    return hits
