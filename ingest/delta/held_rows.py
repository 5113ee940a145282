"""Which rows of a table have their key in another one, and values taken from there: joins on Arrow, for keys of any number of columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROW, OTHER = "__row", "__other"


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


def updated(rows: pa.Table, where: np.ndarray, values: pa.Table, key: Sequence[str], names: Sequence[str]) -> pa.Table:
    """`rows` with the columns `names` of the row of `values` that has the same key, in the rows `where` that have such a row."""
    # Only the keys are joined: Arrow joins no nested columns.
    numbered = rows.select(key).append_column(ROW, pa.array(np.arange(rows.num_rows)))
    others = values.select(key).append_column(OTHER, pa.array(np.arange(values.num_rows)))
    matched = numbered.filter(pa.array(where)).join(others, list(key), join_type="inner")
    place = np.full(rows.num_rows, -1)
    place[matched[ROW].to_numpy()] = matched[OTHER].to_numpy()
    changed = pa.array(place >= 0)
    for name in names:
        given = values[name].cast(rows.schema.field(name).type).take(pa.array(place, mask=place < 0))
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), pc.if_else(changed, given, rows[name]))
    return rows
