"""`ingest sql` without tables: what may run, how a time is read, how an answer looks, and that the page shows the questions as they are."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.contract import Contract, load_contracts
from ingest.errors import InvalidInput
from ingest.sql.answer import Answer, plain, sql_type
from ingest.sql.catalog import Catalog, Kind, LakeTable, parse_at
from ingest.sql.engine import without_spark
from ingest.sql.formats import write_csv, write_json, write_lines, write_table
from ingest.sql.guard import refuse_writes
from ingest.sql.question import contract_named, event_id_columns, question, questions

PROJECT = Path(__file__).parents[2]
ORDERS = load_contracts(PROJECT, ["orders"])[0]
SINCE = datetime(2025, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select 1;",
        " -- COPY\n /* DROP /* nested */ */ SELECT 1 -- ;",
        "(SELECT 1) UNION (SELECT 2)",
        "WITH a AS (SELECT ')'), b (x, y) AS (SELECT 1, 2) SELECT * FROM a, b",
        "WITH RECURSIVE a AS (SELECT 1) (SELECT * FROM a)",
        "VALUES (1)",
        "EXPLAIN ANALYZE VERBOSE SELECT 1",
        "EXPLAIN FORMATTED WITH a AS (SELECT 1) SELECT * FROM a",
        "SHOW TABLES",
        "DESCRIBE orders",
        "SELECT ';', 'it''s; DROP', \"a;b\", `;` FROM t",
        "SELECT * FROM a JOIN b USING (id)",
        "SELECT reflect, identifier FROM t",
    ],
)
@pytest.mark.parametrize("spark", [False, True])
def test_a_statement_that_reads_passes(sql: str, spark: bool) -> None:
    refuse_writes(sql, spark=spark)


def test_each_engines_own_texts_pass() -> None:
    assert list(without_spark(Catalog(()))("""SELECT '\\' AS a, ';' AS b, "\\" AS c""", None).rows()) == [("\\", ";", "\\")]
    refuse_writes(r"""SELECT 'it\'s; DROP', R'\', r"\;", "\";" FROM s3://a--b""", spark=True)
    refuse_writes("SELECT /*+ BROADCAST(t) */ 1 FROM t -- ;", spark=True)


@pytest.mark.parametrize(
    "sql, says",
    [
        ("", "there is no statement"),
        (" ; -- nothing", "there is no statement"),
        ("SELECT 1; DROP TABLE t", "more than one statement"),
        ("COPY t TO 'f'", "COPY is not a query"),
        ("/* SELECT */ insert into t values (1)", "INSERT is not a query"),
        ("CREATE VIEW v AS SELECT 1", "CREATE"),
        ("SET x = 1", "SET"),
        ("FROM t INSERT INTO u SELECT *", "FROM"),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "INSERT"),
        ("WITH a (x) AS (SELECT 1), b AS (SELECT 2) DELETE FROM t", "DELETE"),
        ("WITH a AS (SELECT 1", "nothing"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'f'", "COPY"),
        ("EXPLAIN ANALYZE EXPORT (SELECT 1)", "EXPORT"),
        ("EXPLAIN (INSERT INTO t SELECT 1)", "INSERT"),
        ("SELECT TRANSFORM (a) USING 'sh' FROM t", "starts a program"),
        ("SELECT java_method('java.lang.System', 'exit')", "calls Java"),
        ("SELECT `reflect`('java.lang.System', 'exit')", "reflect() calls Java"),
        ("SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit')", "IDENTIFIER"),
    ],
)
@pytest.mark.parametrize("spark", [False, True])
def test_anything_else_is_refused_by_name(sql: str, says: str, spark: bool) -> None:
    with pytest.raises(InvalidInput, match="SQL_NOT_A_QUERY") as caught:
        refuse_writes(sql, spark=spark)
    assert says in caught.value.found


INSERT = "INSERT INTO delta.`/lake/t` SELECT * FROM a"


