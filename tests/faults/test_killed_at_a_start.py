"""SIGKILL at each step of a start, of a seek, and at the end of a run: the next start opens a higher epoch and continues."""

from __future__ import annotations

import pytest

from ingest.runtime.crash_points import STARTING
from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import ranges

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_first_start_killed_at_each_step_leaves_nothing_that_is_mistaken_for_a_batch(pipeline: PipelineFactory) -> None:
    """The kills leave tables without an epoch, a fenced target with an unfenced quarantine, and start offsets without a batch."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    points = [point for point in STARTING if point != "start_rolled_back"]
    for fenced, point in enumerate(points):
        lake.crash(f"{point}:kill@0")
        assert (lake.epoch(), lake.written()) == (fenced, []), point
    lake.complete()
    assert [each.kind for each in lake.commits() if each.kind in ("start", "seek")] == ["start"], "the table's first start offsets"
    assert lake.epochs() == {len(points)}
    lake.verified()
    lake.judge().assert_clean()


def test_a_start_after_a_cut_off_batch_may_be_killed_at_each_step_and_at_the_end_of_the_run(pipeline: PipelineFactory) -> None:
    """The cut-off batch's quarantine rows are rolled back once. After the ledger's last row, no batch is added to it again."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    lake.crash("after_quarantine:kill@3")
    for point in [point for point in STARTING if point != "start_offsets"]:
        lake.crash(f"{point}:kill@0")
        assert (lake.written(), lake.written("quarantine")) == ([(1, 2)], [(1, 2), (1, 3)]), point
    assert len([each for each in lake.commits("quarantine") if each.kind == "rollback"]) == 1
    lake.crash("finish_ledger:kill@0")
    assert lake.ledgered() == set(lake.written()) and len(lake.written()) > 2
    lake.produce(1500, poison=20, seed=2)
    lake.complete()
    lake.verified()
    lake.judge().assert_clean()


def test_a_seek_and_its_re_read_killed_at_each_step_are_finished_by_the_next_start(pipeline: PipelineFactory) -> None:
    """Until the seek has committed its start offsets, a start continues at the table's ends. After that it must do the re-read."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    lake.complete()
    ends = lake.ends()
    for point in ("start_target_fenced", "start_fenced", "start_offsets"):
        lake.command("seek", "orders", "--to", "earliest", fault=f"{point}:kill@0").ended(-9)
        lake.command("verify", "--json").ended(0)
    lake.crash("after_replayed:kill@2")
    lake.crash("after_target:kill@2")
    assert ranges(lake.batches()[-1])[0][0] == ranges(lake.batches()[-2])[0][1], "the re-read continues"
    lake.complete()
    assert lake.ends() == ends
    (verified,) = lake.verified()
    assert verified["pending"] == []
    lake.judge().assert_clean()
