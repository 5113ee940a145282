"""The engine of `ingest sql` without Spark: its documented differences from Spark, and its error messages."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal

import pytest

from ingest.runtime.errors import InvalidInput
from ingest.sql.catalog import Catalog
from ingest.sql.engine import without_spark


def test_a_query_without_tables_runs_even_if_the_lake_has_none() -> None:
    assert list(without_spark(Catalog(()))("SELECT 1 AS a", None).rows()) == [(1,)]
    with pytest.raises(InvalidInput, match="ingest run"):
        without_spark(Catalog(()))("SELECT * FROM orders", None)


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
def test_the_engine_without_spark_differs_from_spark_as_documented(sql: str, found: object) -> None:
    """docs/how-to/sql-questions.md, "What both engines understand": statements that both run, with different results."""
    assert list(without_spark(Catalog(()))(sql, None).rows()) == [(found,)]


def test_a_suggestion_of_the_engine_ends_with_one_question_mark() -> None:
    with pytest.raises(InvalidInput, match="SQL_FAILED") as caught:
        without_spark(Catalog(()))("SELECT A FROM (SELECT 1 AS a)", None)
    assert caught.value.found.endswith("Did you mean 'a'?")
