"""Transaction ids that expire: refused; past the refusal nobody is fenced any more, and the event id still stops copies (I3, I6, I8)."""

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
from tests.faults.pipeline import Pipeline, with_jvm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Delta's own: a log's checkpoint leaves out what is older, for good.
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


def test_transaction_ids_that_expire_are_refused_and_past_that_a_driver_that_is_not_fenced_adds_no_row(
    pipeline: PipelineFactory, tmp_path: Path
) -> None:
    """The first stands still, the second has read all, and Delta has forgotten its fence: the first does its batches once more."""
    lake = pipeline(batch=1500)
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
    held = rows(lake)
    forget(lake)
    first.proceed()
    first.died()
    first.gone()
    assert lake.written().index((1, 3)) > lake.written().index((2, 2)), "executed: it was fenced no more"
    assert rows(lake) == held and max(held[0].values()) == max(held[1].values()) == 1

    assert remedy.startswith("run ALTER TABLE ") and remedy.endswith(".")
    sql(lake, remedy.removeprefix("run ").removesuffix("."))
    assert ONE_SECOND.keys().isdisjoint(DeltaTable(str(lake.delta())).metadata().configuration)


def rows(lake: Pipeline) -> tuple[Counter[Any], Counter[Any]]:
    """Event ids of the target, and positions of the quarantine."""
    return Counter(select(lake.delta(), ["order_id"])), Counter(select(lake.delta("quarantine"), ["partition", "offset"]))


def forget(lake: Pipeline) -> None:
    """Let Delta forget every transaction id of target and quarantine."""
    (app_id,) = {app for commit in lake.commits() for app, _ in commit.txns}
    for kind in ("target", "quarantine"):
        DeltaTable(str(lake.delta(kind))).alter.set_table_properties(ONE_SECOND)
        until(lambda kind=kind: DeltaTable(str(lake.delta(kind))).transaction_version(app_id) is None, "an id that has expired", 60)  # type: ignore[misc]
        DeltaTable(str(lake.delta(kind))).create_checkpoint()


def sql(lake: Pipeline, statement: str) -> None:
    """As somebody would run it in Spark."""
    command = [sys.executable, "-c", SQL, str(lake.folder / "sql" / "spark.log"), statement]
    environment = {**os.environ, **with_jvm(), "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(lake.folder / "tmp")}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
