"""Sums of rows by the batch and partition that wrote them, as pure functions on Arrow and numpy (I4). Workers get this module by value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ingest.decode.row_hash import Hashes, hashed, row_hashes
from ingest.delta.posting import HALF_BITS

LOW = (1 << HALF_BITS) - 1
KEY = ("epoch", "batch", "source", "partition")
# `high` and `low` are sums of the halves of 2^32 offsets, which do not overflow; `hash` has the bits of a sum modulo 2^64.
SUMS = pa.schema(
    [*((name, pa.int64()) for name in KEY), ("rows", pa.int64()), ("high", pa.int64()), ("low", pa.int64()), ("hash", pa.int64())]
)
# Where a row of another writer has NULL.
MISSING = -1


def position_hashes(ids: Hashes | None, sources: np.ndarray | int, partitions: np.ndarray, offsets: np.ndarray) -> Hashes:
    """The hash of each row that is added up. `ids` are the hashes of the event ids (`row_hashes`), None if there are none."""
    columns = [pa.array(np.broadcast_to(np.asarray(each, np.int64), offsets.shape)) for each in (sources, partitions, offsets)]
    if ids is None:
        return row_hashes(columns)
    for column in columns:
        ids = hashed(ids, column)
    return ids


def summed(keys: np.ndarray, offsets: np.ndarray, hashes: Hashes) -> pa.RecordBatch:
    """The sums of rows (SUMS), perhaps several for a key. `keys` are the values of KEY, int64 of shape (4, rows)."""
    if not offsets.size:
        return pa.RecordBatch.from_pylist([], SUMS)
    starts = _runs(keys)
    if len(starts) > len(offsets) // 8:  # these rows were not written by batches of ours
        order = np.lexsort(keys[::-1])
        keys, offsets, hashes = keys[:, order], offsets[order], hashes[order]
        starts = _runs(keys)
    high, low = (np.add.reduceat(part, starts) for part in (offsets >> HALF_BITS, offsets & LOW))
    arrays = [*keys[:, starts], np.diff([*starts.tolist(), len(offsets)]), high, low, np.add.reduceat(hashes, starts).view(np.int64)]
    return pa.RecordBatch.from_arrays([pa.array(each) for each in arrays], schema=SUMS)


def _runs(keys: np.ndarray) -> np.ndarray:
    """Where runs of equal keys start."""
    return np.flatnonzero(np.concatenate(([True], (keys[:, 1:] != keys[:, :-1]).any(axis=0))))


def whole(column: pa.Array) -> np.ndarray:
    """An integer column as int64, with MISSING for NULL."""
    found: np.ndarray = column.cast(pa.int64()).fill_null(MISSING).to_numpy(zero_copy_only=False)
    return found


def sums_of(batches: Iterable[pa.RecordBatch], kept: list[Hashes] | None = None) -> Iterator[pa.RecordBatch]:
    """The sums of rows whose columns are KEY, the offset, and then those of the event id. `kept` gets the hashes of the event ids."""
    for batch in batches:
        keys, offsets = np.stack([whole(column) for column in batch.columns[:4]]), whole(batch.column(4))
        ids = row_hashes(batch.columns[5:]) if batch.num_columns > 5 else None
        if kept is not None and ids is not None:
            kept.append(ids)
        yield summed(keys, offsets, position_hashes(ids, keys[2], keys[3], offsets))