@pytest.mark.parametrize(
    "sql",
    [
        f"WITH a AS (SELECT R'\\' AS x) {INSERT} --') SELECT 1",
        f'WITH a AS (SELECT r"\\" AS x) {INSERT} --") SELECT 1',
        f"WITH a AS (SELECT 1) --\r {INSERT} -- \\\n SELECT 1",
        f"WITH a AS (SELECT /*+ H('/*') */ 1) {INSERT} -- */ ) SELECT 1",
        f"WITH a AS (SELECT 1 /* /*+ */) {INSERT} -- */ */ ) SELECT 1",
        f"WITH a AS (SELECT 1 AS x://-- ) {INSERT} /*\n) SELECT 1 -- */",
        "SELECT TRANSFORM (a) USING R'sh' FROM t",
    ],
)
def test_what_only_spark_would_take_for_a_statement_is_refused(sql: str) -> None:
    """Each is a query to who reads texts, comments and names by DataFusion's rules."""
    with pytest.raises(InvalidInput, match=r"INSERT is not a query|starts a program"):
        refuse_writes(sql, spark=True)


def test_datafusion_would_write_what_is_refused(tmp_path: Path) -> None:
    """Why there is a guard: the day that DataFusion refuses this by itself, it may go."""
    from deltalake import QueryBuilder

    out = tmp_path / "out.csv"
    QueryBuilder().execute(f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'").read_all()
    assert out.exists()


@pytest.mark.parametrize(
    "source",
    ["'{}/f.csv'", '"{}/f.csv"', "`{}/f.csv`", "`file://{}/f.csv`", "csv.`{}/f.csv`", "`{}/d`", "delta.`{}/d`"]
    + [f"{function}('{{}}/{name}')" for function, name in (("read_csv", "f.csv"), ("parquet_metadata", "d"), ("delta_scan", "d"))],
)
def test_without_spark_a_statement_reads_the_projects_tables_and_no_other_file(tmp_path: Path, source: str) -> None:
    """docs/questions.md, what a statement can read. The command line of DataFusion itself would read some of these."""
    (tmp_path / "f.csv").write_text("a\n1\n")
    write_deltalake(str(tmp_path / "d"), pa.table({"a": [1]}))
    known = Catalog((LakeTable("shop", "orders", "target", str(tmp_path / "d")),))
    assert list(without_spark(known)("SELECT a FROM orders", None).rows()) == [(1,)]
    with pytest.raises(InvalidInput, match=r"SQL_TABLE_UNKNOWN: there is no table|SQL_FAILED: table function .* not found"):
        list(without_spark(known)(f"SELECT * FROM {source.format(tmp_path)}", None).rows())


def test_without_spark_a_file_cannot_be_made_a_table_either(tmp_path: Path) -> None:
    """DataFusion would, as the first lines show; the guard refuses it."""
    from deltalake import QueryBuilder

    (tmp_path / "f.csv").write_text("a\n1\n")
    sql = f"CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{tmp_path}/f.csv'"
    builder = QueryBuilder()
    builder.execute(sql).read_all()
    assert pa.RecordBatchReader.from_stream(builder.execute("SELECT * FROM x")).read_all().num_rows
    with pytest.raises(InvalidInput, match="SQL_NOT_A_QUERY"):
        without_spark(Catalog(()))(sql, None)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("7", 7),
        ("0", 0),
        ("2025-01-02", datetime(2025, 1, 2, tzinfo=UTC)),
        ("2025-01-02T03:04", datetime(2025, 1, 2, 3, 4, tzinfo=UTC)),
        ("2025-01-02 03:04:05.5Z", datetime(2025, 1, 2, 3, 4, 5, 500000, tzinfo=UTC)),
        ("2025-01-02T03:04:05+02:00", datetime(2025, 1, 2, 1, 4, 5, tzinfo=UTC)),
    ],
)
def test_at_is_a_version_or_a_time(text: str, expected: object) -> None:
    assert parse_at(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "²", "yesterday", "1.5", "2025-13-01", "0001-01-01T00:00:00+05:00"])
