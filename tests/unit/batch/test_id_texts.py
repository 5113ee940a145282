"""Event ids as text in the quarantine: what Spark's CAST and to_json make of them, so that both writers store the same."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ingest.batch.refused import id_texts

pytestmark = pytest.mark.unit

ZONED = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.string(), "", ""),
        (pa.string(), 'a"\\\n', 'a"\\\n'),
        (pa.int8(), -5, "-5"),
        (pa.int64(), 2**63 - 1, "9223372036854775807"),
        (pa.bool_(), True, "true"),
        (pa.bool_(), False, "false"),
        (pa.decimal128(10, 7), Decimal("0E-7"), "0E-7"),
        (pa.decimal128(10, 6), Decimal("0"), "0.000000"),
        (pa.decimal128(10, 7), Decimal("0.0000001"), "1E-7"),
        (pa.decimal128(20, 8), Decimal("0.00000015"), "1.5E-7"),
        (pa.decimal128(38, 18), Decimal("-0.00000001"), "-1.0000000000E-8"),
        (pa.decimal128(38, 18), Decimal("12345678901234567890.123456789012345678"), "12345678901234567890.123456789012345678"),
        (pa.decimal128(5, 2), Decimal("1.5"), "1.50"),
        (pa.decimal128(5, 0), Decimal("100"), "100"),
        (pa.date32(), date(1, 1, 1), "0001-01-01"),
        (pa.date32(), date(9999, 12, 31), "9999-12-31"),
        (ZONED, datetime(1, 1, 1, tzinfo=UTC), "0001-01-01 00:00:00"),
        (ZONED, datetime(2024, 1, 2, 3, 4, 5, 100_000, UTC), "2024-01-02 03:04:05.1"),
        (ZONED, datetime(2024, 1, 2, 3, 4, 5, 1, UTC), "2024-01-02 03:04:05.000001"),
        (ZONED, datetime(2024, 1, 2, 3, 4, 50, tzinfo=UTC), "2024-01-02 03:04:50"),
        (ZONED, datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), "9999-12-31 23:59:59.999999"),
        (pa.binary(), b"abc", "abc"),
        (pa.binary(), "é".encode(), "é"),
        (pa.binary(), b"\xff", None),
        (pa.string(), None, None),
    ],
    ids=str,
)
def test_an_id_of_one_column_is_its_text_as_spark_casts_it(kind: pa.DataType, value: Any, text: str | None) -> None:
    assert id_texts(pa.table({"id": pa.array([value], kind)}), ["id"]).to_pylist() == [text]


def test_an_id_of_several_columns_is_a_json_array_of_texts_as_spark_writes_it() -> None:
    """Spark's Jackson escapes control characters with upper-case digits, and neither the slash nor a letter beyond ASCII."""
    letters = "".join(map(chr, range(32))) + '"\\/\x7f\x80é\u2028\U0001f600'
    rows = pa.table({"a": [letters, "x", "x"], "n": pa.array([1, None, 2]), "b": pa.array([b"1", b"1", b"\xff"])})
    spark = '["\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000B\\f\\r\\u000E\\u000F'
    spark += "\\u0010\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017\\u0018\\u0019\\u001A\\u001B\\u001C\\u001D\\u001E\\u001F"
    spark += '\\"\\\\/\x7f\x80é\u2028\U0001f600","1","1"]'
    assert id_texts(rows, ["a", "n", "b"]).to_pylist() == [spark, None, None]


def test_the_columns_stand_in_the_order_of_the_contract() -> None:
    assert id_texts(pa.table({"a": ["1"], "b": ["2"]}), ["b", "a"]).to_pylist() == ['["2","1"]']


def test_no_rows_have_no_texts() -> None:
    assert id_texts(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}), ["a", "b"]).to_pylist() == []
