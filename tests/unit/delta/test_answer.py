"""Answers of `ingest sql`: CSV, JSON and table output, SQL type names, and the libraries that a query loads."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.delta.answer import Answer, plain, sql_type
from ingest.runtime.errors import InvalidInput
from ingest.sql.catalog import Catalog
from ingest.sql.engine import without_spark
from ingest.sql.formats import write_csv, write_json, write_lines, write_table

PROJECT = Path(__file__).parents[3]


def answer(columns: dict[str, pa.Array] | None = None) -> Answer:
    given = columns or {
        "name": pa.array(["a,b", None, 'say "x"\n\x1b[31m']),
        "Sum": pa.array([Decimal("1.50"), None, Decimal("-100.00")], pa.decimal128(18, 2)),
        "at": pa.array(
            [datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), None, datetime(2025, 1, 2, 3, 4, 5, 600000, tzinfo=UTC)], pa.timestamp("us", "UTC")
        ),
        "raw": pa.array([b"\x00\xff", None, b""]),
        "tags": pa.array([["é"], None, []], pa.list_(pa.string())),
        "ok": pa.array([True, None, False]),
        "wait": pa.array([timedelta(minutes=1, microseconds=500000), None, timedelta(seconds=-2)], pa.duration("us")),
    }
    batch = pa.RecordBatch.from_arrays(list(given.values()), names=list(given))
    return Answer(
        pa.RecordBatchReader.from_batches(batch.schema, [batch]), lambda error: InvalidInput("X", str(error), expected="", remedy="")
    )


def test_csv_is_quoted_as_in_rfc_4180() -> None:
    out = io.StringIO(newline="")
    write_csv(answer(), out)
    assert out.getvalue().startswith(
        'name,Sum,at,raw,tags,ok,wait\r\n"a,b",1.50,2025-01-02T03:04:05Z,AP8=,"[""é""]",true,60.5\r\n,,,,,,\r\n'
    )
    assert list(csv.reader(io.StringIO(out.getvalue(), newline="")))[3][0] == 'say "x"\n\x1b[31m'


def test_for_a_spreadsheet_no_text_is_a_formula_and_numbers_stay_numbers() -> None:
    texts = ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "＝1", "a=1", None]
    columns = {
        "=name": pa.array(texts),
        "raw": pa.array([b"\xfb", *[None] * 8]),  # base64 begins with a plus
        "sum": pa.array([Decimal("-1.50"), *[None] * 8], pa.decimal128(18, 2)),
        "n": pa.array([-7, *[None] * 8]),
        "wait": pa.array([timedelta(seconds=-2), *[None] * 8], pa.duration("us")),
    }
    read = []
    for no_formulas in (False, True):
        out = io.StringIO(newline="")
        write_csv(answer(columns), out, no_formulas=no_formulas)
        read.append(list(csv.reader(io.StringIO(out.getvalue(), newline=""))))
    assert [row[0] for row in read[0]] == ["=name", *texts[:-1], ""], "by default a program reads what the table has"
    assert [row[0] for row in read[1]] == ["'=name", *(f"'{text}" for text in texts[:7] if text), "a=1", ""]
    assert read[1][1][1:] == ["'+w==", "-1.50", "-7", "-2"] and read[0][1][1:] == ["+w==", "-1.50", "-7", "-2"]


def test_json_is_one_document_with_columns_and_rows() -> None:
    out = io.StringIO()
    write_json(answer(), out, absent=[])
    document = json.loads(out.getvalue())
    assert document["schema"] == "oncelake/sql/1" and document["ok"] is True
    assert document["columns"][1] == {"name": "Sum", "type": "DECIMAL(18,2)"}
    assert document["rows"][0] == ["a,b", "1.50", "2025-01-02T03:04:05Z", "AP8=", ["é"], True, "60.5"]
    assert document["rows"][1] == [None] * 7
    assert document["rows"][2][2] == "2025-01-02T03:04:05.600000Z"
    out = io.StringIO()
    write_json(answer(), out, limit=0)
    assert json.loads(out.getvalue())["rows"] == []


def test_a_table_is_aligned_with_numbers_right_and_cannot_control_the_terminal() -> None:
    out = io.StringIO()
    write_table(answer({"id": pa.array(["a", None]), "n": pa.array([1, 1000])}), out, 80)
    assert [line.rstrip() for line in out.getvalue().splitlines()] == ["id        n", "───────────", "a         1", "NULL   1000", "2 rows"]
    out = io.StringIO()
    write_table(answer(), out, 40, limit=2)
    assert "— row 1 —" in out.getvalue() and "  wait  0:01:00.5\n" in out.getvalue()
    assert out.getvalue().endswith("2 rows, and there are more: --limit shows them\n")
    out = io.StringIO()
    write_table(answer({"name": pa.array(["\x1b[31m[red]" + "x" * 100])}), out, 80)
    assert "\x1b" not in out.getvalue() and "[red]" in out.getvalue() and "x…" in out.getvalue()
    out = io.StringIO()
    write_table(answer({"id": pa.array(["i" * 36]), "page": pa.array(["p" * 50]), "n": pa.array([123456])}), out, 60)
    cut = [line.rstrip() for line in out.getvalue().splitlines()]
    assert cut[2] == f"{'i' * 23}…   {'p' * 23}…   123456" and max(map(len, cut)) <= 60, "text is cut so that the table fits"
    out = io.StringIO()
    write_lines(answer({"plan": pa.array(["a\n  b"])}), out)
    assert out.getvalue() == "a\n  b\n"


def test_values_without_a_json_type_become_text() -> None:
    values = [
        float("nan"),
        float("-inf"),
        0.5,
        Decimal("1E+2"),
        date(2025, 1, 2),
        datetime(2025, 1, 2),
        timedelta(days=1, microseconds=1),
        {"k": b"x"},
    ]
    assert plain(values) == ["NaN", "-Infinity", 0.5, "100", "2025-01-02", "2025-01-02T00:00:00", "86400.000001", {"k": "eA=="}]


def test_two_columns_of_one_name_and_nanosecond_timestamps_are_supported() -> None:
    stamps = pa.array([1_735_787_045_678_901_234], pa.timestamp("ns", "UTC"))
    batch = pa.RecordBatch.from_arrays([stamps, pa.array(["x"])], names=["a", "a"])
    found = Answer(
        pa.RecordBatchReader.from_batches(batch.schema, [batch]), lambda error: InvalidInput("X", str(error), expected="", remedy="")
    )
    assert list(found.rows()) == [(datetime(2025, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "x")]


@pytest.mark.parametrize(
    "kind, expected",
    [
        (pa.string_view(), "STRING"),
        (pa.map_(pa.string(), pa.int64()), "MAP<STRING, BIGINT>"),
        (
            pa.list_(pa.struct([("a", pa.decimal128(12, 2)), ("b", pa.timestamp("us"))])),
            "ARRAY<STRUCT<a: DECIMAL(12,2), b: TIMESTAMP_NTZ>>",
        ),
        (pa.duration("us"), "INTERVAL"),
        (pa.null(), "VOID"),
    ],
)
def test_types_have_their_sql_names(kind: pa.DataType, expected: str) -> None:
    assert sql_type(kind) == expected


def test_nested_values_and_intervals_of_the_engine_become_json() -> None:
    sql = "SELECT make_array(1, 2) AS a, named_struct('x', 1.5) AS s, INTERVAL '1' MONTH AS i, now() - now() AS d"
    out = io.StringIO()
    write_json(without_spark(Catalog(()))(sql, None), out)
    assert json.loads(out.getvalue())["rows"] == [[[1, 2], {"x": 1.5}, "1 months 0 days 0 seconds", "0"]]


def test_a_closed_output_pipe_is_not_a_failure() -> None:
    """As in `ingest sql … | head -1`. Exit code 1 is reserved for findings."""
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "ingest", "sql", "--questions"]
    ended = subprocess.run(words, cwd=PROJECT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_answer_needs_neither_a_jvm_nor_pyspark(tmp_path: Path) -> None:
    """That makes it quick. The environment of this process has no Java."""
    table = tmp_path / "lake" / "shop" / "orders" / "ledger"
    write_deltalake(str(table), pa.table({"kind": ["batch", "batch"], "inserted": [2, 3]}))
    code = "import sys; from ingest.cli.app import main; main(); assert not {'pyspark', 'py4j'} & sys.modules.keys(), 'Spark was imported'"
    words = ["sql", "SELECT sum(inserted) AS n FROM orders__ledger", "--format", "csv", "--lake", str(tmp_path / "lake")]
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME" and not name.startswith("INGEST_")} | {"PATH": ""}
    ended = subprocess.run([sys.executable, "-c", code, *words], cwd=PROJECT, env=bare, capture_output=True, text=True, check=False)
    assert (ended.stdout.split(), ended.stderr) == (["n", "5"], "")
