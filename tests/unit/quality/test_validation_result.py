"""Results for a sensitive column keep only row counts."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ingest.cli.check import failures
from ingest.quality.scope import Scope
from ingest.quality.suite import Expected
from ingest.quality.validation import Checked
from ingest.quality.validation_result import QualityRow, all_scrubbed, as_columns, exception_of, passed, scrubbed

pytestmark = pytest.mark.unit

SECRET = "Ada Lovelace"


def raw(kind: str = "expect_column_values_to_be_in_set", **result: Any) -> dict[str, Any]:
    config = {"type": kind, "kwargs": {"column": "name", "batch_id": "b"}, "severity": "critical", "meta": {}}
    return {"success": False, "expectation_config": config, "result": result, "meta": {}, "exception_info": {"raised_exception": False}}


ROWS: dict[str, Any] = {
    "element_count": 10,
    "unexpected_count": 1,
    "unexpected_percent": 10.0,
    "partial_unexpected_list": [SECRET],
    "partial_unexpected_counts": [{"value": SECRET, "count": 1}],
    "partial_unexpected_index_list": [{"id": "e1", "name": SECRET}],
    "unexpected_index_query": f"df.filter(name = '{SECRET}')",
    "unexpected_rows": [SECRET],
    "unexpected_list": [SECRET],
    "unexpected_index_list": [{"id": "e1", "name": SECRET}],
    "details": {"mismatched": SECRET},
    "a_key_that_gx_adds_some_day": SECRET,
}


def test_for_a_sensitive_column_counts_and_ids_are_kept_and_values_removed() -> None:
    found = scrubbed(raw(**ROWS), ["id"], sensitive=True)
    assert SECRET not in json.dumps(found)
    assert found["result"]["unexpected_count"] == 1
    assert found["result"]["partial_unexpected_index_list"] == [{"id": "e1"}]


def test_for_other_columns_values_are_kept_but_the_index_contains_ids_only() -> None:
    found = scrubbed(raw(**ROWS), ["id"], sensitive=False)
    assert found["result"]["partial_unexpected_list"] == [SECRET]
    assert found["result"]["partial_unexpected_index_list"] == [{"id": "e1"}]
    assert "unexpected_rows" not in found["result"]


@pytest.mark.parametrize(
    "kind", ["expect_column_max_to_be_between", "expect_column_distinct_values_to_be_in_set", "unexpected_rows_expectation"]
)
def test_an_observed_value_of_a_sensitive_column_is_removed(kind: str) -> None:
    found = scrubbed(raw(kind, observed_value=SECRET, details={"value_counts": [SECRET]}), ["id"], sensitive=True)
    assert SECRET not in json.dumps(found)


def test_a_count_of_distinct_values_is_kept() -> None:
    found = scrubbed(raw("expect_column_unique_value_count_to_be_between", observed_value=7), ["id"], sensitive=True)
    assert found["result"] == {"observed_value": 7}


@pytest.mark.parametrize("nested", [False, True])
def test_an_exception_is_one_line_and_is_hidden_if_it_may_quote_sensitive_values(nested: bool) -> None:
    information = {"raised_exception": True, "exception_message": f"cannot cast {SECRET}\nat line 1", "exception_traceback": SECRET}
    found = {**raw(), "exception_info": {"('metric',)": information} if nested else information}
    assert exception_of(found) == f"cannot cast {SECRET}"
    assert exception_of(scrubbed(found, ["id"], sensitive=False)) == f"cannot cast {SECRET}"
    hidden = scrubbed(found, ["id"], sensitive=True)
    assert exception_of(hidden) is not None
    assert SECRET not in json.dumps(hidden)


def test_an_exception_that_gx_also_reports_for_another_column_is_hidden_there_too() -> None:
    """If one query fails for two expectations, GX gives both of them the last message."""
    information = {"raised_exception": True, "exception_message": f"cannot cast {SECRET}", "exception_traceback": ""}
    own = {**information, "exception_message": "no such function"}
    plain, private = (Expected(n, "expect_x", {}, "critical", (name,), False, False, False, {}) for n, name in enumerate(("id", "name")))
    raws = [(plain, {**raw(), "exception_info": information}), (private, {**raw(), "exception_info": information})]
    found = all_scrubbed([*raws, (plain, {**raw(), "exception_info": own})], ["id"], {"name"})
    assert SECRET not in json.dumps([result for _, result in found])
    assert [exception_of(result) for _, result in found][2] == "no such function"


def row(**changed: Any) -> QualityRow:
    texts = dict.fromkeys(("run_id", "pipeline", "table", "suite", "suite_hash", "contract_hash", "target_id", "gx_version", "engine"), "x")
    scope = {"version_from": None, "version_to": 1, "run_scope": "whole", "scope": "whole"}
    scope |= {"number": 0, "success": False, "sensitive": False}
    found: dict[str, Any] = {"expectation": "expect_x", "column": "name", "arguments": "{}", "severity": "critical", "samples": "[]"}
    none = dict.fromkeys(("observed", "element_count", "unexpected_count", "unexpected_percent", "unexpected_values", "exception", "page"))
    return QualityRow(**{"schema_version": 1, "run_at": datetime.now(UTC), **texts, **scope, **found, **none, **changed})


@pytest.mark.parametrize(
    "found",
    [
        {"unexpected_count": 1, "samples": json.dumps([{"id": "\x1b[2Jgone\nx"}])},
        {"exception": "cannot read \x1b[2Jgone"},
        {"observed": json.dumps("\x9b2Jgone", ensure_ascii=False)},
    ],
)
def test_values_from_a_producer_cannot_control_the_terminal(found: dict[str, Any]) -> None:
    checked = Checked("t.events", Scope(1, None), (row(**found),), None, None, 0.0)
    (line,) = failures(checked)
    assert line.isprintable() and "2Jgone" in line


@pytest.mark.parametrize(("sensitive", "shown"), [(False, "observed nothing"), (True, "observed a value that is not shown")])
def test_a_missing_observed_value_is_distinguished_from_a_hidden_one(sensitive: bool, shown: str) -> None:
    checked = Checked("t.events", Scope(1, None), (row(sensitive=sensitive),), None, None, 0.0)
    assert list(failures(checked)) == [f"! critical: expect_x (name): {shown}, expected {{}}"]


def test_a_passed_expectation_has_no_unexpected_rows() -> None:
    assert passed({**raw(), "success": True}, 12)["result"] == {"element_count": 12, "unexpected_count": 0, "unexpected_percent": 0.0}


def test_json_columns_are_valid_json_even_with_infinite_numbers_or_nan() -> None:
    def refuse_constant(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    found = scrubbed(raw(observed_value=float("inf"), partial_unexpected_list=[float("nan"), 1.5]), ["id"], sensitive=False)
    expected = Expected(0, "expect_x", {}, "critical", ("name",), False, False, False, {})
    columns = as_columns(expected, found)
    assert json.loads(columns["observed"], parse_constant=refuse_constant) == "Infinity"
    assert json.loads(columns["unexpected_values"], parse_constant=refuse_constant) == ["NaN", 1.5]


def test_an_exception_of_the_jvm_is_reported_by_its_cause_and_not_by_py4j() -> None:
    def message(*lines: str) -> str | None:
        return exception_of({"exception_info": {"raised_exception": True, "exception_message": "\n".join(lines)}})

    py4j = "An error occurred while calling o2233.collectToPython."
    spark = ": org.apache.spark.SparkException: Job aborted due to stage failure"
    cause = ("\tat org.apache.spark.Some.method(Some.scala:1)", "Caused by: java.util.regex.PatternSyntaxException: Unclosed group", "(x")
    assert message(py4j, spark, *cause) == "java.util.regex.PatternSyntaxException: Unclosed group"
    assert message(py4j, spark) == "org.apache.spark.SparkException: Job aborted due to stage failure"
    assert message(py4j) == py4j
    assert message("", "KeyError: x", "more") == "KeyError: x"
    assert message() == "no message"


def test_the_page_describes_every_column_of_the_results_in_order() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "quality.md").read_text(encoding="utf-8")
    table = page[page.index("| column | meaning |") :].split("\n\n")[0]
    named = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert named == [field.name for field in fields(QualityRow)]
