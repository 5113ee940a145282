"""The options of a session's JVM."""

from __future__ import annotations

import os
import shlex
import stat
import time
from pathlib import Path
from typing import Any

import pyspark.sql
import pytest

from ingest.runtime import jars, java, spark
from ingest.runtime.errors import InvalidEnvironment
from ingest.runtime.java import Java

pytestmark = pytest.mark.unit


def java_options(folder: Path, monkeypatch: pytest.MonkeyPatch, *, short: bool = False) -> str:
    """The Java options for the driver's JVM, which is not started."""
    given: dict[str, str] = {}
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):  # `spark.start` sets them for the JVM
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr(java, "find", lambda: Java(Path("/java"), Path("/java/bin/java"), 17))
    monkeypatch.setattr(jars, "ensure", lambda _: ())

    class Builder:
        def config(self, key: str, value: str) -> Builder:
            given[key] = value
            return self

        def appName(self, _: str) -> Builder:  # noqa: N802
            return self

        def master(self, _: str) -> Builder:
            return self

        def getOrCreate(self) -> Any:  # noqa: N802
            raise RuntimeError

    monkeypatch.setattr(pyspark.sql.SparkSession, "builder", Builder())
    with pytest.raises(InvalidEnvironment, match="SPARK_NOT_STARTED"):
        spark.start("local[1]", folder / "logs" / "spark.log", short=short)
    return given["spark.driver.extraJavaOptions"]


def test_the_log_of_a_jvm_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_options(tmp_path, monkeypatch)
    assert stat.S_IMODE((tmp_path / "logs/spark.log").stat().st_mode) == 0o600


def test_a_short_run_uses_one_compiler_unless_the_user_sets_another_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INGEST_DRIVER_JAVA_OPTIONS", raising=False)
    assert spark.ONE_COMPILER in java_options(tmp_path, monkeypatch, short=True)
    assert spark.ONE_COMPILER not in java_options(tmp_path, monkeypatch)
    monkeypatch.setenv("INGEST_DRIVER_JAVA_OPTIONS", "-XX:TieredStopAtLevel=4")
    assert spark.ONE_COMPILER not in java_options(tmp_path, monkeypatch, short=True)


def test_the_output_of_former_commands_is_deleted_by_age_and_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message in it may quote a value, which no erasure would find."""
    monkeypatch.setattr(spark, "LOG_FILES_KEPT", 3)
    logs = tmp_path / "logs"
    (logs / "lineage").mkdir(parents=True)
    ages = {
        "spark-run-1.log": 29,
        "spark-run-1.log.2": 31,
        "spark-run-0.log4j2.properties": 31,
        "spark-erase-1.log": 2,
        "spark-run-2.log": 1,
    }
    ages |= {"spark-run-3.log": 40, "spark-check-1.log": 3, "other.log": 99, "lineage/shop.orders.json": 99}
    for name, days in ages.items():
        (logs / name).touch()
        os.utime(logs / name, (time.time() - days * 86_400,) * 2)
    java_options(tmp_path, monkeypatch)
    kept = {path.relative_to(logs).as_posix() for path in logs.rglob("*") if path.relative_to(logs).as_posix() in ages}
    assert kept == {"spark-erase-1.log", "spark-run-2.log", "spark-check-1.log", "other.log", "lineage/shop.orders.json"}


def test_each_option_with_a_folder_is_one_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / 'it\'s "50 %" \\ ü'
    options = shlex.split(java_options(folder, monkeypatch))
    assert f"-Dderby.system.home={folder / 'logs'}" in options
    assert any(option.startswith(f"-Djava.io.tmpdir={folder / 'logs'}") for option in options)
    settings = (folder / "logs" / "spark.log4j2.properties").read_text(encoding="ascii")
    assert f"fileName = {java.property_value(str(folder))}/logs/spark.log\n" in settings
