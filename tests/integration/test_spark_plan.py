"""`ingest sql --spark` judges Spark's own parse of a statement: one query over the project's tables, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from ingest.contract.row_rule_words import reason_outside_sql
from ingest.runtime.errors import InvalidInput
from ingest.sql import spark_plan
from ingest.sql.catalog import Catalog, LakeTable
from ingest.sql.engine import Ask, with_spark

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a table of the project, `shop.orders`, and one that is not the project's."""
    folder = tmp_path_factory.mktemp("lake")
    for name in ("orders", "other"):
        write_deltalake(str(folder / name), pa.table({"id": ["a", "b"], "tags": [["x"], ["y", "z"]]}))
    (folder / "f.txt").write_text("secret\n")
    return folder


@pytest.fixture(scope="module")
def catalog(lake: Path) -> Catalog:
    return Catalog((LakeTable("shop", "orders", "target", str(lake / "orders")),))


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return spark.newSession()


@pytest.fixture(scope="module")
def ask(session: SparkSession, catalog: Catalog) -> Iterator[Ask]:
    with with_spark(session, catalog) as ask:
        yield ask


def refusal(ask: Ask, sql: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        list(ask(sql, None).rows())
    return caught.value


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1;",
        "TABLE orders",
        "FROM Shop.Orders SELECT id",
        "FROM orders |> WHERE id > 'a' |> EXTEND 1 AS n |> AGGREGATE sum(n) AS s GROUP BY 1 |> ORDER BY s |> LIMIT 3",
        "WITH a AS (SELECT ')' AS x), B (x, y) AS (SELECT 1, 2) SELECT * FROM a, b WHERE a.x IN (SELECT x FROM A)",
        "WITH orders AS (TABLE orders), b AS (TABLE orders) SELECT * FROM (WITH c AS (TABLE b) SELECT c.id FROM c, orders)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT max(i) FROM n",
        "VALUES (1, current_date()), (2, DATE '2025-01-02')",
        "SELECT /*+ REPARTITION(2) */ DISTINCT upper(id) AS u FROM orders TABLESAMPLE (50 PERCENT) ORDER BY ALL LIMIT 3 OFFSET 1",
        "SELECT id, count(*), row_number() OVER w FROM orders GROUP BY ROLLUP (id) HAVING count(*) > 0 WINDOW w AS (ORDER BY id)",
        "SELECT id FROM orders QUALIFY row_number() OVER (PARTITION BY id ORDER BY id NULLS LAST) = 1",
        "SELECT id FROM orders GROUP BY GROUPING SETS ((id), ()) DISTRIBUTE BY id SORT BY 1",
        "SELECT id, count(*) FROM orders GROUP BY 1 ORDER BY 2 DESC, 1",
        "SELECT * FROM orders LATERAL VIEW OUTER explode(tags) AS tag",
        "SELECT * FROM orders o, LATERAL (SELECT o.id AS i) x, explode(array(1)) AS e(f), range(2)",
        "SELECT * FROM (SELECT id, 1 AS v FROM orders) PIVOT (sum(v) FOR id IN ('a', 'b'))",
        "SELECT * FROM (SELECT id, 1 AS p, 2 AS q FROM orders) UNPIVOT (v FOR n IN (p, q))",
        "SELECT id FROM orders LEFT SEMI JOIN shop.orders USING (id) EXCEPT SELECT 'c' INTERSECT SELECT 'd'",
        "SELECT transform(tags, x -> x || 'y'), tags[0], CASE WHEN id RLIKE 'a' THEN 1 END, CAST(id AS DATE), id::INT FROM orders",
        "SELECT * EXCEPT (tags), current_date(), DATE '2025-01-02' + INTERVAL '1' DAY FROM orders",
        "SELECT reflect, identifier, concat('it\\'s; DROP', R'\\', \"/*\") FROM (SELECT id AS reflect, id AS identifier FROM orders) -- ;",
        "SELECT listagg(id, ',') WITHIN GROUP (ORDER BY id), percentile_disc(0.5) WITHIN GROUP (ORDER BY length(id)) FROM orders",
        "EXPLAIN FORMATTED WITH a AS (SELECT 1) SELECT * FROM a",
        "EXPLAIN SHOW TABLES",
        *("SHOW TABLES", "SHOW TABLES IN shop", "SHOW VIEWS", "SHOW COLUMNS IN orders", "SHOW DATABASES", "SHOW FUNCTIONS LIKE 'abs'"),
        *("SHOW TBLPROPERTIES shop.orders", "SHOW CATALOGS", "SHOW CURRENT NAMESPACE", "SHOW TABLE EXTENDED LIKE 'o*'"),
        *("DESCRIBE orders", "DESC EXTENDED shop.orders", "DESCRIBE orders id", "DESCRIBE QUERY SELECT 1", "DESCRIBE FUNCTION abs"),
        *("DESCRIBE DATABASE shop", "DESCRIBE EXTENDED shop.orders AS JSON"),
    ],
)
@pytest.mark.usefixtures("ask")
def test_a_statement_that_only_reads_passes(session: SparkSession, catalog: Catalog, sql: str) -> None:
    spark_plan.refuse_all_but_reads(session, sql, catalog, catalog.names)
    assert session.sql(sql).columns


