"""`ingest sql` runs only statements that read the project's tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.runtime.errors import InvalidInput
from ingest.sql.catalog import Catalog, LakeTable
from ingest.sql.engine import without_spark
from ingest.sql.read_only import refuse_writes


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
    ],
)
def test_a_statement_that_only_reads_passes(sql: str) -> None:
    refuse_writes(sql)


def test_datafusions_own_string_syntax_passes() -> None:
    sql = """SELECT '\\' AS a, ';' AS b, "\\" AS c, $$;'$$ AS d, $a$;$$"$a$ AS e"""
    assert list(without_spark(Catalog(()))(sql, None).rows()) == [("\\", ";", "\\", ";'", ';$$"')]


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
        ("EXPLAIN ANALYZE EXPLAIN ANALYZE COPY (SELECT 1) TO 'f'", "EXPLAIN of EXPLAIN"),
        ("EXPLAIN ANALYZE (EXPLAIN ANALYZE COPY (SELECT 1) TO 'f')", "EXPLAIN of EXPLAIN"),
        ("WITH a AS (SELECT $$'$$ AS x) INSERT INTO t SELECT 5 --') SELECT 1", "INSERT"),
        ("SELECT $a$ '$a$ AS x; COPY (SELECT 1) TO 'f' --'", "more than one statement"),
    ],
)
def test_any_other_statement_is_refused_by_name(sql: str, says: str) -> None:
    with pytest.raises(InvalidInput, match="SQL_NOT_A_QUERY") as caught:
        refuse_writes(sql)
    assert says in caught.value.found


@pytest.mark.parametrize("explain", ["EXPLAIN ANALYZE", "EXPLAIN ANALYZE EXPLAIN ANALYZE"])
def test_datafusion_itself_would_run_a_write_that_is_refused(tmp_path: Path, explain: str) -> None:
    """This is why the guard exists. Once DataFusion refuses this statement itself, the guard can be removed."""
    from deltalake import QueryBuilder

    out = tmp_path / "out.csv"
    QueryBuilder().execute(f"{explain} COPY (SELECT 1) TO '{out}'").read_all()
    assert out.exists()


@pytest.mark.parametrize(
    "source",
    ["'{}/f.csv'", '"{}/f.csv"', "`{}/f.csv`", "`file://{}/f.csv`", "csv.`{}/f.csv`", "`{}/d`", "delta.`{}/d`"]
    + [f"{function}('{{}}/{name}')" for function, name in (("read_csv", "f.csv"), ("parquet_metadata", "d"), ("delta_scan", "d"))],
)
def test_without_spark_a_statement_reads_the_projects_tables_and_no_other_files(tmp_path: Path, source: str) -> None:
    """docs/how-to/sql-questions.md, "What a statement can read". DataFusion's own command line would read some of these."""
    (tmp_path / "f.csv").write_text("a\n1\n")
    write_deltalake(str(tmp_path / "d"), pa.table({"a": [1]}))
    known = Catalog((LakeTable("shop", "orders", "target", str(tmp_path / "d")),))
    assert list(without_spark(known)("SELECT a FROM orders", None).rows()) == [(1,)]
    with pytest.raises(InvalidInput, match=r"SQL_TABLE_UNKNOWN: there is no table|SQL_FAILED: table function .* not found"):
        list(without_spark(known)(f"SELECT * FROM {source.format(tmp_path)}", None).rows())


def test_without_spark_a_file_cannot_be_registered_as_a_table(tmp_path: Path) -> None:
    """DataFusion allows it, as the first lines show; the guard refuses it."""
    from deltalake import QueryBuilder

    (tmp_path / "f.csv").write_text("a\n1\n")
    sql = f"CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{tmp_path}/f.csv'"
    builder = QueryBuilder()
    builder.execute(sql).read_all()
    assert pa.RecordBatchReader.from_stream(builder.execute("SELECT * FROM x")).read_all().num_rows
    with pytest.raises(InvalidInput, match="SQL_NOT_A_QUERY"):
        without_spark(Catalog(()))(sql, None)
