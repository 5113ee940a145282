"""Spark's output: nothing of a read's conditions is in it, and its size has a limit."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ingest.runtime.spark import LOG_BYTES, LOG_PARTS

pytestmark = pytest.mark.integration

PERSON = "grace@example.org"


def log_of(session: SparkSession) -> Path:
    """The file of the session's output: `start` writes the settings beside it."""
    jvm: Any = session.sparkContext._jvm
    return Path(urlparse(jvm.System.getProperty("log4j2.configurationFile")).path.replace(".log4j2.properties", ".log"))


def test_the_conditions_of_a_read_are_not_in_sparks_output(spark: SparkSession, tmp_path: Path) -> None:
    """They name event ids and, in an erasure, a person. An erasure cannot reach this file."""
    table, people = str(tmp_path / "people"), spark.createDataFrame([(PERSON, 1), ("b", 2)], "mail string, n int")
    people.write.format("delta").save(table)
    rows = spark.read.format("delta").load(table)
    assert rows.where(f"mail = '{PERSON}'").count() == 1
    assert rows.where(f"mail BETWEEN '{PERSON}' AND 'h'").select("n").collect()[0]["n"] == 1
    merge = DeltaTable.forPath(spark, table).alias("t").merge(people.alias("s"), f"t.mail = s.mail AND t.mail BETWEEN 'a' AND '{PERSON}'")
    merge.whenMatchedDelete(condition=f"t.mail = '{PERSON}'").whenNotMatchedInsertAll().execute()
    DeltaTable.forPath(spark, table).delete(f"mail > '{PERSON}'")
    log = log_of(spark)
    text = "".join(part.read_text(encoding="utf-8", errors="replace") for part in (*log.parent.glob(f"{log.name}.[0-9]*"), log))
    assert "Committed delta" in text and PERSON not in text


def test_sparks_output_has_a_limit(spark: SparkSession) -> None:
    """A continuous run writes one file for months."""
    jvm, log = spark.sparkContext._jvm, log_of(spark)
    logger: Any = jvm.org.apache.logging.log4j.LogManager.getLogger("test")  # type: ignore[union-attr]
    line = "x" * (LOG_BYTES // 4)
    for _ in range(4 * (LOG_PARTS + 2)):
        logger.info(line)
    parts = sorted(log.parent.glob(f"{log.name}.*"))
    assert [part.name for part in parts] == [f"{log.name}.{number + 1}" for number in range(LOG_PARTS)]
    assert all(part.stat().st_size < 2 * LOG_BYTES for part in (log, *parts))
    assert {stat.S_IMODE(part.stat().st_mode) for part in (log, *parts)} == {0o600}, "an error may quote a value"
    for part in parts:
        part.unlink()
