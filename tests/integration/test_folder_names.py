"""Folders may have any name that is not refused: lake, checkpoints, project and cache of jars."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime import jars
from tests.command import exit_code
from tests.integration.records import contract
from tests.integration.suites import COUNT

pytestmark = pytest.mark.integration

NAME = 'it\'s "50 %" = a+b & über $x; (~*!@^<>|)'
# In a cache of jars, these are refused.
MORE = "#1: [x] {table}?"
# In a lake, this is.
CHECKPOINTS = "${env:HOME}, `🌻`"


@pytest.fixture
def project(broker: Broker, topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with three records to read. The environment names its folders, which have such names."""
    plain = jars.ensure(jars.JarSet.SPARK)
    folder, cache = tmp_path / NAME / MORE, tmp_path / NAME / "cache"
    places = {"PROJECT": folder / "project", "LAKE": folder / "lake", "CHECKPOINTS": folder / CHECKPOINTS, "CACHE": cache}
    for name, path in places.items():
        path.mkdir(parents=True)
        monkeypatch.setenv(f"INGEST_{name}", str(path))
    monkeypatch.setenv("INGEST_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("INGEST_MASTER", "local[2]")
    (cache / "jars").mkdir()
    for jar in plain:
        # No symbolic links: Spark would replace them by the names of their targets.
        shutil.copy(jar, cache / "jars")
    if (archive := plain[0].parents[1] / "classes").exists():
        (cache / "classes").symlink_to(archive)
    rules = contract({"n": "INT"}, topic=topic(2), suite="expectations/events.json")
    for file, text in {"tables/events.yml": rules.to_json(), "expectations/events.json": suite(rules.name)}.items():
        (folder / "project" / file).parent.mkdir()
        (folder / "project" / file).write_text(text, encoding="utf-8")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(3):
        producer.send(rules.source.topic, json.dumps({"id": f"e{number}", "n": number}).encode(), partition=number % 2).get(30)
    producer.close()
    return folder


def suite(name: str) -> str:
    return json.dumps({"name": name, "expectations": [COUNT]})


def typed(*words: str) -> str:
    """Run `ingest` in a process of its own; returns what it prints. Under LC_ALL=C, Java would not find a folder with an umlaut."""
    command = [sys.executable, "-c", "from ingest.cli.app import main; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env={**os.environ, "LC_ALL": "C"}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_spark_starts_in_folders_with_unusual_names_and_writes_to_no_others(project: Path) -> None:
    assert typed("sql", "SELECT 1 AS n", "--spark", "--format", "csv").split() == ["n", "1"]
    assert {each.name for each in project.parent.iterdir()} == {MORE, "cache"}
    assert {each.name for each in project.iterdir()} == {"project", "lake", CHECKPOINTS}
    (log,) = (project / "lake/logs").glob("spark-sql-*.log")
    assert " INFO " in log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_and_the_commands_without_spark_work_in_folders_with_unusual_names(project: Path) -> None:
    typed("run", "--once")
    assert {each.name for each in project.parent.iterdir()} == {MORE, "cache"}
    for words in (("verify",), ("status",)):
        typed(*words)
    assert typed("sql", "SELECT count(*) AS n FROM t.events", "--format", "csv").split() == ["n", "3"]


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_the_commands_with_spark_work_in_folders_with_unusual_names(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the session of the tests."""
    monkeypatch.setattr("ingest.runtime.spark.start", lambda *_, **__: spark.newSession())
    monkeypatch.setattr("ingest.runtime.spark.end", lambda _: None)
    maintain = ("maintain", "--vacuum-retention", "0d", "--force-retention", "a test")
    for words in (("run", "--once"), ("verify", "--against-kafka"), ("check",), maintain, ("run", "--once"), ("verify",)):
        assert exit_code(*words) == 0, capfd.readouterr()
    capfd.readouterr()
    assert exit_code("sql", "SELECT count(*) AS n FROM t.events", "--spark", "--format", "csv") == 0
    assert capfd.readouterr().out.split() == ["n", "3"]
