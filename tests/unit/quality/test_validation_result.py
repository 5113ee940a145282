"""Of a sensitive column nothing is left but numbers of rows."""

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


def test_numbers_and_ids_stay_values_go() -> None:
    found = scrubbed(raw(**ROWS), ["id"], sensitive=True)
    assert SECRET not in json.dumps(found)
    assert found["result"]["unexpected_count"] == 1
    assert found["result"]["partial_unexpected_index_list"] == [{"id": "e1"}]


def test_a_plain_columns_values_stay_but_the_index_holds_ids_only() -> None:
    found = scrubbed(raw(**ROWS), ["id"], sensitive=False)
    assert found["result"]["partial_unexpected_list"] == [SECRET]
    assert found["result"]["partial_unexpected_index_list"] == [{"id": "e1"}]
    assert "unexpected_rows" not in found["result"]


@pytest.mark.parametrize(
    "kind", ["expect_column_max_to_be_between", "expect_column_distinct_values_to_be_in_set", "unexpected_rows_expectation"]
)
def test_an_observed_value_of_a_sensitive_column_goes(kind: str) -> None:
    found = scrubbed(raw(kind, observed_value=SECRET, details={"value_counts": [SECRET]}), ["id"], sensitive=True)
    assert SECRET not in json.dumps(found)


def test_a_count_of_distinct_values_stays() -> None:
    found = scrubbed(raw("expect_column_unique_value_count_to_be_between", observed_value=7), ["id"], sensitive=True)
    assert found["result"] == {"observed_value": 7}


@pytest.mark.parametrize("nested", [False, True])
def test_an_exception_is_told_in_one_line_and_hidden_where_it_may_quote_values(nested: bool) -> None:
    information = {"raised_exception": True, "exception_message": f"cannot cast {SECRET}\nat line 1", "exception_traceback": SECRET}
    found = {**raw(), "exception_info": {"('metric',)": information} if nested else information}
    assert exception_of(found) == f"cannot cast {SECRET}"
    assert exception_of(scrubbed(found, ["id"], sensitive=False)) == f"cannot cast {SECRET}"
    hidden = scrubbed(found, ["id"], sensitive=True)
    assert exception_of(hidden) is not None
    assert SECRET not in json.dumps(hidden)


def test_an_exception_that_gx_tells_of_a_plain_column_too_is_hidden_there_as_well() -> None:
    """One query fails for two expectations, and GX gives both the message of the last."""
    information = {"raised_exception": True, "exception_message": f"cannot cast {SECRET}", "exception_traceback": ""}
    own = {**information, "exception_message": "no such function"}
    plain, private = (Expected(n, "expect_x", {}, "critical", (name,), False, False, False, {}) for n, name in enumerate(("id", "name")))
    raws = [(plain, {**raw(), "exception_info": information}), (private, {**raw(), "exception_info": information})]
    found = all_scrubbed([*raws, (plain, {**raw(), "exception_info": own})], ["id"], {"name"})
    assert SECRET not in json.dumps([result for _, result in found])
    assert [exception_of(result) for _, result in found][2] == "no such function"


def row(**changed: Any) -> QualityRow:
    texts = dict.fromkeys(("run_id", "pipeline", "table", "suite", "suite_hash", "contract_hash", "target_id", "gx_version"), "x")
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
def test_what_a_producer_sent_steers_no_terminal(found: dict[str, Any]) -> None:
    checked = Checked("t.events", Scope(1, None), (row(**found),), None, None, 0.0)
    (line,) = failures(checked)
    assert line.isprintable() and "2Jgone" in line


@pytest.mark.parametrize(("sensitive", "said"), [(False, "observed nothing"), (True, "observed a value that is not shown")])
def test_what_was_not_observed_is_told_from_what_is_not_shown(sensitive: bool, said: str) -> None:
    checked = Checked("t.events", Scope(1, None), (row(sensitive=sensitive),), None, None, 0.0)
    assert list(failures(checked)) == [f"! critical: expect_x (name): {said}, expected {{}}"]


def test_yes_means_no_unexpected_row() -> None:
    assert passed({**raw(), "success": True}, 12)["result"] == {"element_count": 12, "unexpected_count": 0, "unexpected_percent": 0.0}


def test_json_columns_are_json_also_where_a_number_is_infinite_or_none() -> None:
    def no_number(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    found = scrubbed(raw(observed_value=float("inf"), partial_unexpected_list=[float("nan"), 1.5]), ["id"], sensitive=False)
    expected = Expected(0, "expect_x", {}, "critical", ("name",), False, False, False, {})
    columns = as_columns(expected, found)
    assert json.loads(columns["observed"], parse_constant=no_number) == "Infinity"
    assert json.loads(columns["unexpected_values"], parse_constant=no_number) == ["NaN", 1.5]


def test_an_exception_of_the_jvm_is_told_by_its_cause_and_not_by_py4j() -> None:
    def told(*lines: str) -> str | None:
        return exception_of({"exception_info": {"raised_exception": True, "exception_message": "\n".join(lines)}})

    py4j = "An error occurred while calling o2233.collectToPython."
    spark = ": org.apache.spark.SparkException: Job aborted due to stage failure"
    cause = ("\tat org.apache.spark.Some.method(Some.scala:1)", "Caused by: java.util.regex.PatternSyntaxException: Unclosed group", "(x")
    assert told(py4j, spark, *cause) == "java.util.regex.PatternSyntaxException: Unclosed group"
    assert told(py4j, spark) == "org.apache.spark.SparkException: Job aborted due to stage failure"
    assert told(py4j) == py4j
    assert told("", "KeyError: x", "more") == "KeyError: x"
    assert told() == "no message"


def test_the_page_describes_every_column_of_the_results_in_their_order() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "quality.md").read_text(encoding="utf-8")
    table = page[page.index("| column | meaning |") :].split("\n\n")[0]
    named = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert named == [field.name for field in fields(QualityRow)]
