"""Pairs that expire before a batch is done again: refused; with preflight bypassed the log, and without that the event id, stops copies
(I2, I3, I6)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ingest.oracle.tables import select
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import DEADLINE_S, REPOSITORY, batch_lines, until
from tests.faults.pipeline import Pipeline, with_jvm
from tests.faults.planted import BYPASSED, copy_with, plant

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Delta's own: a log's checkpoint leaves out what is older, for good.
ONE_SECOND = {"delta.setTransactionRetentionDuration": "interval 1 seconds"}
SQL = """
import sys
from pathlib import Path
from ingest import spark
session = spark.start("local[1]", Path(sys.argv[1]))
try:
    session.sql(sys.argv[2])
finally:
    spark.end(session)
"""


def test_pairs_that_expire_are_refused_and_with_preflight_bypassed_a_replay_adds_no_row(pipeline: PipelineFactory, tmp_path: Path) -> None:
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    lake.crash("after_target:kill@1")
    assert lake.written() == [0, 1] and lake.numbers("commits") == [0], "batch 1 is to be done again"
    expire(lake)
    remedy = lake.refused("TXN_RETENTION")
    forgetful = copy_of(lake, pipeline(batch=1500))

    lake.code = copy_with(BYPASSED["pairs that would expire are not refused"], tmp_path / "bypassed")
    said = lake.complete()
    assert batch_lines(said, "shop.orders")[1].startswith("was written before, skipped")
    assert lake.written() == list(range(len(lake.written())))
    lake.code = REPOSITORY
    assert remedy.startswith("run ALTER TABLE ") and remedy.endswith(".")
    sql(lake, remedy.removeprefix("run ").removesuffix("."))
    lake.produce(500, seed=3)
    lake.complete()
    assert lake.verified()[0]["findings"] == []
    lake.judge().assert_clean()

    forgetful.code = copy_with(BYPASSED["pairs that would expire are not refused"], tmp_path / "forgetful")
    plant(BYPASSED["nor is it looked whether a batch is in the table"], forgetful.code)
    forgetful.complete()
    assert forgetful.written().count(1) == 2, "Delta has forgotten the pair, and has executed the MERGE again"
    assert max(Counter(select(forgetful.delta(), ["order_id"])).values()) == 1


def expire(lake: Pipeline) -> None:
    """Let Delta forget every pair of the target."""
    (pair,) = {app for commit in lake.commits() for app, _ in commit.txns}
    DeltaTable(str(lake.delta())).alter.set_table_properties(ONE_SECOND)
    until(lambda: DeltaTable(str(lake.delta())).transaction_version(pair) is None, "a pair that has expired", 60)
    DeltaTable(str(lake.delta())).create_checkpoint()


def copy_of(lake: Pipeline, other: Pipeline) -> Pipeline:
    """`other` with the topic, tables and checkpoint of `lake` as they are now."""
    for folder in ("lake", "checkpoints", "project"):
        shutil.copytree(lake.folder / folder, other.folder / folder, dirs_exist_ok=True)
    other.topic, other.manifests = lake.topic, list(lake.manifests)
    return other


def sql(lake: Pipeline, statement: str) -> None:
    """As somebody would run it in Spark."""
    command = [sys.executable, "-c", SQL, str(lake.folder / "sql" / "spark.log"), statement]
    environment = {**os.environ, **with_jvm(), "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(lake.folder / "tmp")}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
