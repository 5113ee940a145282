"""The payload of an event as one hash, which shows whether two copies of an event id are equal or in conflict (I3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ingest.decode.row_hash import Hashes, hashed, row_hashes

# The column with the hash, for code that compares copies.
PAYLOAD = "__payload"


def payload_hashes(columns: Iterable[tuple[str, pa.Array]], rows: int) -> Hashes:
    """A 64-bit hash of each row's columns, by name (uint64, shape (rows,)).

    Tables store the hash (`conflicts: table`), so it must stay the same. A column that is NULL, or a field of a STRUCT, adds nothing: a
    column or field that is added later changes no hash. The names are part of the hash, so a value that moved to another column changes it.
    """
    total = np.zeros(rows, np.uint64)
    for name, array in columns:
        for part, values in _parts(name, array):
            own = hashed(np.full(rows, row_hashes([pa.array([part])])[0]), values)
            total += own if not values.null_count else np.where(_valid(values), own, np.uint64(0))
    return total


def _parts(name: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if not pa.types.is_struct(array.type):
        yield name, array
        return
    # The STRUCT itself counts too: one without values is not NULL.
    yield name, pa.array(np.zeros(len(array), bool), mask=~_valid(array))
    for field, values in zip(array.type, array.flatten(), strict=True):
        yield from _parts(f"{name}.{field.name}", values)


def _valid(array: pa.Array) -> np.ndarray:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
