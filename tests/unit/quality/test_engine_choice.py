"""Which suites and tables DuckDB checks, and why Spark has to check the others. Results: tests/integration/test_both_engines.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ingest.contract.columns import target_columns
from ingest.contract.sql_type import field_to_delta
from ingest.delta.table_state import TableState
from ingest.quality.engine_choice import spark_because, too_many
from ingest.runtime.errors import InvalidInput
from tests.unit.quality.suite_scene import contract_of, expected_of

pytestmark = pytest.mark.unit

KINDS = {"name": "STRING", "n": "INT", "x": "DOUBLE", "d": "DECIMAL(10,2)", "day": "DATE", "at": "TIMESTAMP", "b": "BOOLEAN"}
KINDS |= {"st": "STRUCT<city: STRING>", "tags": "ARRAY<STRING>", "raw": "BINARY"}
COLUMNS = [{"name": "id", "type": "STRING", "nullable": False}, *({"name": name, "type": kind} for name, kind in KINDS.items())]
GX = {"condition_parser": "great_expectations"}


def because(tmp_path: Path, kind: str, table: Mapping[str, Any] | None = None, **kwargs: Any) -> str | None:
    """The reason for a suite of one expectation, without the place that it names."""
    suite, _ = expected_of(tmp_path, {"type": f"expect_{kind}", "kwargs": kwargs}, columns=COLUMNS)
    fields = [field_to_delta(each) for each in target_columns(contract_of(columns=COLUMNS))]
    state = TableState(0, schema=json.dumps({"type": "struct", "fields": fields}), **(table or {}))
    found = spark_because(suite, state)
    return found.removeprefix(f"expectations[0] of s.json, expect_{kind}, ") if found else None


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [
        ("column_values_to_be_in_set", {"column": "name", "value_set": ["a", "b"]}),
        ("column_values_to_be_in_set", {"column": "N", "value_set": [1, 2.5]}),
        ("column_values_to_be_in_set", {"column": "day", "value_set": ["2024-02-29"]}),
        ("column_values_to_be_between", {"column": "at", "min_value": {"$PARAMETER": "now() - timedelta(hours=26)"}}),
        ("column_values_to_be_between", {"column": "at", "min_value": "2024-02-29T10:00:00"}),
        ("column_values_to_match_regex", {"column": "st.city", "regex": "^[A-Z]{2}$"}),
        ("column_values_to_be_null", {"column": "tags"}),
        ("compound_columns_to_be_unique", {"column_list": ["id", "_offset"]}),
        ("column_median_to_be_between", {"column": "d", "max_value": 5}),
        ("column_mean_to_be_between", {"column": "n", "max_value": 5, "row_condition": 'col("name") == "a"', **GX}),
        ("table_row_count_to_equal", {"value": {"$PARAMETER": "ledger_rows"}}),
    ],
)
@pytest.mark.filterwarnings("ignore:.*(row_condition|condition_parser):DeprecationWarning")
def test_duckdb_checks_what_has_been_compared(tmp_path: Path, kind: str, kwargs: dict[str, Any]) -> None:
    assert because(tmp_path, kind, **kwargs) is None


@pytest.mark.parametrize(
    ("kind", "kwargs", "why"),
    [
        ("column_values_to_be_increasing", {"column": "n"}, "is not among the types that are equal in DuckDB"),
        ("table_column_count_to_equal", {"value": 3}, "is not among the types that are equal in DuckDB"),
        ("column_to_exist", {"column": "n", "column_index": 1}, "has the argument column_index"),
        ("column_median_to_be_between", {"column": "x", "max_value": 5}, "is on a column of the type DOUBLE"),
        ("column_values_to_be_unique", {"column": "tags"}, "is on a column of the type ARRAY"),
        ("column_values_to_be_in_set", {"column": "name", "value_set": ["a", 1]}, "has a value in its set that is no STRING"),
        ("column_values_to_be_in_set", {"column": "n", "value_set": [1, None]}, "has a value in its set that is no INTEGER"),
        ("column_values_to_be_in_set", {"column": "b", "value_set": ["true"]}, "has a value in its set that is no BOOLEAN"),
        ("column_values_to_be_in_set", {"column": "at", "value_set": ["2024-02-29"]}, "is on a column of the type TIMESTAMP"),
        (
            "column_values_to_be_between",
            {"column": "at", "min_value": "2024-02-29T10:00:00+00:00"},
            "has a bound that is no TIMESTAMP, or one with a zone",
        ),
        ("compound_columns_to_be_unique", {"column_list": ["id", "n"]}, "has a column that may be NULL"),
        ("column_pair_values_to_be_equal", {"column_A": "n", "column_B": "x"}, "compares columns of two types, or NULL"),
        (
            "column_pair_values_to_be_equal",
            {"column_A": "n", "column_B": "n", "ignore_row_if": "neither"},
            "compares columns of two types, or NULL",
        ),
        (
            "column_mean_to_be_between",
            {"column": "n", "row_condition": "n > 1", "condition_parser": "spark"},
            "has a row condition in Spark's SQL",
        ),
        (
            "column_mean_to_be_between",
            {"column": "n", "row_condition": 'col("at") > date("2024-01-01")', **GX},
            "has a row condition in SQL, or on a column that is neither number, text, date nor BOOLEAN",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*(row_condition|condition_parser):DeprecationWarning")
def test_the_reason_for_spark_names_the_expectation(tmp_path: Path, kind: str, kwargs: dict[str, Any], why: str) -> None:
    assert because(tmp_path, kind, **kwargs) == why


@pytest.mark.parametrize(
    "pattern", [r"^\s+$", r"\bx", r"[\D]", r"[a\-z]", r"\[", "x\\", "(?i)a", "a$b", r"(a)\1", "[a-z&&[b]]", "never closed("]
)
def test_a_pattern_that_java_and_re2_may_read_otherwise_takes_spark(tmp_path: Path, pattern: str) -> None:
    found = because(tmp_path, "column_values_to_match_regex", column="name", regex=pattern)
    assert found is not None and found.startswith("has the pattern ")
    assert because(tmp_path, "column_values_to_match_regex", column="name", regex=r"^\d+\.[\d.]+\w$") is None
    assert because(tmp_path, "column_values_to_match_regex_list", column="name", regex_list=["a", pattern]) == found


def test_two_spellings_of_a_column_take_spark(tmp_path: Path) -> None:
    found = because(tmp_path, "column_mean_to_be_between", column="n", row_condition='col("N") > 1', condition_parser="great_expectations")
    assert found == "writes the column n as N"
    assert because(tmp_path, "column_values_to_be_unique", column="ID") == "writes the column id as ID", "samples have the id's own name"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"features": frozenset({"deletionVectors"})}, "it has the Delta feature deletionVectors"),
        ({"features": frozenset({"somethingNew"})}, "it has the Delta feature somethingNew"),
        ({"properties": {"delta.columnMapping.mode": "name"}}, "its columns are mapped by name"),
        ({"reader_version": 4}, "its protocol has the reader version 4"),
        ({"features": frozenset({"appendOnly", "timestampNtz", "clustering"}), "reader_version": 3}, None),
    ],
)
def test_a_table_whose_files_need_more_than_parquet_takes_spark(tmp_path: Path, table: dict[str, Any], why: str | None) -> None:
    assert because(tmp_path, "column_values_to_be_unique", table, column="id") == why


def test_more_rows_than_the_setting_take_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert too_many(10_000_000) is None and too_many(10_000_001) is not None
    monkeypatch.setenv("INGEST_DUCKDB_ROWS", "5")
    assert too_many(5) is None and too_many(6) == "6 rows are to be read, and INGEST_DUCKDB_ROWS is 5"
    monkeypatch.setenv("INGEST_DUCKDB_ROWS", "0")
    assert too_many(0) is not None, "every check"
    monkeypatch.setenv("INGEST_DUCKDB_ROWS", "1e7")
    with pytest.raises(InvalidInput, match="DUCKDB_ROWS_INVALID"):
        too_many(1)