def test_nothing_is_replaced_in_a_statement(ask: Ask) -> None:
    """Spark's default replaces `${env:NAME}`, also in a comment: a statement could begin behind it."""
    sql = "SELECT '${env:HOME}' AS a, '${system:user.name}' AS b, '${spark.app.name}' AS c"
    assert list(ask(sql, None).rows()) == [("${env:HOME}", "${system:user.name}", "${spark.app.name}")]
    sql = "SELECT id FROM orders --${system:line.separator} UNION ALL SELECT 'more'"
    assert len(list(ask(sql, None).rows())) == 2


@pytest.mark.parametrize(
    "sql",
    [
        *("DELETE FROM orders", "UPDATE orders SET id = 'c'", "INSERT INTO orders VALUES ('c', NULL)", "TRUNCATE TABLE orders"),
        "WITH a AS (SELECT 1) DELETE FROM orders",
        "WITH a AS (SELECT R'\\' AS x) INSERT INTO delta.`{lake}/orders` SELECT * FROM a --') SELECT 1",
        "MERGE INTO orders USING orders AS o ON orders.id = o.id WHEN MATCHED THEN DELETE",
        "FROM orders INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT id",
        "EXPLAIN INSERT INTO orders SELECT * FROM orders",
        "EXPLAIN EXPLAIN DELETE FROM orders",
        *("DROP VIEW orders", "CREATE TABLE x USING csv LOCATION '{out}' AS SELECT 1", "CREATE VIEW x AS SELECT 1", "CACHE TABLE orders"),
        "CREATE TEMPORARY VIEW f USING text OPTIONS (path '{lake}/f.txt')",
        *("SET spark.sql.variable.substitute = true", "RESET", "USE shop", "ADD JAR '{lake}/f.txt'", "LIST JARS", "SET VAR x = 1"),
        *("BEGIN SELECT 1; DELETE FROM orders; END", "BEGIN SELECT 1; END", "DECLARE x INT = 1", "EXECUTE IMMEDIATE 'DELETE FROM orders'"),
        *("SELECT TRANSFORM (id) USING 'touch {out}' FROM orders", "FROM orders MAP id USING 'touch {out}' AS (x)"),
        *("VACUUM delta.`{lake}/orders`", "OPTIMIZE delta.`{lake}/orders`", "RESTORE delta.`{lake}/orders` TO VERSION AS OF 0"),
        *("DESCRIBE DETAIL '{lake}/other'", "DESCRIBE HISTORY delta.`{lake}/other`", "CALL f()", "REFRESH '{lake}'", "KILL 1"),
        "SELECT java_method('java.lang.System', 'getenv', 'HOME')",
        "SELECT `Reflect`('java.lang.System', 'getenv', 'HOME')",
        "SELECT builtin.reflect('java.lang.System', 'getenv', 'HOME')",
        "SELECT max(x) FROM VALUES (try_reflect('java.lang.System', 'getenv', 'HOME')) AS v(x)",
        "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv', 'HOME')",
        "SELECT * FROM orders LATERAL VIEW reflect('java.lang.System', 'getenv', 'HOME') AS x",
        "SELECT sum(1) OVER w FROM orders WINDOW w AS (ORDER BY (SELECT reflect('java.lang.System', 'getenv', 'HOME')))",
        "SELECT from_protobuf(x'00', 'M', '{lake}/f.txt')",
        *("SELECT http_request(url => 'x')", "SELECT secret('a', 'b')", "SELECT AI_QUERY('x', 'y')"),
        "SELECT * FROM IDENTIFIER('text' || '.`{lake}/f.txt`')",
        "SELECT * FROM table_changes_by_path('{lake}/other', 0)",
        "SELECT * FROM table_changes('delta.`{lake}/other`', 0)",
        "SELECT * FROM orders WITH (path = '{lake}/other')",
        "SELECT * FROM STREAM orders",
    ],
)
def test_any_other_statement_is_refused_before_spark_runs_it(ask: Ask, lake: Path, tmp_path: Path, sql: str) -> None:
    before = sorted(lake.rglob("*"))
    refused = refusal(ask, sql.format(lake=lake, out=tmp_path / "out"))
    # Text that is no SQL for Spark cannot run either.
    assert refused.code == "SQL_NOT_A_QUERY" or (refused.code == "SQL_FAILED" and "Syntax error" in refused.found), refused
    assert not list(tmp_path.iterdir()) and sorted(lake.rglob("*")) == before


