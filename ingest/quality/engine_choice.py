"""Whether DuckDB can check a suite with the same results as Spark. Spark checks all others (docs/decisions/checks-without-spark.md).

The lists are what a test has compared on nasty rows (tests/integration/test_both_engines.py). What is not on them takes Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ingest.decode.rule_refusal import RuleRaises, Untranslatable
from ingest.delta.direct_fit import KNOWN, READER_VERSION
from ingest.delta.table_state import TableState
from ingest.quality.duckdb_pattern import duckdb_pattern
from ingest.quality.suite import Expected, Suite
from ingest.quality.suite_run import shown_ids
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import InvalidInput
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from ingest.quality.duckdb_rows import DuckDBRows

VARIABLE, ROWS_MAX = "INGEST_DUCKDB_ROWS", 10_000_000
WHOLE = ("byte", "short", "integer", "long")
FLOATING = ("float", "double")
NUMBERS = (*WHOLE, *FLOATING, "decimal")
TEXT, DAY, TIME = ("string",), ("date",), ("timestamp",)
SIMPLE = (*NUMBERS, *TEXT, *DAY, *TIME, "boolean", "timestamp_ntz")
ANY = (*SIMPLE, "binary", "struct", "array", "map")
# The types of expectations, each with the types of the columns on which the engines are equal. Sums, means and deviations of floating point
# numbers depend on the order of the rows in both. NaN is why medians and quantiles have no floating point.
EQUAL: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("expect_table_row_count_to_equal", "expect_table_row_count_to_be_between"), ()),
    **dict.fromkeys(("expect_column_to_exist", "expect_column_values_to_be_null", "expect_column_values_to_not_be_null"), ANY),
    "expect_column_proportion_of_non_null_values_to_be_between": ANY,
    **dict.fromkeys(("expect_column_values_to_be_unique", "expect_column_unique_value_count_to_be_between"), SIMPLE),
    "expect_column_proportion_of_unique_values_to_be_between": SIMPLE,
    "expect_compound_columns_to_be_unique": SIMPLE,
    **dict.fromkeys(("expect_column_values_to_be_in_set", "expect_column_values_to_not_be_in_set"), (*NUMBERS, *TEXT, *DAY, "boolean")),
    "expect_column_most_common_value_to_be_in_set": (*NUMBERS, *TEXT, *DAY, "boolean"),
    "expect_column_distinct_values_to_be_in_set": (*WHOLE, *TEXT, *DAY, "decimal", "boolean"),
    **dict.fromkeys(
        ("expect_column_distinct_values_to_contain_set", "expect_column_distinct_values_to_equal_set"),
        (*WHOLE, *TEXT, "decimal", "boolean"),
    ),
    **dict.fromkeys(("expect_column_values_to_be_between", "expect_column_min_to_be_between"), (*NUMBERS, *DAY, *TIME)),
    "expect_column_max_to_be_between": (*NUMBERS, *DAY, *TIME),
    **dict.fromkeys(("expect_column_mean_to_be_between", "expect_column_stdev_to_be_between"), NUMBERS),
    **dict.fromkeys(("expect_column_sum_to_be_between", "expect_column_value_z_scores_to_be_less_than"), NUMBERS),
    **dict.fromkeys(("expect_column_median_to_be_between", "expect_column_quantile_values_to_be_between"), (*WHOLE, "decimal")),
    **dict.fromkeys(("expect_column_value_lengths_to_be_between", "expect_column_value_lengths_to_equal"), TEXT),
    **dict.fromkeys(("expect_column_values_to_match_regex", "expect_column_values_to_not_match_regex"), TEXT),
    **dict.fromkeys(("expect_column_values_to_match_regex_list", "expect_column_values_to_not_match_regex_list"), TEXT),
    **dict.fromkeys(("expect_column_pair_values_to_be_equal", "expect_column_pair_values_a_to_be_greater_than_b"), SIMPLE),
    "expect_column_kl_divergence_to_be_less_than": TEXT,
}
# Their bounds are values of the column; those of other types are numbers.
BOUNDED = tuple(f"expect_column_{name}_to_be_between" for name in ("values", "min", "max"))
ARGUMENTS = frozenset(
    {
        *("column", "column_A", "column_B", "column_list", "mostly", "row_condition", "condition_parser", "min_value", "max_value"),
        *("strict_min", "strict_max", "value_set", "regex", "regex_list", "match_on", "value", "ignore_row_if", "or_equal"),
        *("threshold", "double_sided", "partition_object", "quantile_ranges"),
    }
)
CONDITIONS = (*NUMBERS, *TEXT, *DAY, "boolean")
# Without a zone: GX would compare a time with a zone otherwise in each engine.
MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")
Field = tuple[str, bool]
"""The name of a column's type in Delta's schema, without its parameters, and whether the column may be NULL."""


def spark_because(suite: Suite, state: TableState) -> str | None:
    """Why Spark has to check this table, as a clause; None if DuckDB can."""
    if find_spec("duckdb") is None or find_spec("sqlalchemy") is None:
        return "duckdb or sqlalchemy is not installed (they belong to the extra `local`)"
    return next(_of_the_table(state), None) or next(_of_the_suite(suite, state), None)


def _of_the_table(state: TableState) -> Iterator[str]:
    if state.reader_version > READER_VERSION:
        yield f"its protocol has the reader version {state.reader_version}"
    if unknown := sorted(state.features - KNOWN):
        yield f"it has the Delta feature {unknown[0]}"
    if (mode := state.properties.get("delta.columnMapping.mode", "none")).lower() != "none":
        yield f"its columns are mapped by {mode}"


def _of_the_suite(suite: Suite, state: TableState) -> Iterator[str]:
    from ingest.quality.duckdb_rows import duckdb_type, resolved

    fields = read_json(state.schema)["fields"]

    def field(path: str) -> Field:
        _, kind, nullable = resolved(fields, path)
        return str(kind["type"]) if isinstance(kind, dict) else kind.partition("(")[0], nullable

    for column in fields:
        try:
            duckdb_type(column["type"])
        except KeyError:
            yield f"the column {column['name']} has a type that DuckDB lacks"
    written = {name.lower(): name for name in shown_ids(suite)}
    for expected in suite.expectations:
        where = f"expectations[{expected.number}] of {suite.path}, {expected.type},"
        for name in expected.named:
            if written.setdefault(name.lower(), name) != name:
                yield f"{where} writes the column {written[name.lower()]} as {name}"
        if (why := _unequal(expected, field)) is not None:
            yield f"{where} {why}"


def _unequal(expected: Expected, field: Callable[[str], Field]) -> str | None:
    """What of an expectation DuckDB may answer otherwise, as the end of a sentence; None if nothing."""
    kwargs = expected.kwargs
    if expected.type not in EQUAL:
        return "is not among the types that are equal in DuckDB"
    if others := sorted(name for name, value in kwargs.items() if name not in ARGUMENTS and value is not None):
        return f"has the argument {others[0]}"
    try:
        fields = {name: field(name) for name in expected.named}
    except KeyError as error:
        return f"reads {error.args[0]}, which is no column or field of a struct in the table"
    kinds = [fields[name][0] for name in expected.columns]
    if wrong := [kind for kind in kinds if kind not in EQUAL[expected.type]]:
        return f"is on a column of the type {wrong[0].upper()}"
    nullable = any(fields[name][1] for name in expected.columns)
    if expected.type == "expect_compound_columns_to_be_unique" and nullable:
        return "has a column that may be NULL"
    if "column_A" in kwargs and (len({*kinds}) > 1 or (nullable and kwargs.get("ignore_row_if") == "neither")):
        return "compares columns of two types, or NULL"
    if condition := kwargs.get("row_condition"):
        parsers = ("great_expectations", "great_expectations__experimental__")
        if isinstance(condition, str) and kwargs.get("condition_parser") not in parsers:
            return "has a row condition in Spark's SQL"
        if "pass_through_filter" in str(condition) or any(kind not in CONDITIONS for kind, _ in fields.values()):
            return "has a row condition in SQL, or on a column that is neither number, text, date nor BOOLEAN"
        if expected.type == "expect_compound_columns_to_be_unique":
            return "has a row condition"
    kind = kinds[0] if kinds else ""
    bounds = [kwargs.get("min_value"), kwargs.get("max_value")] if expected.type in BOUNDED else []
    members = kwargs.get("value_set")
    if members is not None and not (isinstance(members, list) and all(_is_of(kind, each) for each in members)):
        return f"has a value in its set that is no {kind.upper()}"
    if not all(each is None or isinstance(each, dict) or _is_of(kind, each) for each in bounds):
        return f"has a bound that is no {kind.upper()}, or one with a zone"
    patterns = kwargs.get("regex_list") or [kwargs["regex"]] if "regex" in kwargs or "regex_list" in kwargs else []
    try:
        for pattern in patterns:
            duckdb_pattern(pattern)
    except (Untranslatable, RuleRaises) as error:
        return f"has {error}"
    return None


def _is_of(kind: str, value: Any) -> bool:
    if kind in (*DAY, *TIME):
        return isinstance(value, str) and MOMENT.fullmatch(value) is not None and (kind in TIME or len(value) == len("2026-01-01"))
    if kind in ("string", "boolean"):
        return isinstance(value, str if kind == "string" else bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


def duckdb_rows(suite: Suite, state: TableState, places: Places) -> DuckDBRows:
    """The table's rows for DuckDB, with the columns that the suite names and those that name a row."""
    from ingest.quality.duckdb_rows import DuckDBRows

    return DuckDBRows(places.target, state, sorted({*shown_ids(suite), *(name for each in suite.expectations for name in each.named)}))


def too_many(rows: int) -> str | None:
    """Why Spark has to check so many rows; None if they are not too many for DuckDB. Raises InvalidInput DUCKDB_ROWS_INVALID."""
    text = os.environ.get(VARIABLE) or str(ROWS_MAX)
    if not text.isdecimal():
        raise InvalidInput(
            "DUCKDB_ROWS_INVALID",
            f"{VARIABLE}={text!r}.",
            expected="a number of rows; 0: every check takes Spark.",
            remedy=f"correct or unset {VARIABLE}.",
        )
    return f"{rows:,} rows are to be read, and {VARIABLE} is {int(text):,}" if rows > int(text) or text == "0" else None
