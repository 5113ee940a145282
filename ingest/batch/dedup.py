"""Later copies of an event id inside a batch, as pure functions on Arrow and numpy (I3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROW, PAYLOAD = "__row", "__payload"
POSITION = ("_partition", "_offset")


def twice(hashes: np.ndarray) -> np.ndarray:
    """The rows whose hash occurs more than once. Only their event ids need to be compared."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    again = np.zeros(len(hashes), bool)
    same = ordered[1:] == ordered[:-1]
    again[1:] |= same
    again[:-1] |= same
    return np.sort(order[again])


def later_copies(candidates: pa.Table) -> tuple[np.ndarray, list[str | None]]:
    """The rows that are later copies of an event id, and for each where the first copy is if its payload differs, else None.

    `candidates` has the event id (any columns), the position, `__payload` (a hash of the event's columns), and `__row`. The copy with the
    least position is the first.
    """
    ids = [name for name in candidates.column_names if name not in (*POSITION, PAYLOAD, ROW)]
    ordered = candidates.sort_by([(name, "ascending") for name in (*ids, *POSITION)]).combine_chunks()
    rows = np.arange(len(ordered))
    is_first = np.ones(len(ordered), bool)
    if len(ordered) > 1:
        is_first[1:] = ~np.logical_and.reduce([pc.equal(ordered[name][1:], ordered[name][:-1]).to_numpy() for name in ids])
    first = np.maximum.accumulate(np.where(is_first, rows, 0))
    differs = ~is_first & ~pc.equal(ordered[PAYLOAD], ordered[PAYLOAD].take(pa.array(first))).to_numpy()
    places = zip(*(ordered[name].take(pa.array(first[~is_first])).to_pylist() for name in POSITION), strict=True)
    texts = [f"differs from partition {p} offset {o}" if odd else None for (p, o), odd in zip(places, differs[~is_first], strict=True)]
    return ordered[ROW].to_numpy()[~is_first], texts


def bounds(ids: pa.Table, names: Sequence[str]) -> dict[str, tuple[object, object]]:
    """The least and greatest value of each column; none for types without an order."""
    found = {}
    for name in names:
        if not pa.types.is_binary(ids[name].type) and ids.num_rows:
            ends = pc.min_max(ids[name])
            found[name] = (ends["min"].as_py(), ends["max"].as_py())
    return found
