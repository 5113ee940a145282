"""A session that is there already is taken where a platform gives it; the tests' own stands for the platform's."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.runtime import databricks
from ingest.runtime import spark as sessions

pytestmark = pytest.mark.integration


def test_a_session_that_is_there_is_taken_set_right_and_left_alive(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(databricks.VARIABLE, "17.3")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        taken = sessions.start("spark://elsewhere:7077", tmp_path / "spark.log")
        assert taken.sparkContext is spark.sparkContext
        assert {key: taken.conf.get(key) for key in sessions.settable()} == sessions.settable()
        sessions.end(taken)
        assert spark.range(3).count() == 3
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    said = capsys.readouterr()
    assert "--master spark://elsewhere:7077 is ignored" in said.err
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []  # no log, no properties: the platform keeps its own


def test_spark_itself_refuses_at_run_time_what_the_cluster_must_be_given(spark: SparkSession) -> None:
    for key in ("spark.redaction.regex", "spark.sql.extensions"):
        with pytest.raises(Exception, match="CANNOT_MODIFY"):
            spark.conf.set(key, "x")
