"""The outcome of an expectation: GX's result without values that must not be shown, and as a row of the quality table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ingest.quality.suite import Expected
from ingest.runtime.printable import printable

SCHEMA_VERSION = 1
# The parts that are kept of a result on a sensitive column: numbers of rows, never a value. An allow list, because GX adds keys.
NUMBERS = (
    "element_count",
    "unexpected_count",
    "unexpected_percent",
    "unexpected_percent_total",
    "unexpected_percent_nonmissing",
    "missing_count",
    "missing_percent",
)
# Types whose observed value is a number of rows or of distinct values, a share of them, or the name of a type.
COUNTING = (
    "expect_column_unique_value_count_to_be_between",
    "expect_column_proportion_of_unique_values_to_be_between",
    "expect_column_proportion_of_non_null_values_to_be_between",
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_be_in_type_list",
    "expect_table_row_count_to_equal",
    "expect_table_row_count_to_be_between",
)
HIDDEN = "hidden: it may quote values of a sensitive column"
# Always a text: GX renders no page at all for a result whose traceback is None.
NO_TRACEBACK = "left out: it may quote values"


@dataclass(frozen=True)
class QualityRow:
    """One expectation in one validation run (columns of the quality table, in order).

    `run_scope` and `scope` are `whole` or `new`: the rows that the run and this expectation covered. New rows were added after
    `version_from` (NULL for the whole table) up to `version_to`, versions of the target with id `target_id`. `column` joins several names
    by commas. `arguments`, `observed`, `unexpected_values` and `samples` are JSON. `samples` lists the event ids of some unexpected rows
    (positions if the id is sensitive). `unexpected_percent` is of the rows that have a value, 0 to 100. `exception` says why an
    expectation could not be evaluated: it counts as failed, and the next run does not start from this one. `engine`: `duckdb` or `spark`.
    """

    schema_version: int
    run_id: str
    run_at: datetime
    pipeline: str
    table: str
    suite: str
    suite_hash: str
    contract_hash: str
    target_id: str
    version_from: int | None
    version_to: int
    run_scope: str
    scope: str
    number: int
    expectation: str
    column: str | None
    arguments: str
    severity: str
    success: bool
    sensitive: bool
    observed: str | None
    element_count: int | None
    unexpected_count: int | None
    unexpected_percent: float | None
    unexpected_values: str | None
    samples: str
    exception: str | None
    page: str | None
    gx_version: str
    engine: str


def passed(raw: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """GX's result of an expectation that judges rows, allows no exception and has passed, with the figures that this implies.

    GX was asked only for yes or no, because its figures cost one job per expectation. Yes means that no row was unexpected.
    """
    return {**raw, "result": {"element_count": rows, "unexpected_count": 0, "unexpected_percent": 0.0}}


def all_scrubbed(
    raws: Sequence[tuple[Expected, Mapping[str, Any]]], ids: Sequence[str], sensitive: Iterable[str]
) -> list[tuple[Expected, dict[str, Any]]]:
    """The results of one run, scrubbed; `sensitive` are columns.

    GX gives all expectations that it could not evaluate in one query the message of the last one. So the message of a sensitive
    expectation is hidden in all of them.
    """
    names = frozenset(sensitive)
    hidden = {exception_of(raw) for expected, raw in raws if expected.touches(names)}
    return [(expected, scrubbed(raw, ids, sensitive=expected.touches(names), hidden=exception_of(raw) in hidden)) for expected, raw in raws]


def scrubbed(raw: Mapping[str, Any], ids: Sequence[str], *, sensitive: bool, hidden: bool = False) -> dict[str, Any]:
    """GX's result without tracebacks, and with only the columns `ids` in index lists; of a sensitive expectation only numbers of rows.

    `hidden`: its exception may quote values that must not be shown, like the exception of a sensitive expectation.
    """
    found: dict[str, Any] = dict(raw.get("result") or {})
    index = [{name: each[name] for name in ids if name in each} for each in found.pop("partial_unexpected_index_list", None) or ()]
    for key in ("unexpected_index_query", "unexpected_index_list", "unexpected_list", "unexpected_rows"):
        found.pop(key, None)
    config = raw["expectation_config"]
    if sensitive:
        observed = {"observed_value": found["observed_value"]} if config["type"] in COUNTING and "observed_value" in found else {}
        found = {**{key: found[key] for key in NUMBERS if key in found}, **observed}
    found.pop("unexpected_index_column_names", None)
    if index:
        found |= {"partial_unexpected_index_list": index, "unexpected_index_column_names": list(ids)}
    message = exception_of(raw)
    shown = HIDDEN if message and (sensitive or hidden) else message
    information = {"raised_exception": message is not None, "exception_message": shown, "exception_traceback": NO_TRACEBACK}
    return {
        "success": bool(raw["success"]),
        "expectation_config": config,
        "result": found,
        "meta": raw.get("meta") or {},
        "exception_info": information,
    }


def exception_of(raw: Mapping[str, Any]) -> str | None:
    """The line that says why GX could not evaluate the expectation, None if it could. GX nests it by metric in some results."""
    information = raw.get("exception_info") or {}
    several = [information, *(each for each in information.values() if isinstance(each, dict))]
    for each in several:
        if each.get("raised_exception"):
            return _cause(str(each.get("exception_message") or ""))[:500]
    return None


def _cause(message: str) -> str:
    """The first line. The first line of a JVM error names only a method of Py4J; there it is the innermost cause."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no message"]
    if lines[0].startswith("An error occurred while calling") and lines[1:]:
        causes = [line for line in lines if line.startswith("Caused by: ")]
        return (causes[-1].removeprefix("Caused by: ") if causes else lines[1]).lstrip(": ")
    return lines[0]


def as_columns(expected: Expected, result: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a quality row that a scrubbed result fills."""
    found = result["result"]
    values = found.get("partial_unexpected_list")
    kwargs = {key: value for key, value in result["expectation_config"]["kwargs"].items() if key != "batch_id"}
    return {
        "number": expected.number,
        "expectation": expected.type,
        "column": ", ".join(expected.columns) or None,
        "arguments": _json(kwargs),
        "severity": expected.severity,
        "success": result["success"],
        "observed": _json(found["observed_value"]) if found.get("observed_value") is not None else None,
        "element_count": found.get("element_count"),
        "unexpected_count": found.get("unexpected_count"),
        "unexpected_percent": found.get("unexpected_percent"),
        "unexpected_values": _json(values) if values else None,
        "samples": _json(found.get("partial_unexpected_index_list") or []),
        "exception": exception_of(result),
    }


def sample_ids(row: QualityRow) -> list[str]:
    """The samples as printed: the id itself, or its columns joined by `/`."""
    return [printable("/".join(str(value) for value in each.values())) for each in json.loads(row.samples)]


def _json(value: Any) -> str:
    return json.dumps(_finite(value), ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    """The value with a text for each number that JSON cannot express: a divergence may be infinite, a DOUBLE may be NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
