"""SIGKILL at each step of a start, of a seek, and at the end of a run: the next start takes a higher epoch and goes on."""

from __future__ import annotations

import pytest

from ingest.runtime.crash_points import STARTING
from tests.faults.conftest import PipelineFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_killed_at_each_step_of_a_first_start_nothing_is_taken_for_something_that_was_read(pipeline: PipelineFactory) -> None:
    """Tables without an epoch, a target that is fenced and a quarantine that is not, a beginning without a batch."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    points = [point for point in STARTING if point != "start_rolled_back"]
    for fenced, point in enumerate(points):
        lake.crash(f"{point}:kill@0")
        assert (lake.epoch(), lake.written()) == (fenced, []), point
    lake.complete()
    seeks = [each.metadata for each in lake.commits() if each.kind == "seek"]
    assert [each and each["why"] for each in seeks] == ["first"], "what stands is where the table begins"
    assert lake.epochs() == {len(points)}
    lake.verified()
    lake.judge().assert_clean()


def test_killed_at_each_step_of_a_start_behind_a_batch_that_was_cut_off_and_at_the_end_of_the_run(pipeline: PipelineFactory) -> None:
    """What a batch has left in the quarantine is rolled back once; and once the ledger has its last row, nothing is told twice."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    lake.crash("after_quarantine:kill@3")
    for point in [point for point in STARTING if point != "start_sought"]:
        lake.crash(f"{point}:kill@0")
        assert (lake.written(), lake.written("quarantine")) == ([(1, 2)], [(1, 2), (1, 3)]), point
    assert len([each for each in lake.commits("quarantine") if each.kind == "rollback"]) == 1
    lake.crash("finish_ledger:kill@0")
    assert lake.ledgered() == set(lake.written()) and len(lake.written()) > 2
    lake.produce(1500, poison=20, seed=2)
    lake.complete()
    lake.verified()
    lake.judge().assert_clean()


def test_a_seek_killed_at_each_of_its_steps_and_the_re_read_behind_it_are_finished_by_the_next_start(pipeline: PipelineFactory) -> None:
    """Until it has committed where it begins, a start goes on at the table's ends; from there on the re-read is to be done."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    lake.complete()
    ends = lake.ends()
    for point in ("start_target_fenced", "start_fenced", "start_sought"):
        lake.command("seek", "orders", "--to", "earliest", fault=f"{point}:kill@0").ended(-9)
        lake.command("verify", "--json").ended(0)
    lake.crash("after_replayed:kill@2")
    lake.crash("after_target:kill@2")
    assert lake.batches()[-1].ranges[0][0] == lake.batches()[-2].ranges[0][1], "the re-read goes on"
    lake.complete()
    assert lake.ends() == ends
    (verified,) = lake.verified()
    assert verified["pending"] == []
    lake.judge().assert_clean()
