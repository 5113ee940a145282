"""Expectations on the desk's table, in the JSON of Great Expectations (GX), and the suite file that contains them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ingest.contract.definition import Contract
from ingest.quality.suite import Suite, load_suites
from tests.integration.desk import Desk

UNIQUE: dict[str, Any] = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}
COUNT: dict[str, Any] = {"type": "expect_table_row_count_to_equal", "kwargs": {"value": {"$PARAMETER": "ledger_rows"}}}
STATUS: dict[str, Any] = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "status", "value_set": ["placed", "paid"]}}
AMOUNT: dict[str, Any] = {
    "type": "expect_column_values_to_be_between",
    "kwargs": {"column": "amount", "min_value": 0},
    "severity": "warning",
}
FRESH: dict[str, Any] = {
    "type": "expect_column_max_to_be_between",
    "kwargs": {"column": "_ingested_at", "min_value": "2020-01-01T00:00:00"},
    "meta": {"scope": "whole"},
}
COLUMNS = {"status": "STRING", "amount": "INT", "name": "STRING"}


def suite_of(desk: Desk, expectations: Sequence[Mapping[str, Any]], **changed: Any) -> Suite:
    """The suite of the desk's contract, loaded from a file."""
    folder = Path(desk.places.lake).parent
    (folder / "suite.json").write_text(json.dumps({"name": "t", "expectations": [dict(each) for each in expectations]}))
    contract = Contract.model_validate({**json.loads(desk.contract.to_json()), "suite": "suite.json", **changed})
    return load_suites(folder, [contract])[0]