def test_anything_else_is_no_version_and_no_time(text: str) -> None:
    with pytest.raises(InvalidInput, match="SQL_AT_INVALID"):
        parse_at(text)


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


def test_csv_quotes_as_rfc_4180_says() -> None:
    out = io.StringIO(newline="")
    write_csv(answer(), out)
    assert out.getvalue().startswith(
        'name,Sum,at,raw,tags,ok,wait\r\n"a,b",1.50,2025-01-02T03:04:05Z,AP8=,"[""é""]",true,60.5\r\n,,,,,,\r\n'
    )
    assert list(csv.reader(io.StringIO(out.getvalue(), newline="")))[3][0] == 'say "x"\n\x1b[31m'


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


def test_a_table_is_aligned_with_numbers_to_the_right_and_steers_no_terminal() -> None:
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
    write_lines(answer({"plan": pa.array(["a\n  b"])}), out)
    assert out.getvalue() == "a\n  b\n"


def test_what_json_has_no_word_for_is_text() -> None:
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


def test_two_columns_of_one_name_and_nanoseconds_are_no_problem() -> None:
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
def test_types_have_their_names_of_sql(kind: pa.DataType, expected: str) -> None:
    assert sql_type(kind) == expected


def tables(*given: tuple[str, str, Kind]) -> Catalog:
    return Catalog(tuple(LakeTable(pipeline, table, kind, f"/{pipeline}/{table}/{kind}") for pipeline, table, kind in given))


def test_a_name_stands_for_one_table_or_for_none() -> None:
    known = tables(("a", "x", "target"), ("b", "x", "target"), ("a", "x", "ledger"), ("a", "x__ledger", "target"), ("a", "y", "quality"))
    assert {name: each.path for name, each in known.names.items()} == {
        "a.x": "/a/x/target",
        "b.x": "/b/x/target",
        "a.x__ledger": "/a/x__ledger/target",
        "x__ledger": "/a/x__ledger/target",
        "a.y__quality": "/a/y/quality",
        "y__quality": "/a/y/quality",
    }
    assert list(known.listed) == ["a.x", "b.x", "x__ledger", "y__quality"]
    assert "did you mean y__quality?" in known.unknown("y_quality").expected


def test_a_query_that_needs_no_table_runs_where_there_is_none() -> None:
    assert list(without_spark(Catalog(()))("SELECT 1 AS a", None).rows()) == [(1,)]
    with pytest.raises(InvalidInput, match="ingest run"):
        without_spark(Catalog(()))("SELECT * FROM orders", None)


NAMES = {
    kind: f"shop.orders{suffix}"
    for kind, suffix in (("target", ""), ("quarantine", "__quarantine"), ("ledger", "__ledger"), ("quality", "__quality"))
}


def test_the_page_shows_each_question_with_its_title_explanation_and_sql() -> None:
    page = (PROJECT / "docs" / "questions.md").read_text(encoding="utf-8")
    values = {**NAMES, "event_time": "ordered_at", "event_id": "order_id", "since": "TIMESTAMP '2025-01-02 00:00:00'"}
    for each in questions().values():
        head = f"## {each.title}\n\n`ingest sql --question {each.name} --table orders`\n\n{each.explanation}\n\n"
        section = f"{head}```sql\n{each.filled(values)}\n```\n"
        assert section in page, each.name


