"""Validation runs on real Delta tables: what fails is named, what is new is covered, what is sensitive is nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from ingest.contract import Contract
from ingest.places import pages_folder
from ingest.quality.check import Checked, check
from ingest.quality.result import sample_ids
from ingest.quality.suite import Suite, load_suites
from tests.integration.desk import Desk
from tests.integration.lane import order

pytestmark = pytest.mark.integration

UNIQUE = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}
COUNT = {"type": "expect_table_row_count_to_equal", "kwargs": {"value": {"$PARAMETER": "ledger_rows"}}}
STATUS = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "status", "value_set": ["placed", "paid"]}}
AMOUNT = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "min_value": 0}, "severity": "warning"}
FRESH = {
    "type": "expect_column_max_to_be_between",
    "kwargs": {"column": "_ingested_at", "min_value": "2020-01-01T00:00:00"},
    "meta": {"scope": "whole"},
}
COLUMNS = {"status": "STRING", "amount": "INT", "name": "STRING"}


def suite_of(desk: Desk, expectations: Sequence[Mapping[str, Any]], **changed: Any) -> Suite:
    """The suite of the desk's contract, from a file."""
    folder = Path(desk.places.lake).parent
    (folder / "suite.json").write_text(json.dumps({"name": "t", "expectations": [dict(each) for each in expectations]}))
    contract = Contract.model_validate({**json.loads(desk.contract.to_json()), "suite": "suite.json", **changed})
    return load_suites(folder, [contract])[0]


def checked(desk: Desk, suite: Suite, **more: bool) -> Checked:
    return check(desk.session, suite, desk.places, **more)


def quality(desk: Desk) -> list[Row]:
    return desk.session.read.format("delta").load(desk.places.quality).orderBy("run_at", "number").collect()


def by_type(found: Checked) -> dict[str, Any]:
    return {row.expectation: row for row in found.rows}


def test_a_good_table_passes_and_the_results_are_there_for_sql(desk: Callable[..., Desk]) -> None:
    table = desk(COLUMNS)
    table.batch(*(order(f"a{n}", status="paid", amount=n) for n in range(20)))
    found = checked(table, suite_of(table, [UNIQUE, COUNT, STATUS, AMOUNT, FRESH]))
    assert [row.success for row in found.rows] == [True] * 5, found.rows
    assert found.scope.name == "whole"
    assert not found.failed
    rows = quality(table)
    assert [(row["expectation"], row["success"], row["scope"]) for row in rows][0] == (UNIQUE["type"], True, "whole")
    assert {row["version_to"] for row in rows} == {found.scope.version}
    assert [row["unexpected_count"] for row in rows] == [0, None, 0, 0, None]
    assert [row["element_count"] for row in rows] == [20, None, 20, 20, None]
    assert found.page is not None and found.page.is_file()
    assert (pages_folder(table.places) / "index.html").is_file()
