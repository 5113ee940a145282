"""Rows on which engines differ, and an expectation for each case in which DuckDB must answer as Spark does."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

TIMES = [datetime(2024, 2, 28, 23, tzinfo=UTC), datetime(2024, 2, 29, 0, 0, 0, 123456, UTC), datetime(1900, 1, 1, tzinfo=UTC)]
TEXTS = [
    "",
    " ",
    "a",
    "A",
    "ß",
    "SS",
    "é",
    "e\u0301",
    "x\n",
    "x\r\n",
    "x\r",
    "1234\n",
    "1234",
    "\u2028",
    "İ",
    "ſ",
    "K",
    "日本",
    "a'b",
    'a"b',
]
TEXTS += ["%", "a%b", "\\", "NULL", "nan", "10", "2024-02-29", "\U0001f600", "web", "app"]
VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "k": (pa.int32(), range(400)),
    "s": (pa.string(), [*TEXTS, None]),
    "r": (pa.string(), [*TEXTS, None]),
    "code": (pa.string(), ["web", "app", "store"]),
    "i": (pa.int32(), [0, 1, -1, 2, 5, 10, 2**31 - 1, -(2**31), None]),
    "j": (pa.int32(), [0, 1, -1, 2, None]),
    "l": (pa.int64(), [0, 1, -1, 2**53 + 1, 2**53, 2**63 - 1, -(2**63), None]),
    "f": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324, None, 0.1, -2.0]),
    "g": (pa.float64(), [0.0, 1.5, None, 0.1, 2.0, -2.0, 1e10]),
    "h": (pa.float32(), [0.0, 1.5, None, 0.1, 2.0, -2.0]),
    "d": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("1.10"), Decimal("-1.10"), Decimal("99999999.99"), None]),
    "e": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("1.10"), None]),
    "t": (pa.timestamp("us", "UTC"), [*TIMES, datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None]),
    "u": (pa.timestamp("us", "UTC"), [*TIMES, None]),
    "day": (pa.date32(), [date(2024, 2, 29), date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), None]),
    "b": (pa.bool_(), [True, False, None]),
    "raw": (pa.binary(), [b"", b"\xff", b"a", None]),
    "st": (
        pa.struct([("country", pa.string()), ("at", pa.timestamp("us", "UTC"))]),
        [{"country": "DE", "at": TIMES[1]}, {"country": None, "at": None}, {"country": "", "at": TIMES[0]}, None],
    ),
    "tags": (pa.list_(pa.string()), [[], ["a"], ["a", None], None]),
    "p": (pa.string(), ["x", "y z", "ü/=", None]),
}


ESCAPES = (r"^\d+$", r"^\w+$", r"\W$", r"\D", r"a\%b", r"^[\d.-]+$", r"^\w\'")


def nasty_rows(count: int, seed: int = 7) -> pa.Table:
    """Rows with the id `e00000`, values of each column by chance, and positions in three batches of epoch 1."""
    chosen = random.Random(seed)
    found = {"id": pa.array([f"e{n:05}" for n in range(count)])}
    found |= {name: pa.array([chosen.choice(values) for _ in range(count)], kind) for name, (kind, values) in VALUES.items()}
    now = pa.repeat(pa.scalar(TIMES[0], pa.timestamp("us", "UTC")), count)
    found |= {"_source": pa.array([0] * count, pa.int16()), "_partition": pa.array([0] * count, pa.int32())}
    found |= {"_offset": pa.array(range(count), pa.int64()), "_kafka_timestamp": now, "_ingested_at": now}
    found |= {"_epoch": pa.array([1] * count, pa.int32()), "_batch": pa.array([2 + 3 * n // count for n in range(count)], pa.int64())}
    return pa.table(found)


def sql_types() -> dict[str, str]:
    """The columns for a contract."""
    names = {"int32": "INT", "int64": "BIGINT", "double": "DOUBLE", "float": "FLOAT", "string": "STRING", "bool": "BOOLEAN"}
    names |= {"date32[day]": "DATE", "binary": "BINARY", "timestamp[us, tz=UTC]": "TIMESTAMP", "decimal128(10, 2)": "DECIMAL(10,2)"}
    nested = {"st": "STRUCT<country: STRING, at: TIMESTAMP>", "tags": "ARRAY<STRING>"}
    kinds = {name: nested.get(name) or names[str(kind)] for name, (kind, _) in VALUES.items()}
    return {name: f"{kind}!" if name in ("k", "code") else kind for name, kind in kinds.items()}


def expectation(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": f"expect_{kind}", "kwargs": kwargs}


def cases() -> Iterator[dict[str, Any]]:
    """Each type of expectation on the list, in the cases that are known to be hard; the last one of a type is the hardest."""
    for name in ("s", "l", "f", "d", "t", "day", "raw", "st.country", "tags", "p", "st.at"):
        yield expectation("column_values_to_not_be_null", column=name)
        yield expectation("column_values_to_be_null", column=name, mostly=0.5)
    yield expectation("column_to_exist", column="st.country")
    yield expectation("column_proportion_of_non_null_values_to_be_between", column="f", min_value=0.95)
    for name in ("l", "h", "d", "t", "day", "b", "st.country", "k", "s", "f"):
        yield expectation("column_values_to_be_unique", column=name)
        yield expectation("column_unique_value_count_to_be_between", column=name, max_value=5)
    yield expectation("column_proportion_of_unique_values_to_be_between", column="k", min_value=0.5)
    yield expectation("compound_columns_to_be_unique", column_list=["k", "code"])
    sets: dict[str, list[Any]] = {"code": ["web", "app"], "i": [0, 1, 2**31 - 1], "f": [0.0, 1.5], "h": [0.1, 1.5], "d": [1.1, 0]}
    sets |= {"day": ["2024-02-29", "1970-01-01"], "b": [True], "st.country": ["DE"], "l": [2**53 + 1, 0]}
    sets |= {"s": ["a", "A", "", "ß", "x\n", "10"]}
    for name, members in sets.items():
        yield expectation("column_values_to_be_in_set", column=name, value_set=members)
        yield expectation("column_values_to_not_be_in_set", column=name, value_set=members)
        yield expectation("column_most_common_value_to_be_in_set", column=name, value_set=members)
    for name in ("i", "d", "b", "s"):
        for kind in ("be_in_set", "contain_set", "equal_set"):
            yield expectation(f"column_distinct_values_to_{kind}", column=name, value_set=sets[name])
    bounds: list[tuple[str, Any, Any]] = [("i", 0, 10), ("l", None, 2**53), ("g", -2.0, 1.5), ("h", 0, 0.1), ("d", 0, 1.1)]
    bounds += [("t", "2024-02-28T23:00:00", "2025-01-01T00:00:00"), ("t", "2024-01-01", None), ("day", "2024-01-01", "2025-01-01")]
    bounds += [("st.at", "2024-02-29", None), ("f", 0, 1.5)]
    for name, least, greatest in bounds:
        for kind in ("values", "min", "max"):
            yield expectation(f"column_{kind}_to_be_between", column=name, min_value=least, max_value=greatest)
        yield expectation("column_values_to_be_between", column=name, min_value=least, max_value=greatest, strict_min=True, mostly=0.9)
    for name in ("i", "f", "g", "h", "d", "l"):
        for kind in ("mean", "stdev", "sum"):
            yield expectation(f"column_{kind}_to_be_between", column=name, min_value=0, max_value=5)
        yield expectation("column_value_z_scores_to_be_less_than", column=name, threshold=2, double_sided=True)
    for name in ("i", "l", "d"):
        ranges = {"quantiles": [0.1, 0.5, 0.9], "value_ranges": [[-3, 1], [0, 2], [None, 3]]}
        yield expectation("column_median_to_be_between", column=name, min_value=0, max_value=5)
        yield expectation("column_quantile_values_to_be_between", column=name, quantile_ranges=ranges)
    for name in ("s", "st.country"):
        yield expectation("column_value_lengths_to_be_between", column=name, min_value=1, max_value=3)
        yield expectation("column_value_lengths_to_equal", column=name, value=1)
    for pattern in ("^[a-z]+$", "^[0-9]{4}$", "a.b", "^.$", "web|app", "(a|b)+", "^$", *ESCAPES, "x[^y]$"):
        yield expectation("column_values_to_match_regex", column="s", regex=pattern)
        yield expectation("column_values_to_not_match_regex", column="s", regex=pattern)
    for match_on in ("any", "all"):
        yield expectation("column_values_to_match_regex_list", column="s", regex_list=["^[a-z]", "[0-9x]$"], match_on=match_on)
    yield expectation("column_values_to_not_match_regex_list", column="s", regex_list=["^[a-z]", "[0-9]$"])
    for one, other in (("i", "j"), ("s", "r"), ("d", "e"), ("t", "u")):
        pair = {"column_A": one, "column_B": other}
        yield expectation("column_pair_values_to_be_equal", **pair)
        yield expectation("column_pair_values_to_be_equal", **pair, ignore_row_if="either_value_is_missing")
        yield expectation("column_pair_values_a_to_be_greater_than_b", **pair, or_equal=True)
    yield expectation("table_row_count_to_be_between", max_value=5)
    yield expectation("table_row_count_to_equal", value=1)
    weights = {"values": ["web", "app", "store"], "weights": [0.5, 0.25, 0.25]}
    yield expectation("column_kl_divergence_to_be_less_than", column="code", partition_object=weights, threshold=0.001)
    for condition in ('col("code") == "web"', 'col("i") > 0', 'col("s") != "a"', 'col("i").notNull()', 'col("l") == 9007199254740993'):
        some = {"row_condition": condition, "condition_parser": "great_expectations"}
        yield expectation("column_values_to_be_between", column="k", max_value=20, **some)
        yield expectation("column_mean_to_be_between", column="k", max_value=20, **some)
        yield expectation("table_row_count_to_be_between", max_value=5, **some)
