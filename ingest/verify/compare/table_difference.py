"""Compare two Delta tables by key: rows only here, only there, differing; and keys that several rows have. It only reads.

Both tables are read once as a stream, and each row becomes two 64-bit hashes (key, other columns), so ten million rows need about 1.5 GB.
A second pass reads the rows of the first differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.decode.row_hash import Hashes, row_hashes
from ingest.delta.answer import plain
from ingest.delta.delta_sql import At, Engine, arrow
from ingest.verify.compare.compared_columns import Columns

SHOWN = 5
# How many differing rows are read again to see which of their columns differ.
EXAMINED = 10_000
# Two sides: here (the first table) and there.
Pair = tuple[int, int]


@dataclass(frozen=True)
class Comparison:
    """The counts of rows; `examples` has the first of each kind as values for JSON.

    `differing` keys are in both tables with other values, or another number of rows. `repeated` counts keys with several rows in a table.
    `differs` counts the differing rows by column, among the first `examined` ones whose key is unique in both tables.
    """

    rows: Pair
    only: Pair
    differing: int
    repeated: Pair
    examined: int
    differs: Mapping[str, int]
    examples: Mapping[str, list[dict[str, Any]]]

    @property
    def same(self) -> bool:
        """Whether both tables have the same rows."""
        return not (any(self.only) or self.differing)


@dataclass(frozen=True)
class _Keys:
    """The distinct keys of a table, ascending by hash; `counts` rows of each, and the sum of the hashes of their other columns."""

    keys: Hashes
    counts: NDArray[np.int64]
    sums: Hashes


def compare(engine: Engine, here: At, there: At, columns: Columns) -> Comparison:
    """Compare the columns. Without a key whole rows are compared, so none differs. Raises Unreadable."""
    one, other = (_keys(engine, at, columns) for at in (here, there))
    in_other, in_one = _found(one.keys, other.keys), _found(other.keys, one.keys)
    only_here, only_there = in_other < 0, in_one < 0
    both = np.flatnonzero(~only_here)
    twin = in_other[both]
    counts, counts_there = one.counts[both], other.counts[twin]
    unlike = (counts != counts_there) | (one.sums[both] != other.sums[twin])
    whole = not columns.values  # whole rows are compared: a row too many is only in one table
    more, less = (counts - counts_there).clip(0) * whole, (counts_there - counts).clip(0) * whole
    repeated = one.counts > 1, other.counts > 1
    single = unlike & (counts == 1) & (counts_there == 1)
    chosen = {
        "only_here": np.concatenate((one.keys[only_here], one.keys[both[more > 0]]))[:SHOWN],
        "only_there": np.concatenate((other.keys[only_there], one.keys[both[less > 0]]))[:SHOWN],
        "differing": one.keys[both[single]][:EXAMINED],
        "repeated_here": one.keys[repeated[0]][:SHOWN],
        "repeated_there": other.keys[repeated[1]][:SHOWN],
    }
    wanted = np.unique(np.concatenate(list(chosen.values())))
    seen = [_rows(engine, at, columns, wanted) for at in (here, there)]
    differing, differs = _differences(seen, chosen.pop("differing"), columns)
    examples = {kind: list(_shown(seen[kind.endswith("there")], keys, columns)) for kind, keys in chosen.items()}
    return Comparison(
        (int(one.counts.sum()), int(other.counts.sum())),
        (int(one.counts[only_here].sum() + more.sum()), int(other.counts[only_there].sum() + less.sum())),
        0 if whole else int(unlike.sum()),
        (0, 0) if whole else (int(repeated[0].sum()), int(repeated[1].sum())),
        min(int(single.sum()), EXAMINED),
        differs,
        {**examples, "differing": differing},
    )


def _keys(engine: Engine, at: At, columns: Columns) -> _Keys:
    parts = [(hashes, row_hashes(columns.values_of(batch)) if columns.values else hashes) for batch, hashes in _stream(engine, at, columns)]
    keys, values = (np.concatenate([part[n] for part in parts] or [np.empty(0, np.uint64)]) for n in (0, 1))
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if keys.size else np.empty(0, np.int64)
    counts = np.diff(np.append(starts, keys.size))
    # A sum does not depend on the order of the rows that share a key.
    return _Keys(keys[starts], counts, np.add.reduceat(values, starts) if keys.size else values)


def _stream(engine: Engine, at: At, columns: Columns) -> Iterator[tuple[pa.RecordBatch, Hashes]]:
    for batch in arrow(engine, f"SELECT {columns.sql} FROM {{rows}}", rows=at):
        alike = columns.alike(batch)
        yield alike, row_hashes(columns.key_of(alike))


def _rows(engine: Engine, at: At, columns: Columns, wanted: Hashes) -> dict[int, pa.RecordBatch]:
    """The rows with these keys, by the key's hash."""
    found: dict[int, list[pa.RecordBatch]] = {}
    for batch, hashes in _stream(engine, at, columns) if wanted.size else ():
        for number in np.flatnonzero(np.isin(hashes, wanted)).tolist():
            found.setdefault(int(hashes[number]), []).append(batch.slice(number, 1))
    return {key: pa.concat_batches(rows) for key, rows in found.items()}


def _differences(
    seen: Sequence[Mapping[int, pa.RecordBatch]], keys: Hashes, columns: Columns
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    examples: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    for key in keys.tolist():
        one, other = seen[0][key], seen[1][key]
        changed = [name for name in columns.values if row_hashes([one[name]])[0] != row_hashes([other[name]])[0]]
        for name in changed:
            counts[name] = counts.get(name, 0) + 1
        if len(examples) < SHOWN:
            values = {name: {"here": plain(_value(one, name)), "there": plain(_value(other, name))} for name in changed}
            examples.append({"key": {name: plain(_value(one, name)) for name in columns.key}, "values": values})
    return examples, dict(sorted(counts.items(), key=lambda pair: -pair[1]))


def _shown(seen: Mapping[int, pa.RecordBatch], keys: Hashes, columns: Columns) -> Iterator[dict[str, Any]]:
    for key in keys.tolist():
        yield {"rows": seen[key].num_rows, "key": {name: plain(_value(seen[key], name)) for name in columns.key}}


def _value(rows: pa.RecordBatch, name: str) -> Any:
    return rows[name].slice(0, 1).to_pylist(maps_as_pydicts="strict")[0]


def _found(wanted: Hashes, among: Hashes) -> NDArray[np.int64]:
    """The index of each hash in `among`, which is ascending; -1 if it is not there."""
    at = np.searchsorted(among, wanted)
    inside = np.minimum(at, max(among.size - 1, 0))
    return np.where(among[inside] == wanted, inside, -1) if among.size else np.full(wanted.size, -1)
