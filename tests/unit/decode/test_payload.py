"""The hash of a payload: tables store it, so it stays the same, whatever columns are added later (I3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.decode.payload import payload_hashes

pytestmark = pytest.mark.unit

NOTE = pa.struct([("text", pa.string()), ("n", pa.int32())])
# What tables hold by now.
STORED, STORED_STRUCT = 0x0C202502D01684CF, 0x2925DF2895B72867
VALUES = st.one_of(st.none(), st.integers(0, 2))


def hash_of(**columns: pa.Array) -> int:
    (found,) = payload_hashes(columns.items(), 1)
    return int(found)


def note(value: dict[str, Any] | None, kind: pa.DataType = NOTE) -> pa.Array:
    return pa.array([value], kind)


def test_a_stored_hash_is_still_that_of_its_row() -> None:
    """Another number here would make a conflict of every event that is sent again."""
    assert hash_of(id=pa.array([1]), text=pa.array(["a"]), n=pa.array([None], pa.int32())) == STORED
    assert hash_of(note=note({"text": "a", "n": None})) == STORED_STRUCT


@given(VALUES, VALUES, VALUES, VALUES)
def test_two_rows_have_one_hash_if_and_only_if_they_are_equal(a: Any, b: Any, c: Any, d: Any) -> None:
    rows = pa.table({"a": pa.array([a, c], pa.int64()), "b": pa.array([b, d], pa.int64())})
    first, second = payload_hashes(((name, rows[name].combine_chunks()) for name in ("a", "b")), 2)
    assert (first == second) == ((a, b) == (c, d))
    again, _ = payload_hashes(((name, rows[name].combine_chunks()) for name in ("b", "a")), 2)
    assert again == first, "the order of the columns does not count"


def test_a_column_or_field_that_is_added_later_changes_no_hash() -> None:
    before, more = pa.array([1]), pa.array([None], pa.string())
    assert hash_of(a=before) == hash_of(a=before, b=more)
    wider = pa.struct([*NOTE, ("more", pa.struct([("x", pa.string())]))])
    value = {"text": "a", "n": 1}
    assert hash_of(note=note(value)) == hash_of(note=note(value, wider)) != hash_of(note=note({**value, "more": {}}, wider))


def test_a_struct_without_values_is_not_null() -> None:
    nothing, empty = hash_of(note=note(None)), hash_of(note=note({}))
    assert nothing == 0 != empty
    assert len({nothing, empty, hash_of(note=note({"text": ""})), hash_of(note=note({"n": 0})), hash_of(other=note({"n": 0}))}) == 5


def test_no_columns_and_no_rows() -> None:
    assert payload_hashes([], 2).tolist() == [0, 0]
    assert payload_hashes([("a", pa.array([], pa.int64()))], 0).dtype == np.uint64
