"""Which rows of a table have their key in another one: a semi join on Arrow, for keys of any number of columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROW = "__row"


def held(ids: pa.Table, table: pa.Table) -> np.ndarray:
    """Which rows of `ids` (bool, shape (rows,)) occur in `table`, by all columns of `ids`. NULL equals nothing."""
    names = ids.column_names
    if len(names) == 1:
        found = pc.is_in(ids[names[0]], value_set=table[names[0]], skip_nulls=True)
        return np.asarray(found.to_numpy(zero_copy_only=False))
    numbered = ids.append_column(ROW, pa.array(np.arange(ids.num_rows)))
    matched = numbered.join(table.select(names).group_by(names).aggregate([]), names, join_type="left semi")
    hits = np.zeros(ids.num_rows, bool)
    hits[matched[ROW].to_numpy()] = True
    return hits
