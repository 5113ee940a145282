"""Killed between two commits of a batch, and then the checkpoint is lost too: a rebase completes what was begun, killed itself or not."""

from __future__ import annotations

import json
import shutil

import pytest

from ingest.oracle.tables import select
from tests.faults.conftest import PipelineFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("point", ["after_quarantine", "after_target"])
def test_killed_between_two_commits_and_the_checkpoint_lost_a_rebase_completes_the_batch(pipeline: PipelineFactory, point: str) -> None:
    """Between quarantine and target, and between target and ledger: no record is in both tables, in none, or twice in one."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    lake.crash(f"{point}:kill@1")
    written = [0] if point == "after_quarantine" else [0, 1]
    assert (lake.written("quarantine")[-1], lake.written()) == (1, written)
    shutil.rmtree(lake.checkpoint())
    error = json.loads(lake.start("--once", "--json").ended(3))["tables"][0]["error"]
    assert error["code"] == "CHECKPOINT_LOST" and lake.written() == written
    lake.command("rebase", "orders", "--to", "table").ended(0)
    lake.complete()
    lake.verified()
    lake.judge().assert_clean()


def test_a_checkpoint_is_lost_and_the_rebase_killed_at_each_of_its_points_is_finished_by_the_next_one(pipeline: PipelineFactory) -> None:
    """Until the old checkpoint is moved aside it is refused as before, then there is none; once the ledger has the new epoch its
    checkpoint is not in place yet; and once it is, there is nothing left to be finished."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    lake.crash("after_target:kill@1")
    # Its log is gone, and the rest of it is there to be moved aside.
    shutil.rmtree(lake.checkpoint() / "offsets")
    refusals = {"rebase_prepared": "CHECKPOINT_TORN", "rebase_aside": "CHECKPOINT_LOST", "rebase_ledger": "CHECKPOINT_LOST"}
    for point, code in refusals.items():
        lake.command("rebase", "orders", "--to", "table", fault=f"{point}:kill@0").ended(-9)
        lake.refused(code)
    lake.command("rebase", "orders", "--to", "table", fault="rebase_done:kill@0").ended(-9)
    lake.complete()
    assert lake.verified()[0]["epochs"] == 2
    rows = select(lake.delta("ledger"), ["kind", "query_id", "partition"])
    said = [row for row in rows if row[0] == "rebase"]
    assert len(said) == len(set(said)) == 4, "where each epoch ended or began, by partition, once"
    lake.judge().assert_clean()
