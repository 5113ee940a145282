"""What an expectation covers and reads: new or all rows, which columns, sensitive values. How it shows the rows that fail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ingest.contract.definition import load_contracts
from ingest.quality.suite import load_suites
from ingest.quality.suite_run import POSITION, binary_columns, shown_ids
from tests.unit.quality.suite_scene import contract_of, expected_of, problems, write

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]


def test_unique_ids_row_counts_and_expectations_marked_so_cover_the_whole_table() -> None:
    (orders,) = load_suites(PROJECT, load_contracts(PROJECT, ["orders"]))
    whole = {each.type for each in orders.expectations if each.whole}
    assert whole == {"expect_column_values_to_be_unique", "expect_table_row_count_to_equal", "expect_column_max_to_be_between"}


@pytest.mark.parametrize(
    "kind", ["expect_column_proportion_of_unique_values_to_be_between", "expect_column_unique_value_count_to_be_between"]
)
def test_a_count_of_distinct_values_covers_the_whole_table_too(tmp_path: Path, kind: str) -> None:
    """On new rows alone, an id that the table already contains would still have a proportion of 1."""
    _, expected = expected_of(tmp_path, {"type": kind, "kwargs": {"column": "id", "min_value": 1}})
    assert expected.whole


def test_a_parameter_for_mostly_is_accepted_but_does_not_judge_single_rows(tmp_path: Path) -> None:
    config = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "name", "mostly": {"$PARAMETER": "ledger_rows"}}}
    write(tmp_path, config, {**config, "kwargs": {"column": "name"}})
    (suite,) = load_suites(tmp_path, [contract_of()])
    assert [each.exact for each in suite.expectations] == [False, True]


@pytest.mark.parametrize(
    "condition",
    [
        "nme = 'name'",
        "id IN ('a') AND NOT nme IS NULL OR home.city = `nme`",
        'col("id").notNull() and col("nme") == "name"',
        {"type": "comparison", "column": {"name": "nme"}, "operator": "==", "parameter": "name"},
        {"type": "and", "conditions": [{"type": "nullity", "column": {"name": "nme"}, "is_null": False}]},
        {"type": "pass_through", "pass_through_filter": "nme = 'x'"},
    ],
)
@pytest.mark.filterwarnings("ignore:.*(row_condition|condition_parser):DeprecationWarning")  # GX accepts text until 2.0
def test_a_column_that_only_a_row_condition_names_must_exist_too(tmp_path: Path, condition: Any) -> None:
    kwargs = {"column": "id", "value_set": ["a"], "row_condition": condition}
    found = problems(tmp_path, {"type": "expect_column_values_to_be_in_set", "kwargs": kwargs})
    assert "the table has no column nme (is name meant?)" in found
    right = json.loads(json.dumps(kwargs).replace("nme", "name"))
    expected_of(tmp_path, {"type": "expect_column_values_to_be_in_set", "kwargs": right})


@pytest.mark.parametrize(
    "condition", ["_ingested_at < current_date", "exists(split(name, ' '), part -> part = 'x')", "name = = 'x'", "name LIKE ALL ("]
)
@pytest.mark.filterwarnings("ignore:.*(row_condition|condition_parser):DeprecationWarning")  # GX accepts text until 2.0
def test_a_row_condition_without_an_unknown_column_is_left_to_its_engine(tmp_path: Path, condition: str) -> None:
    kwargs = {"column": "id", "value_set": ["a"], "row_condition": condition, "condition_parser": "spark"}
    expected_of(tmp_path, {"type": "expect_column_values_to_be_in_set", "kwargs": kwargs})


@pytest.mark.filterwarnings("ignore:.*(row_condition|condition_parser):DeprecationWarning")  # GX accepts text until 2.0
def test_an_expectation_on_some_rows_does_not_pass_with_the_count_of_all_rows(tmp_path: Path) -> None:
    some = {"row_condition": "id = 'a'", "condition_parser": "spark"}
    _, expected = expected_of(tmp_path, {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id", **some}})
    assert (expected.exact, expected.open_ended) == (False, True)


@pytest.mark.parametrize(
    "config",
    [
        {"type": "expect_table_columns_to_match_ordered_list", "kwargs": {"column_list": ["id", "name"]}},
        {"type": "expect_table_columns_to_match_set", "kwargs": {"column_set": ["id", "name"]}},
        {"type": "expect_table_column_count_to_equal", "kwargs": {"value": 2}},
    ],
)
def test_the_tables_shape_is_checked_on_all_columns_and_hides_no_value(tmp_path: Path, config: Mapping[str, Any]) -> None:
    """On a frame with only the named columns, a list that lacks one of the table's columns would pass."""
    suite, expected = expected_of(tmp_path, config)
    assert expected.open_ended
    assert not expected.touches(suite.sensitive)


def test_an_expectation_that_may_read_any_column_is_sensitive_only_if_a_column_is(tmp_path: Path) -> None:
    query = {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE id = 'x'"}}
    plain = [{"name": "id", "type": "STRING", "nullable": False}]
    for more, touched in (({}, True), ({"columns": plain}, False), ({"columns": plain, "unknown_fields": "keep"}, True)):
        suite, expected = expected_of(tmp_path, query, **more)
        assert expected.touches(suite.sensitive) == touched, more


def test_the_event_id_of_a_raw_table_is_as_sensitive_as_the_records_key(tmp_path: Path) -> None:
    raw = {"source": {"topic": "people", "format": "raw"}, "columns": [], "event_id": "key"}
    unique = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "_event_id"}}
    suite, expected = expected_of(tmp_path, unique, **raw)
    assert expected.touches(suite.sensitive)
    assert shown_ids(suite) == POSITION


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("STRING", ("id",)),
        ("BIGINT", ("id",)),
        ("DATE", ("id",)),
        ("DECIMAL(38,0)", POSITION),
        ("TIMESTAMP", POSITION),
        ("BINARY", POSITION),
    ],
)
def test_a_row_whose_id_gx_would_change_or_fail_on_is_shown_by_its_position(tmp_path: Path, kind: str, shown: tuple[str, ...]) -> None:
    columns = [{"name": "id", "type": kind, "nullable": False}]
    suite, _ = expected_of(tmp_path, {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}, columns=columns)
    assert shown_ids(suite) == shown


def test_binary_columns_are_found_even_if_only_a_nested_part_is_binary(tmp_path: Path) -> None:
    columns = [
        {"name": name, "type": kind, "nullable": name != "id"}
        for name, kind in {"id": "STRING", "b": "BINARY", "s": "STRUCT<x: ARRAY<BINARY>>", "n": "INT"}.items()
    ]
    suite, _ = expected_of(tmp_path, {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}, columns=columns)
    assert binary_columns(suite) == {"b", "s"}
