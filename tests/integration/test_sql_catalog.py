"""`ingest sql --at` and table names: both engines read each table at the same version."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.delta.answer import Answer
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import LocalFiles
from ingest.sql.catalog import Catalog, at_time, at_version, catalog
from ingest.sql.description import describe
from ingest.sql.engine import with_spark, without_spark
from tests.integration.desk import Desk
from tests.integration.lane import order
from tests.integration.records import contract

pytestmark = pytest.mark.integration

FILES = LocalFiles()


@pytest.mark.slow
def test_both_engines_read_each_table_as_of_a_version_or_a_time(spark: SparkSession, tmp_path: Path) -> None:
    """How the version is found in the logs is tested in tests/unit/sql/test_catalog.py."""
    desk = Desk(spark, contract(pipeline="v"), tmp_path)
    desk.batch(order("a"))
    time.sleep(0.05)
    between = datetime.now(UTC)
    time.sleep(0.05)
    desk.batch(order("b"), "{")
    known = catalog([desk.contract], desk.places.lake, FILES)
    sql = "SELECT (SELECT count(*) FROM v.events) AS e, (SELECT count(*) FROM events__quarantine) AS q"
    for version, rows in enumerate((0, 0, 0, 1, 2)):  # created, fenced, first offsets, two batches
        assert list(without_spark(at_version(known, "events", version, FILES))(sql, None).rows()) == [(rows, 1)]
    assert answers(spark, at_version(known, "v.events", 3, FILES), sql) == [(1, 1)]
    assert answers(spark, at_version(known, "events__quarantine", 0, FILES), sql) == [(2, 0)]
    assert answers(spark, at_time(known, between, FILES), sql) == [(1, 0)]


@pytest.mark.slow
def test_a_short_name_works_only_if_exactly_one_table_has_it(spark: SparkSession, tmp_path: Path) -> None:
    one, two = Desk(spark, contract(pipeline="p"), tmp_path), Desk(spark, contract(pipeline="default"), tmp_path)
    one.batch(order("a"))
    known = catalog([one.contract, two.contract], one.places.lake, FILES)
    assert list(known.listed) == [f"{p}.events{kind}" for p in ("default", "p") for kind in ("", "__ledger", "__quarantine")]
    assert answers(spark, known, "SELECT (SELECT count(*) FROM p.events) AS a, (SELECT count(*) FROM default.events) AS b") == [(1, 0)]
    with pytest.raises(InvalidInput, match="SQL_TABLE_UNKNOWN") as caught:
        without_spark(known)("SELECT * FROM events", None)
    assert "p.events" in caught.value.expected
    assert [each.table for each in describe(known)] == list(known.listed)
    assert "p" not in {row[0] for row in spark.sql("SHOW DATABASES").collect()}, "nothing is left in Spark's catalog"
    assert spark.sql("SHOW TABLES").count() == 0


def answers(spark: SparkSession, known: Catalog, sql: str) -> list[tuple[Any, ...]]:
    """The rows, which must be the same from both engines."""

    def rows(answer: Answer) -> list[tuple[Any, ...]]:
        return list(answer.rows())

    here = rows(without_spark(known)(sql, None))
    with with_spark(spark.newSession(), known) as ask:
        assert rows(ask(sql, None)) == here
    return here


@pytest.mark.slow
def test_a_registered_table_is_read_by_its_name_and_a_taken_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    from ingest.delta.catalog_entry import CatalogEntry, entries, record
    from ingest.runtime.errors import Refused

    desk = Desk(spark, contract(pipeline="r"), tmp_path)
    desk.batch(order("a"), "{")
    spark.sql("CREATE DATABASE registered")
    try:
        found = entries([desk.places], "spark_catalog", "registered")
        assert [record(spark, each) for each in found] == [True, True, True, False], "no check has created the quality table"
        assert [record(spark, each) for each in found[:1]] == [True], "repeated, it changes nothing"
        assert spark.sql("SELECT id FROM registered.events").collect()[0]["id"] == "a"
        assert spark.sql("SELECT count(*) AS n FROM registered.events__quarantine").collect()[0]["n"] == 1
        desk.batch(order("b"))
        assert spark.sql("SELECT count(*) AS n FROM registered.events").collect()[0]["n"] == 2
        with pytest.raises(InvalidInput) as error:
            record(spark, CatalogEntry(found[0].name, desk.places.quarantine))
        assert error.value.code == "CATALOG_NAME_TAKEN"
        with pytest.raises(Refused) as refused:
            record(spark, CatalogEntry("`spark_catalog`.`no_such_schema`.`t`", desk.places.target))
        assert refused.value.code == "CATALOG_REFUSED"
    finally:
        spark.sql("DROP DATABASE registered CASCADE")
