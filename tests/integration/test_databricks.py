"""On Databricks, the platform's existing session is used. Here the tests' session stands in for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.runtime import databricks
from ingest.runtime import spark as sessions

pytestmark = pytest.mark.integration


def test_an_existing_session_is_used_configured_and_left_running(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(databricks.VARIABLE, "17.3")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        session = sessions.start("spark://elsewhere:7077", tmp_path / "spark.log")
        assert session.sparkContext is spark.sparkContext
        assert {key: session.conf.get(key) for key in sessions.settable()} == sessions.settable()
        sessions.end(session)
        assert spark.range(3).count() == 3
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    captured = capsys.readouterr()
    assert "--master spark://elsewhere:7077 is ignored" in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []  # no log and no properties file: the platform has its own


def test_spark_refuses_at_run_time_the_settings_that_the_cluster_must_provide(spark: SparkSession) -> None:
    for key in ("spark.redaction.regex", "spark.sql.extensions"):
        with pytest.raises(Exception, match="CANNOT_MODIFY"):
            spark.conf.set(key, "x")