def test_a_question_is_filled_with_the_contracts_own_names() -> None:
    known = tables(("shop", "orders", "target"), ("shop", "orders", "ledger"))
    since = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    sql = question("delay-by-hour").of(ORDERS, known, since)
    assert (
        "FROM `orders`" in sql and "- `ordered_at` AS delay" in sql and "TIMESTAMP '2025-01-02 03:04:05.000000'" in sql and "{" not in sql
    )
    with pytest.raises(InvalidInput, match="no table quarantine") as caught:
        question("quarantine-by-reason").of(ORDERS, known, since)
    assert caught.value.remedy.startswith("run `ingest run shop.orders` first")
    with pytest.raises(InvalidInput, match="no table quality") as caught:
        question("failed-expectations").of(ORDERS, known, since)
    assert caught.value.remedy.startswith("run `ingest check shop.orders` first")
    with pytest.raises(InvalidInput, match="no event_time in its contract"):
        question("delay-by-hour").of(Contract.model_validate({**ORDERS.model_dump(), "event_time": None}), known, since)
    with pytest.raises(InvalidInput, match="did you mean batches"):
        question("batch")


def test_a_record_in_quarantine_whose_bytes_are_no_text_hinders_the_others_in_no_answer(tmp_path: Path) -> None:
    """Of a raw topic any record may be so, whatever its reason is."""
    held = {"not_utf8": b"\xff", "broken_rule": b"\xfe", "malformed_json": b"{", "tombstone": None}
    texts = {name: ["x"] * len(held) for name in ("topic_id", "reason_detail", "state")}
    numbers = {name: pa.array(range(len(held))) for name in ("partition", "offset")}
    times = pa.array([SINCE] * len(held), pa.timestamp("us", "UTC"))
    columns = {**texts, **numbers, "kafka_timestamp": times, "reason_code": list(held), "value": pa.array(held.values(), pa.binary())}
    write_deltalake(str(tmp_path), pa.table(columns))
    known = Catalog((LakeTable("shop", "orders", "quarantine", str(tmp_path)),))
    answer = without_spark(known)(question("quarantined-records").of(ORDERS, known, SINCE), None)
    assert [(row[3], row[-1]) for row in answer.rows()] == [
        ("not_utf8", None),
        ("broken_rule", None),
        ("malformed_json", "{"),
        ("tombstone", None),
    ]


def test_every_questions_text_passes_the_guard() -> None:
    for each in questions().values():
        refuse_writes(each.filled({**NAMES, "event_time": "a", "event_id": "b", "since": "c"}))
        assert each.title and each.explanation


@pytest.mark.parametrize("event_id", ["position", "key", "header:id", ["order_id"]])
def test_event_id_columns_are_those_of_the_target(event_id: Any) -> None:
    from ingest.stream.columns import event_id_columns as of_the_target

    columns: Iterable[Any] = [{"name": "order_id", "type": "STRING", "nullable": False}]
    raw = event_id == "position"
    source = {"topic": "x", "format": "raw" if raw else "json"}
    given = {"pipeline": "p", "table": "x", "source": source, "columns": [] if raw else columns, "event_id": event_id}
    made = Contract.model_validate(given)
    assert event_id_columns(made) == of_the_target(made)


def test_a_question_is_of_the_named_table_or_of_the_only_one() -> None:
    contracts = load_contracts(PROJECT)
    assert contract_named(contracts, "orders") == contract_named(contracts, "shop.orders") == contract_named([ORDERS], None) == ORDERS
    with pytest.raises(InvalidInput, match="2 tables could be meant"):
        contract_named(contracts, None)
    with pytest.raises(InvalidInput, match=r"did you mean shop\.orders"):
        contract_named(contracts, "order")


def test_nested_values_and_intervals_of_the_engine_become_json() -> None:
    sql = "SELECT make_array(1, 2) AS a, named_struct('x', 1.5) AS s, INTERVAL '1' MONTH AS i, now() - now() AS d"
    out = io.StringIO()
    write_json(without_spark(Catalog(()))(sql, None), out)
    assert json.loads(out.getvalue())["rows"] == [[[1, 2], {"x": 1.5}, "1 months 0 days 0 seconds", "0"]]


