"""DuckDB answers as Spark does: every type of expectation on the list, on rows on which engines differ, and on every shape of a table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import write_deltalake

from ingest.delta.direct_writer import DirectWriter
from ingest.quality.engine_choice import EQUAL
from ingest.quality.validation import Checked, check
from ingest.quality.validation_result import QualityRow
from tests.integration.desk import Desk
from tests.integration.nasty_rows import cases, nasty_rows, sql_types
from tests.integration.suites import suite_of

pytestmark = pytest.mark.integration

MAKES_NO_DIFFERENCE = 1e-9
"""Sums of floating point numbers depend on the order of the rows, and Spark rounds the mean of a DECIMAL."""


@pytest.fixture
def nasty(desk: Callable[..., Desk]) -> Callable[..., Desk]:
    """Makes a table with these rows, in a file for each batch."""

    def make(count: int, **more: Any) -> Desk:
        table = desk(sql_types(), **more)
        DirectWriter().create_tables(table.contract, table.places)
        rows = nasty_rows(count)
        for start in range(0, count, count // 3 + 1):
            write_deltalake(table.places.target, rows.slice(start, count // 3 + 1), mode="append")
        return table

    return make


def both(table: Desk, expectations: list[dict[str, Any]]) -> tuple[Checked, Checked]:
    suite = suite_of(table, expectations)
    by_duckdb = check(lambda: table.session, suite, table.places, everything=True, say=pytest.fail)
    return by_duckdb, check(lambda: table.session, suite, table.places, everything=True, with_spark=True)


def differences(one: QualityRow, other: QualityRow) -> list[str]:
    """The columns of the results that differ. Of more rows than are sampled, the engines may sample others."""
    few = one.unexpected_count is not None and one.unexpected_count <= 10
    names = ["success", "element_count", "unexpected_count", "exception", *(["unexpected_values", "samples"] if few else [])]
    found = [name for name in names if in_order(getattr(one, name)) != in_order(getattr(other, name))]
    if not close(json.loads(one.observed or "null"), json.loads(other.observed or "null")):
        found.append("observed")
    return [f"{name}: {getattr(one, name)} in DuckDB, {getattr(other, name)} in Spark" for name in found]


def in_order(value: Any) -> Any:
    return sorted(map(str, json.loads(value))) if isinstance(value, str) and value.startswith("[") else value


def close(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or math.isclose(one, other, rel_tol=MAKES_NO_DIFFERENCE)
    return bool(one == other)


def compared(table: Desk, expectations: list[dict[str, Any]]) -> int:
    """How many of the expectations passed, after each had the same result in both engines."""
    one, other = both(table, expectations)
    rows = zip(one.rows, other.rows, strict=True)
    wrong = [f"{a.number} {a.expectation} {a.arguments}: {found}" for a, b in rows if (found := differences(a, b))]
    assert not wrong, "\n".join(wrong)
    return sum(row.success for row in one.rows)


def test_every_type_on_the_list_has_the_same_result_in_both_engines(nasty: Callable[..., Desk]) -> None:
    hardest = {each["type"]: each for each in cases()}
    assert hardest.keys() == EQUAL.keys(), "a type on the list is not compared"
    assert 0 < compared(nasty(120), [*hardest.values()]) < len(hardest), "some expectations pass, and some fail"


@pytest.mark.slow
@pytest.mark.parametrize(("count", "more"), [(120, {}), (3_000, {}), (120, {"layout": {"partition_by": ["p", "i", "day"]}})])
def test_every_case_on_the_list_has_the_same_result_in_both_engines(nasty: Callable[..., Desk], count: int, more: dict[str, Any]) -> None:
    compared(nasty(count, **more), [*cases()])
