"""Expiring transaction ids are refused. If the refusal is bypassed, fencing is lost, but the event id still stops copies (I3, I6, I8)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.lab.oracle.oracle_tables import select
from tests.faults.code_mutants import BYPASSED, copy_with, plant
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import DEADLINE_S, REPOSITORY, until
from tests.faults.pipeline import BY_SPARK, Pipeline, with_jvm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Delta's own setting: a checkpoint of the log drops older transaction ids for good.
ONE_SECOND = {"delta.setTransactionRetentionDuration": "interval 1 seconds"}
SQL = """
import sys
from pathlib import Path
from ingest.runtime import spark
session = spark.start("local[1]", Path(sys.argv[1]))
try:
    session.sql(sys.argv[2])
finally:
    spark.end(session)
"""


def test_expiring_transaction_ids_are_refused_and_even_an_unfenced_driver_adds_no_row(pipeline: PipelineFactory, tmp_path: Path) -> None:
    """The first driver is paused, the second reads everything, and Delta forgets its fence. Then the first repeats its batches.

    The direct writer has seen the commit of the fence itself, so it stays fenced.
    """
    lake = pipeline(batch=1500)
    lake.environment = {**lake.environment, **BY_SPARK}
    lake.produce(3200, poison=40)
    first = lake.start(fault="after_quarantine:hang@3")
    first.stopped()
    table = DeltaTable(str(lake.delta()))
    table.alter.set_table_properties(ONE_SECOND)
    lake.code = copy_with(BYPASSED["no lock is taken"], tmp_path / "bypassed")
    remedy = lake.refused("TXN_RETENTION")
    plant(BYPASSED["transaction ids that would expire are not refused"], lake.code)
    lake.complete()
    lake.judge().assert_clean()
    stored = rows(lake)
    forget(lake)
    first.proceed()
    first.died()
    first.gone()
    assert lake.written().index((1, 3)) > lake.written().index((2, 2)), "the first driver's commit was executed: it was no longer fenced"
    assert rows(lake) == stored and max(stored[0].values()) == max(stored[1].values()) == 1

    assert remedy.startswith("run ALTER TABLE ") and remedy.endswith(".")
    sql(lake, remedy.removeprefix("run ").removesuffix("."))
    assert ONE_SECOND.keys().isdisjoint(DeltaTable(str(lake.delta())).metadata().configuration)


def rows(lake: Pipeline) -> tuple[Counter[Any], Counter[Any]]:
    """The target's event ids and the quarantine's positions, counted."""
    return Counter(select(lake.delta(), ["order_id"])), Counter(select(lake.delta("quarantine"), ["partition", "offset"]))


def forget(lake: Pipeline) -> None:
    """Make Delta forget every transaction id of target and quarantine."""
    (app_id,) = {app for commit in lake.commits() for app, _ in commit.txns}
    for kind in ("target", "quarantine"):
        DeltaTable(str(lake.delta(kind))).alter.set_table_properties(ONE_SECOND)
        until(lambda kind=kind: DeltaTable(str(lake.delta(kind))).transaction_version(app_id) is None, "the transaction id has expired", 60)  # type: ignore[misc]
        DeltaTable(str(lake.delta(kind))).create_checkpoint()


def sql(lake: Pipeline, statement: str) -> None:
    """Run a statement in Spark, as a user would."""
    command = [sys.executable, "-c", SQL, str(lake.folder / "sql" / "spark.log"), statement]
    environment = {**os.environ, **with_jvm(), "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(lake.folder / "tmp")}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
