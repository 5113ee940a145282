"""A first suite from the data of a table: nulls, ranges, small value sets, unique ids; for a person to prune."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract.columns import event_id_columns, target_fields
from ingest.contract.definition import Contract
from ingest.delta.delta_log import DeltaLog
from ingest.delta.log_errors import table_missing
from ingest.quality import gx
from ingest.quality.suite import Suite
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import files_of
from ingest.runtime.places import Places

# A column with more values contains data rather than a code list.
VALUES_MAX = 20
# A value set found in a handful of rows is chance.
ROWS_A_VALUE = 10
FRESH_WITHIN_H = 26


def refuse_existing(path: Path) -> None:
    """Raises InvalidInput SUITE_EXISTS if a suite would be overwritten."""
    if path.exists():
        raise InvalidInput(
            "SUITE_EXISTS",
            f"{path} exists.",
            expected="no suite yet: a suite that a person may have pruned is not overwritten.",
            remedy="--stdout prints a new one to compare with; --force replaces it.",
        )


def suggest_suite(session: SparkSession, contract: Contract, places: Places) -> str:
    """The text of a suite in GX's own JSON. Raises InvalidInput TABLE_MISSING, TABLE_EMPTY.

    One aggregation over the table finds nulls, least and greatest values, and approximate numbers of distinct values. A second one
    collects the values of the columns that have few. Of sensitive columns it reads types and nulls, but no values.
    """
    if not DeltaLog(files_of(places.lake, session), places.target).exists():
        raise table_missing(contract.name, places.target, "a table with rows to profile.")
    hidden = Suite(contract, "", "", ()).sensitive
    frame = session.read.format("delta").load(places.target)
    there = {name.lower() for name in frame.columns}  # `ingest apply` adds columns that are new in the contract
    fields = [field for field in target_fields(contract) if not field.name.startswith("_") and field.name.lower() in there]
    open_fields = [field for field in fields if field.name not in hidden]
    wanted = [F.count("*").alias("rows")]
    for field in fields:
        column = F.col(f"`{field.name}`")
        wanted.append(F.count(column).alias(f"held {field.name}"))
        if field in open_fields and isinstance(field.dataType, T.NumericType):
            wanted += [F.min(column).alias(f"least {field.name}"), F.max(column).alias(f"greatest {field.name}")]
        if field in open_fields and isinstance(field.dataType, T.StringType):
            wanted.append(F.approx_count_distinct(column).alias(f"values {field.name}"))
    profile = frame.agg(*wanted).first()
    assert profile is not None
    rows = profile["rows"]
    if not rows:
        raise InvalidInput(
            "TABLE_EMPTY", f"{contract.name} has no rows.", expected="rows to profile.", remedy=f"run `ingest run {contract.name}` first."
        )
    few = [f.name for f in open_fields if isinstance(f.dataType, T.StringType) and 0 < profile[f"values {f.name}"] <= VALUES_MAX]
    sets = frame.agg(*(F.array_sort(F.collect_set(f"`{name}`")).alias(name) for name in few)).first() if few else None
    configs = [*_of_the_table(contract), *(config for f in fields for config in _of(f, profile, sets, few, hidden=f.name in hidden))]
    return json.dumps(gx.saved({"name": contract.name, "expectations": configs}), indent=2, ensure_ascii=False) + "\n"


def _of_the_table(contract: Contract) -> Iterator[dict[str, Any]]:
    ids = event_id_columns(contract)
    if len(ids) == 1:
        yield _config("expect_column_values_to_be_unique", "critical", column=ids[0])
    else:
        yield _config("expect_compound_columns_to_be_unique", "critical", column_list=list(ids))
    yield _config("expect_table_row_count_to_equal", "critical", value={"$PARAMETER": "ledger_rows"})
    fresh = {"$PARAMETER": f"now() - timedelta(hours={FRESH_WITHIN_H})"}
    yield {**_config("expect_column_max_to_be_between", "warning", column="_ingested_at", min_value=fresh), "meta": {"scope": "whole"}}


def _of(field: T.StructField, profile: Row, sets: Row | None, few: list[str], *, hidden: bool) -> Iterator[dict[str, Any]]:
    name, rows, held = field.name, profile["rows"], profile[f"held {field.name}"]
    if held == rows:
        yield _config("expect_column_values_to_not_be_null", "warning" if field.nullable else "critical", column=name)
    elif held:
        # Half as many again may be missing tomorrow.
        mostly = math.floor(100 * max(0.0, 1 - 1.5 * (rows - held) / rows)) / 100
        if mostly > 0:
            yield _config("expect_column_values_to_not_be_null", "info", column=name, mostly=mostly)
    if hidden or not held:
        return
    if isinstance(field.dataType, T.NumericType):
        least, greatest = float(profile[f"least {name}"]), float(profile[f"greatest {name}"])
        if math.isfinite(least) and math.isfinite(greatest):
            bounds = {"min_value": 0.0 - _wide(-least), "max_value": _wide(greatest)}
            if all(map(math.isfinite, bounds.values())):  # above 1e308 there is no wider DOUBLE
                yield _config("expect_column_values_to_be_between", "warning", column=name, **bounds)
    if sets is not None and name in few and len(sets[name]) <= VALUES_MAX and held >= ROWS_A_VALUE * len(sets[name]):
        yield _config("expect_column_values_to_be_in_set", "warning", column=name, value_set=list(sets[name]))


def _wide(value: float) -> float:
    """The next power of ten above a positive bound, 0 for any other: the range found so far is not the allowed range."""
    if value <= 0:
        return 0.0
    exponent = math.ceil(math.log10(value))  # rounding: just above a power of ten it may be the power's own logarithm
    return next((bound for power in (exponent, exponent + 1) if (bound := float(f"1e{power}")) >= value), math.inf)


def _config(kind: str, severity: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": kwargs, "severity": severity}