@pytest.mark.parametrize("sql", ["SELECT 1; DELETE FROM orders", "SELECT 1; SELECT 2", "", " ; -- nothing"])
def test_a_text_of_several_statements_or_none_is_no_statement(ask: Ask, sql: str) -> None:
    assert refusal(ask, sql).code == "SQL_FAILED"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM text.`{lake}/f.txt`",
        "SELECT * FROM IDENTIFIER('text.`{lake}/f.txt`')",
        "SELECT * FROM csv.`{lake}/f.txt` AS x",
        "SELECT * FROM delta.`{lake}/other`",
        "SELECT * FROM delta.`{lake}/orders`",
        "SELECT * FROM `delta`.`{lake}/other@v0`",
        "SELECT * FROM delta.`{lake}/other` VERSION AS OF 0",
        "SELECT * FROM parquet.`{lake}/other` TABLESAMPLE (1 ROWS)",
        "SELECT (SELECT max(value) FROM text.`{lake}/f.txt`)",
        "SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM text.`{lake}/f.txt`)",
        "SELECT id FROM orders WHERE id IN (SELECT value FROM text.`{lake}/f.txt`)",
        "WITH a AS (SELECT * FROM text.`{lake}/f.txt`) SELECT * FROM a",
        "WITH a AS (WITH b AS (TABLE text.`{lake}/f.txt`) TABLE b) TABLE a",
        "WITH `text.{lake}/f.txt` AS (SELECT 1) SELECT * FROM text.`{lake}/f.txt`",
        *("WITH other AS (TABLE other) TABLE other", "WITH a AS (TABLE other), other AS (SELECT 1) TABLE a"),
        "SELECT * FROM other, (WITH other AS (SELECT 1) TABLE other)",
        "SELECT id FROM orders JOIN LATERAL (SELECT * FROM text.`{lake}/f.txt`) x",
        "SELECT sum(1) OVER w FROM orders WINDOW w AS (PARTITION BY (SELECT max(value) FROM text.`{lake}/f.txt`))",
        "SELECT transform(tags, x -> (SELECT max(value) FROM text.`{lake}/f.txt`)) FROM orders",
        "FROM orders |> UNION ALL (SELECT value, array(value) FROM text.`{lake}/f.txt`)",
        "VALUES ((SELECT max(value) FROM text.`{lake}/f.txt`))",
        "SELECT id FROM orders GROUP BY GROUPING SETS ((id, (SELECT max(value) FROM text.`{lake}/f.txt`)))",
        "EXPLAIN SELECT * FROM text.`{lake}/f.txt`",
        "DESCRIBE TABLE delta.`{lake}/other`",
        "DESCRIBE QUERY SELECT * FROM text.`{lake}/f.txt`",
        "SHOW COLUMNS IN delta.`{lake}/other`",
        "SELECT * FROM spark_catalog.default.other",
        "SELECT * FROM other",
    ],
)
def test_a_statement_reads_the_projects_tables_and_no_others(ask: Ask, lake: Path, sql: str) -> None:
    """docs/how-to/sql-questions.md, "What a statement can read"."""
    refused = refusal(ask, sql.format(lake=lake))
    assert refused.code == "SQL_TABLE_UNKNOWN" and "orders" in refused.expected
    assert re.search("f.txt|other|orders", refused.found) and "secret" not in str(refused)


def test_xml_functions_read_no_file_that_a_document_names(ask: Ask, lake: Path) -> None:
    document = f'<!DOCTYPE a [<!ENTITY f SYSTEM "file://{lake}/f.txt">]><a><b>&f;</b></a>'
    for sql in (f"xpath_string('{document}', 'a/b')", f"from_xml('{document}', 'b STRING')", f"schema_of_xml('{document}')"):
        try:
            assert "secret" not in str(list(ask(f"SELECT {sql} AS x", None).rows()))
        except InvalidInput as refused:
            assert "secret" not in str(refused)


def test_every_function_that_calls_java_or_reads_tables_is_known(spark: SparkSession) -> None:
    """A new version of Spark may have more of them."""
    state = spark._jsparkSession.sessionState()

    def classes(registry: object) -> dict[str, str]:
        listed = registry.listFunction()  # type: ignore[attr-defined]
        functions = [each for each in spark_plan._each(listed) if registry.lookupFunction(each).isDefined()]  # type: ignore[attr-defined]
        return {str(each.funcName()): str(registry.lookupFunction(each).get().getClassName()) for each in functions}  # type: ignore[attr-defined]

    scalar, table = classes(state.functionRegistry()), classes(state.tableFunctionRegistry())
    outside = {name for name, of in scalar.items() if re.search("Reflect|Avro|Protobuf", of)}
    assert len(outside) == 8 and outside == {name for name in scalar if reason_outside_sql(name)}
    assert table.keys() - spark_plan.TABLE_FUNCTIONS == {"table_changes", "table_changes_by_path", "python_worker_logs"}
