"""Event ids that are not columns of the event but a Kafka record's key or header."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def record_ids(values: pa.Array) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The values (binary) as text; which are missing or empty; and which are not UTF-8 (bool, shape (rows,)). Both are NULL as text."""
    missing = np.asarray(pc.fill_null(pc.equal(pc.binary_length(values), 0), True).to_numpy(zero_copy_only=False))
    there = pc.if_else(pa.array(missing), pa.scalar(None, pa.binary()), values)
    try:
        return there.cast(pa.string()), missing, np.zeros(len(values), bool)
    except pa.ArrowInvalid:
        texts = [_text(value) for value in there.to_pylist()]
        wrong = ~missing & np.fromiter((text is None for text in texts), bool, len(texts))
        return pa.array(texts, pa.string()), missing, wrong


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
