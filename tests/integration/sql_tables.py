"""The tables that the tests of `ingest sql` query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ingest.contract.definition import Contract
from ingest.quality.validation import check
from ingest.runtime.files import LocalFiles
from ingest.sql.catalog import Catalog, catalog
from tests.integration.desk import Desk
from tests.integration.records import contract
from tests.integration.suites import COUNT, UNIQUE, suite_of

COLUMNS = {
    "at": "TIMESTAMP",
    "Amount": "DECIMAL(18,2)",
    "share": "DOUBLE",
    "day": "DATE",
    "local": "TIMESTAMP_NTZ",
    "tags": "ARRAY<STRING>",
    "labels": "MAP<STRING, STRING>",
    "place": "STRUCT<city: STRING, since: TIMESTAMP>",
    "ok": "BOOLEAN",
}
AMOUNT = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "Amount"}, "severity": "warning"}
TOO_MANY = {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 23}}
Made = tuple[Desk, Catalog]


def event(id: str, at: str, **more: Any) -> str:
    return json.dumps({"id": id, "at": at, **more})


def rules(event_time: str = "at") -> Contract:
    return contract(COLUMNS, event_time=event_time)


def tables(spark: SparkSession, folder: Path) -> Made:
    """Four batches in two partitions (rows, duplicates, three kinds of quarantined records, gaps, an empty batch), two validation runs."""
    desk = Desk(spark, rules(), folder, partitions=2, direct=True)
    whole = {
        "Amount": 12.5,
        "share": 0.25,
        "day": "2025-01-02",
        "local": "2025-01-02T03:04:05.123456",
        "tags": ["a", "b"],
        "labels": {"k": "v", "é": "🌻"},
        "place": {"city": "Łódź", "since": "2024-12-31T23:00:00Z"},
        "ok": True,
    }
    first = [event(f"a{n}", f"2025-01-02T0{n % 3}:00:0{n % 10}.{n:06d}Z", **whole) for n in range(20)]
    desk.process(desk.frame_of([(n % 2, value, None) for n, value in enumerate(first)]))
    desk.process(
        desk.frame_of([(n % 2, value, None) for n, value in enumerate([*first[:5], "no JSON", "{", None, '{"id":"x","at":"5"}'])]), gap=7
    )
    desk.process(
        desk.frame_of([(1, event("late", "2024-12-24T00:00:00Z"), None), (1, '{"id":"no time"}', None), (1, "again no JSON", b"k")])
    )
    desk.process(desk.frame_of([]), gap=2)
    desk.table.epoch.finish()
    check(lambda: spark, suite_of(desk, [{**COUNT, "kwargs": {"value": 1}}]), desk.places)
    check(lambda: spark, suite_of(desk, [UNIQUE, AMOUNT, TOO_MANY]), desk.places)
    return desk, catalog([desk.contract], desk.places.lake, LocalFiles())