@pytest.mark.parametrize(
    "sql, found",
    [
        ("SELECT avg(x) FROM (SELECT CAST(y AS DECIMAL(18,2)) AS x FROM (VALUES (0.02), (0.02), (0.01)) v(y))", Decimal("0.016666")),
        ("SELECT 1.1 * CAST(2 AS DECIMAL(5,2))", 2.2),
        ("SELECT concat('a', NULL)", "a"),
        ("SELECT array_agg(x) FROM (VALUES (1), (NULL)) v(x)", [1, None]),
        ("SELECT array_agg(x) FILTER (WHERE x IS NOT NULL) FROM (VALUES (1), (NULL)) v(x)", [1]),
        ("SELECT date_part('dow', TIMESTAMP '2025-01-05 00:00:00')", 0),
        ("SELECT date_part('second', TIMESTAMP '2025-01-05 00:00:01.5')", 1),
        ("SELECT regexp_replace('aa', 'a', 'b')", "ba"),
        ("SELECT log(10)", 1.0),
        ("SELECT CAST(TIMESTAMP '2025-01-05 00:00:01.5' AS STRING)", "2025-01-05T00:00:01.500"),
        ("SELECT date_format(TIMESTAMP '2025-01-05 00:00:00', 'yyyy-MM')", "yyyy-MM"),
        ("SELECT count(*) FROM (SELECT * FROM (VALUES (1), (2), (3)) v(x) TABLESAMPLE (1 PERCENT))", 3),
        ("SELECT cardinality(CAST(NULL AS ARRAY<INT>))", None),
        ("SELECT median(x) FROM (VALUES (CAST('0.01' AS DECIMAL(5,2))), (CAST('0.02' AS DECIMAL(5,2)))) v(x)", Decimal("0.01")),
        ("SELECT 2147483647 + 1", 2147483648),
        ("SELECT CAST(1.005 AS DECIMAL(3,2))", Decimal("1.00")),
        ("SELECT DATE '2025-01-02' - DATE '2025-01-01'", 1),
        ("SELECT substr('abc', -2)", "abc"),
        ("SELECT left('abc', -1)", "ab"),
        ("SELECT ltrim('xxa', 'x')", "a"),
        ("SELECT ln(0)", -math.inf),
        ("SELECT from_unixtime(0)", datetime(1970, 1, 1)),
    ],
)
def test_the_engine_without_spark_differs_from_it_as_the_page_says(sql: str, found: object) -> None:
    """docs/questions.md, what both engines understand: where both answer, and not the same."""
    assert list(without_spark(Catalog(()))(sql, None).rows()) == [(found,)]


def test_what_an_engine_asks_back_ends_with_one_mark() -> None:
    with pytest.raises(InvalidInput, match="SQL_FAILED") as caught:
        without_spark(Catalog(()))("SELECT A FROM (SELECT 1 AS a)", None)
    assert caught.value.found.endswith("Did you mean 'a'?")


def test_an_answer_whose_reader_is_gone_is_no_failure() -> None:
    """`ingest sql … | head -1`; 1 is the code of what was found to be wrong."""
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "ingest", "sql", "--questions"]
    ended = subprocess.run(words, cwd=PROJECT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_answer_needs_neither_a_jvm_nor_pyspark(tmp_path: Path) -> None:
    """That is what makes it quick; in an environment where no Java is to be found."""
    table = tmp_path / "lake" / "shop" / "orders" / "ledger"
    write_deltalake(str(table), pa.table({"kind": ["batch", "batch"], "inserted": [2, 3]}))
    code = "import sys; from ingest.cli.app import main; main(); assert not {'pyspark', 'py4j'} & sys.modules.keys(), 'Spark was imported'"
    words = ["sql", "SELECT sum(inserted) AS n FROM orders__ledger", "--format", "csv", "--lake", str(tmp_path / "lake")]
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME" and not name.startswith("INGEST_")} | {"PATH": ""}
    ended = subprocess.run([sys.executable, "-c", code, *words], cwd=PROJECT, env=bare, capture_output=True, text=True, check=False)
    assert (ended.stdout.split(), ended.stderr) == (["n", "5"], "")
