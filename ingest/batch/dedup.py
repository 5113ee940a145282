"""Later copies of an event id inside a batch, as pure functions on Arrow and numpy (I3). Workers get this module by value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.payload import PAYLOAD

POSITION = ("_source", "_partition", "_offset")
ROW, DIFFERS = "__row", "__differs"
TIME = "_kafka_timestamp"


def twice(hashes: np.ndarray) -> np.ndarray:
    """The rows whose hash occurs more than once. Only their event ids need to be compared."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    again = np.zeros(len(hashes), bool)
    same = ordered[1:] == ordered[:-1]
    again[1:] |= same
    again[:-1] |= same
    return np.sort(order[again])


def later_copies(candidates: pa.Table) -> pa.Table:
    """The candidates that are later copies of an event id, with `__differs`: where the first copy is if its payload differs, else NULL.

    `candidates` has the event id (any columns), the position, `__payload` (a hash of the event's columns), and perhaps `__row` and the
    record's time. The copy with the least position is the first.
    """
    ids = [name for name in candidates.column_names if name not in (*POSITION, TIME, PAYLOAD, ROW)]
    ordered = candidates.sort_by([(name, "ascending") for name in (*ids, *POSITION)]).combine_chunks()
    rows = np.arange(len(ordered))
    is_first = np.ones(len(ordered), bool)
    if len(ordered) > 1:
        is_first[1:] = ~np.logical_and.reduce([pc.equal(ordered[name][1:], ordered[name][:-1]).to_numpy() for name in ids])
    first = ordered.take(pa.array(np.maximum.accumulate(np.where(is_first, rows, 0))))
    texts = differs_from(*(first[name] for name in POSITION))
    found = ordered.append_column(DIFFERS, pc.if_else(pc.equal(ordered[PAYLOAD], first[PAYLOAD]), pa.scalar(None, pa.string()), texts))
    return found.filter(pa.array(~is_first))


def differs_from(sources: pa.ChunkedArray, partitions: pa.ChunkedArray, offsets: pa.ChunkedArray) -> pa.ChunkedArray:
    """The detail of a conflict with the records at these positions."""
    numbers, partitions, offsets = (each.cast(pa.string()) for each in (sources, partitions, offsets))
    of = pc.if_else(pc.equal(sources, 0), "", pc.binary_join_element_wise(numbers, "/", ""))
    return pc.binary_join_element_wise("differs from partition ", of, partitions, " offset ", offsets, "")
