"""A 64-bit hash of each row of Arrow columns, of every type that Delta has. Equal rows have equal hashes.

Two different rows have the same hash with a probability of 2^-64 per pair, unless somebody builds them for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
"""A hash of each row, shape (rows,)."""
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
HALF = np.uint64(32)
ALL = ~np.uint64(0)
# What NULL hashes like: a number that no value of ours is likely to be.
NULL = np.uint64(0xD6E8FEB86659FD93)
# Not 0: mixed with a value of zero it would stay 0, and "" would be like no value at all.
SEED = np.uint64(0xA0761D6478BD642F)
# What a STRUCT adds before its fields: one whose first field is NULL is not NULL.
STRUCT = np.uint64(0xE7037ED1A0B428DB)


def row_hashes(columns: Iterable[pa.Array]) -> Hashes:
    """The hash of each row. NULL equals only NULL, NaN equals NaN, -0.0 equals 0.0; a map's order does not count."""
    hashes: Hashes | None = None
    for column in columns:
        hashes = hashed(np.full(len(column), SEED) if hashes is None else hashes, column)
    return np.empty(0, np.uint64) if hashes is None else hashes


def hashed(hashes: Hashes, column: pa.Array) -> Hashes:
    """`hashes` mixed with the values of one more column."""
    found = _hashed_values(hashes, column)
    if column.null_count:
        found = np.where(column.is_valid().to_numpy(zero_copy_only=False), found, _mixed(hashes, np.full(hashes.size, NULL)))
    return found


def _hashed_values(hashes: Hashes, column: pa.Array) -> Hashes:
    kind, t = column.type, pa.types
    if t.is_dictionary(kind):
        return _hashed_values(hashes, column.dictionary_decode())
    if t.is_struct(kind):
        hashes = _mixed(hashes, np.full(hashes.size, STRUCT))
        for field in column.flatten():
            hashes = hashed(hashes, field)
        return hashes
    if t.is_map(kind):
        return _hashed_list(hashes, column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))), ordered=False)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return _hashed_list(hashes, column, ordered=True)
    if t.is_null(kind):
        return hashes
    if t.is_floating(kind):
        numbers = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        return _mixed(hashes, np.where(np.isnan(numbers), np.nan, numbers + 0.0).view(np.uint64))
    if t.is_decimal(kind):
        column = column.cast(pa.string())
    elif t.is_date32(kind) or t.is_boolean(kind):
        column = column.cast(pa.int32())
    if t.is_integer(column.type) or t.is_timestamp(column.type):
        whole = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return _mixed(hashes, whole.view(np.uint64))
    return _hashed_bytes(hashes, column.cast(pa.large_binary()))


def _hashed_list(hashes: Hashes, column: pa.Array, *, ordered: bool) -> Hashes:
    """Hash the values of all lists at once, then add them up per list, each multiplied by its place if the order counts."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = column.flatten()
    own = hashed(np.full(len(values), SEED), values)
    starts = np.cumsum(lengths) - lengths
    if ordered:
        own = _mixed(own, (np.arange(own.size) - np.repeat(starts, lengths)).astype(np.uint64))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(own, dtype=np.uint64)))
    return _mixed(_mixed(hashes, lengths.astype(np.uint64)), sums[starts + lengths] - sums[starts])


def _hashed_bytes(hashes: Hashes, column: pa.LargeBinaryArray) -> Hashes:
    """Hash a binary column, eight bytes of every row at a time."""
    ends = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, column.offset * 8)
    at, left = ends[:-1] - ends[0], np.diff(ends)
    values = column.buffers()[2]
    data = np.zeros(ends[-1] - ends[0] + 8, np.uint8)  # padded, so that a word can start at the last byte
    if values is not None:
        data[:-8] = np.frombuffer(values, np.uint8)[ends[0] : ends[-1]]
    words: Hashes = np.ndarray((data.size - 7,), "<u8", data, strides=(1,))
    hashes = _mixed(hashes, left.astype(np.uint64))
    whole = int(left.min()) // 8 if left.size else 0
    for _ in range(whole):
        hashes = _mixed(hashes, words[at])
        at += 8
    left -= 8 * whole
    if left.size and 0 < left[0] < 8 and (left == left[0]).all():  # ids of equal length, such as UUIDs, take a third of the time
        return _mixed(hashes, words[at] & (ALL >> np.uint64(64 - 8 * left[0])))
    rows = np.flatnonzero(left)
    while rows.size:
        short = left[rows]
        hashes[rows] = _mixed(hashes[rows], words[at[rows]] & (ALL >> (8 * np.maximum(0, 8 - short)).astype(np.uint64)))
        at += 8
        left -= 8
        rows = rows[short > 8]
    return hashes


def _mixed(hashes: Hashes, words: Hashes) -> Hashes:
    mixed = (hashes ^ words) * MULTIPLIER
    return mixed ^ (mixed >> HALF)
