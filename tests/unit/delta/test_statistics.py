"""The statistics of data files: exact or absent, because engines answer queries from them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given
from hypothesis import strategies as st

from ingest.delta.batch_commit import BatchCommit, Upkeep
from ingest.delta.statistics import HIGHEST, TEXT_MAX, Statistics

pytestmark = pytest.mark.unit
ABOUT = BatchCommit(Upkeep(), "shop", "orders")


def statistics(rows: pa.Table, columns: list[str]) -> str:
    """The statistics of rows that come in two parts, as compaction reads them."""
    found, half = Statistics(columns), rows.num_rows // 2
    for part in (rows.slice(0, half), rows.slice(half)):
        found.add(part)
    return found.as_json()


def bounds(column: pa.Array) -> tuple[Any, Any]:
    found = json.loads(statistics(pa.table({"c": column}), ["c"]), parse_float=Decimal)
    return found["minValues"].get("c"), found["maxValues"].get("c")


@pytest.mark.parametrize(
    ("column", "least", "greatest"),
    [
        (pa.array([3, None, -5], pa.int64()), -5, 3),
        (pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(38, 2)), Decimal("-2.25"), Decimal("1.50")),
        (pa.array([date(1500, 3, 1), date(9999, 12, 31)]), "1500-03-01", "9999-12-31"),
        (pa.array([datetime(1, 1, 1, microsecond=1, tzinfo=UTC)], pa.timestamp("us", "UTC")), *["0001-01-01T00:00:00.000001Z"] * 2),
        (pa.array([datetime(2026, 1, 2, 3, 4, 5, 6)], pa.timestamp("us")), *["2026-01-02T03:04:05.000006"] * 2),
        (pa.array([0.0, -0.0, 1.5]), Decimal("-0.0"), Decimal("1.5")),
        (pa.array([1.0, float("nan")]), None, None),
        (pa.array([1.0, float("inf")]), None, None),
        (pa.array([True, False]), None, None),
        (pa.array([b"a", b"b"]), None, None),
        (pa.array([None, None], pa.string()), None, None),
        (pa.array(["ä" * TEXT_MAX]), *["ä" * TEXT_MAX] * 2),
        (pa.array(["a" * 33]), "a" * TEXT_MAX, "a" * TEXT_MAX + HIGHEST),
        (pa.array(["a" * TEXT_MAX + HIGHEST * 2]), "a" * TEXT_MAX, None),
    ],
)
def test_bounds_by_type(column: pa.Array, least: Any, greatest: Any) -> None:
    assert bounds(column) == (least, greatest)


LONG = st.text(f"aä{HIGHEST}", min_size=TEXT_MAX - 1, max_size=TEXT_MAX + 2)


@given(st.lists(st.one_of(st.text(max_size=40), LONG), min_size=1))
def test_no_text_is_outside_its_bounds(texts: list[str]) -> None:
    texts = [text.encode(errors="ignore").decode() for text in texts]  # halves of characters have no UTF-8
    least, greatest = bounds(pa.array(texts))
    assert all(least.encode() <= text.encode() for text in texts)
    assert greatest is None or all(text.encode() <= greatest.encode() for text in texts)


def test_rows_and_nulls_are_counted() -> None:
    table = pa.table({"a": [1, None, 3], "b": ["x", None, None], "c": [1, 2, 3]})
    found = json.loads(statistics(table, ["a", "b"]))
    assert (found["numRecords"], found["nullCount"]) == (3, {"a": 1, "b": 2})


def test_deltalake_prunes_by_them_without_losing_a_row(tmp_path: Path) -> None:
    """An engine that shares no code with this writer answers a query whose bounds meet the cut maximum of a text."""
    from ingest.delta.data_file import write_file
    from ingest.delta.live_table import LiveTable
    from ingest.delta.put import Operation, put
    from ingest.runtime.files import LocalFiles

    rows = pa.table({"t": ["a" * 40, "a" * 32 + "z", "b"]})
    table = LiveTable(LocalFiles(), str(tmp_path))
    schema = {"type": "struct", "fields": [{"name": "t", "type": "string", "nullable": True, "metadata": {}}]}
    metadata: dict[str, Any] = {"id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema)}
    metadata |= {"partitionColumns": [], "configuration": {}}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**metadata, "configuration": {}}},
    ]
    files = [write_file(str(tmp_path), rows.slice(at, 1), ["t"]) for at in range(3)]
    put(LocalFiles(), table, ABOUT, Operation("WRITE", {}, {}), [*actions, *(each.addition() for each in files)])
    found = QueryBuilder().register("r", DeltaTable(str(tmp_path)))
    for text in rows["t"].to_pylist():
        assert pa.table(found.execute(f"SELECT count(*) AS n FROM r WHERE t = '{text}'").read_all())["n"].to_pylist() == [1]
