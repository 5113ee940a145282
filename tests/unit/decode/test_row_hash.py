"""Rows have the same hash if they are equal, whatever their types, batches and slices, and another one if they differ (I3)."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ingest.decode.row_hash import row_hashes

MOMENT = datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
PAIR = pa.struct([("a", pa.string()), ("b", pa.string())])
POINT = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
NAN = float("nan")
# Different values of each type, None included.
DIFFERENT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), [None, "", "a", "\0", "ab"]),
    (pa.binary(), [None, b"", b"\0", b"\0\0"]),
    (pa.bool_(), [None, False, True]),
    (pa.int64(), [None, 0, 1, -1]),
    (pa.float64(), [None, 0.0, 1.5, NAN, float("inf"), float("-inf")]),
    (pa.decimal128(20, 2), [None, Decimal("0.00"), Decimal("0.01"), Decimal("-0.01")]),
    (pa.date32(), [None, date(1970, 1, 1), date(1970, 1, 2)]),
    (pa.timestamp("us", "UTC"), [None, MOMENT, MOMENT.replace(microsecond=7)]),
    (pa.list_(pa.int64()), [None, [], [None], [0], [0, 0], [1, 2], [2, 1], [1, 2, None]]),
    (pa.list_(pa.list_(pa.string())), [None, [], [[]], [None], [["a"], ["b"]], [["a", "b"]], [["a", "b"], []], [[], ["a", "b"]]]),
    (POINT, [None, {"x": None, "y": None}, {"x": 1, "y": []}, {"x": 1, "y": ["a"]}, {"x": 2, "y": ["a"]}]),
    (pa.list_(PAIR), [[None], [{"a": "", "b": None}], [{"a": None, "b": ""}], [{"a": "", "b": ""}], [None, None]]),
    (pa.map_(pa.string(), pa.int64()), [None, [], [("a", 1)], [("a", 2)], [("b", 1)], [("a", None)], [("a", 1), ("b", 2)]]),
]


def hashes(*columns: pa.Array) -> list[int]:
    found: list[int] = row_hashes(columns).tolist()
    return found


@pytest.mark.parametrize(("kind", "values"), DIFFERENT, ids=[str(kind) for kind, _ in DIFFERENT])
def test_different_values_have_different_hashes_and_equal_ones_the_same_in_any_batch(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values, kind)
    all_hashes = hashes(column)
    assert len(set(all_hashes)) == len(values)
    for number, value in enumerate(values):
        assert hashes(pa.array([value], kind)) == [all_hashes[number]], "alone"
        assert hashes(column[number : number + 1]) == [all_hashes[number]], "in a slice"
    assert hashes(column.take(pa.array([2, 0, 2]))) == [all_hashes[each] for each in (2, 0, 2)]


def test_forms_of_one_value_have_the_same_hash() -> None:
    negative_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    for kind, one, other in (
        (pa.float64(), 0.0, -0.0),
        (pa.float64(), NAN, negative_nan),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]),
    ):
        assert hashes(pa.array([one], kind)) == hashes(pa.array([other], kind)), kind
    text = pa.array(["a", None, "b"])
    assert hashes(text) == hashes(text.cast(pa.string_view())) == hashes(text.dictionary_encode()) == hashes(text.cast(pa.large_string()))
    assert hashes(pa.array([1.5], pa.float32())) == hashes(pa.array([1.5], pa.float64()))


def test_columns_do_not_run_into_each_other() -> None:
    assert hashes(pa.array(["a"]), pa.array(["bc"])) != hashes(pa.array(["ab"]), pa.array(["c"]))
    assert hashes(pa.array([None, "a"]), pa.array(["a", None])) == hashes(pa.array([None, "a"]), pa.array(["a", None]))
    assert len(set(hashes(pa.array([None, "a"]), pa.array(["a", None])))) == 2


def test_texts_of_all_lengths_have_distinct_hashes() -> None:
    """Also for a slice of an Arrow array."""
    rng = random.Random(3)
    texts = sorted({"".join(rng.choices("ab", k=rng.randrange(40))) for _ in range(5000)})
    rng.shuffle(texts)
    column = pa.array(texts)
    all_hashes = row_hashes([column])
    assert len(np.unique(all_hashes)) == len(texts)
    assert hashes(column[17:900]) == all_hashes[17:900].tolist()
    for length in range(20):  # and in batches of texts of one length
        those = [number for number, text in enumerate(texts) if len(text) == length]
        assert hashes(column.take(pa.array(those, pa.int64()))) == all_hashes[those].tolist()
