"""Killed between two commits of a batch, and then the checkpoint is lost too: a rebase completes what was begun."""

from __future__ import annotations

import json
import shutil

import pytest

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
