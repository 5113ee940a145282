"""Hashes of event ids: equal for equal ids however they are stored, different for different ones, and never of NULL."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.delta.id_hash import AT_ONCE, id_hashes

pytestmark = pytest.mark.unit

SECRET, OTHER = b"s" * 32, b"t" * 32
UTC_US = pa.timestamp("us", "UTC")


def hashes(rows: list[tuple[Any, ...]], *kinds: pa.DataType, secret: bytes = SECRET) -> list[tuple[int, int]]:
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    high, low = id_hashes(pa.table(columns, [str(at) for at in range(len(kinds))]), secret)
    return list(zip(high.tolist(), low.tolist(), strict=True))


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=9)), max_size=30))
def test_ids_of_several_columns_have_one_hash_if_and_only_if_they_are_equal(rows: list[tuple[bytes, bytes]]) -> None:
    found = hashes(rows, pa.binary(), pa.binary())
    assert [found.index(each) for each in found] == [rows.index(each) for each in rows]
    assert all(len({each[half] for each in found}) == len({*rows}) for half in (0, 1)), "each half differs by itself"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [0, 1, -1, 256, 2**32, -(2**63), 2**63 - 1]),
        (pa.decimal128(20, 7), [Decimal("0"), Decimal("0.0000001"), Decimal("1"), Decimal("-1"), Decimal(2**40)]),
        (pa.date32(), [date(1970, 1, 1), date(2026, 1, 1), date(1, 1, 1)]),
        (UTC_US, [datetime(2026, 1, 1, 0, 0, 0, each, UTC) for each in range(3)]),
        (pa.string(), ["", "\0", "\0\0", "a", "a\0", "aaaa", "aaaaa", "ä", "x" * 4000, "x" * 3999 + "y"]),
    ],
)
def test_different_values_of_each_type_that_an_id_may_have_differ(kind: pa.DataType, values: list[Any]) -> None:
    found = hashes([(value,) for value in values], kind)
    assert len({*found}) == len(values) and found == hashes([(value,) for value in values], kind)


def test_a_hash_does_not_depend_on_the_rows_around_it() -> None:
    ids = pa.table({"id": pa.chunked_array([[f"{number:x}" * (number % 5) for number in range(AT_ONCE + 3)], ["last"]])})
    whole, part = id_hashes(ids, SECRET), id_hashes(ids.slice(AT_ONCE - 1), SECRET)
    assert [half[AT_ONCE - 1 :].tolist() for half in whole] == [half.tolist() for half in part]


def test_null_equals_nothing_and_another_secret_changes_every_hash() -> None:
    rows = [("a", None), ("a", None), (None, "a"), ("a", "")]
    first, second = hashes(rows, pa.string(), pa.string()), hashes(rows, pa.string(), pa.string())
    assert len({*first[:3], *second[:3], first[3]}) == 7 and first[3] == second[3]
    assert first[3] not in hashes(rows, pa.string(), pa.string(), secret=OTHER)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int64(), pa.date32(), UTC_US, pa.decimal128(20, 7)], ids=str)
def test_no_rows_have_no_hashes_however_they_come(kind: pa.DataType) -> None:
    none = [pa.table([array], ["id"]) for array in (pa.nulls(0, kind), pa.nulls(2, kind).slice(2), pa.chunked_array([], kind))]
    assert [[half.tolist() for half in id_hashes(each, SECRET)] for each in none] == [[[], []]] * 3


def test_hashes_are_spread_evenly_even_if_ids_are_not() -> None:
    """Segments are merged slice by slice: one slice with all of them would need as much memory as the whole."""
    high, _ = id_hashes(pa.table({"id": np.arange(100_000)}), SECRET)
    counts, _ = np.histogram(high.astype(float), 16, (0, 2.0**64))
    assert counts.min() > 0.9 * counts.max()
