"""SIGKILL at each step of a start, and at the end of a run: the next start goes on from what is there."""

from __future__ import annotations

import pytest

from tests.faults.conftest import PipelineFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_killed_at_each_step_of_a_start_the_next_one_takes_the_first_batch(pipeline: PipelineFactory) -> None:
    """Tables without a checkpoint, a binding without a batch, a ledger without a row: none of them is taken for something that was read."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    binding = lake.checkpoint() / "oncelake" / "binding.json"
    for point, bound in (("start_tables", False), ("start_bound", True), ("start_ledger", True)):
        lake.crash(f"{point}:kill@0")
        assert (len(lake.commits()), binding.exists(), lake.numbers("offsets")) == (1, bound, []), point
    lake.complete()
    assert lake.written() == lake.numbers("offsets") == list(range(len(lake.written())))
    lake.verified()
    lake.judge().assert_clean()


def test_killed_at_a_start_behind_an_unfinished_batch_and_at_the_end_of_the_run_that_does_it(pipeline: PipelineFactory) -> None:
    """What a batch has left undone is still to be done; and once the ledger has its last row, nothing is left to be told twice."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=60)
    lake.crash("after_quarantine:kill@1")
    for point in ("start_tables", "start_bound", "start_ledger"):
        lake.crash(f"{point}:kill@0")
        assert (lake.written(), lake.written("quarantine")) == ([0], [0, 1]), point
    lake.crash("finish_ledger:kill@0")
    written = lake.written()
    assert written == list(range(len(written))) and lake.written("ledger")[-1] == written[-1] > 1
    lake.produce(1500, poison=20, seed=2)
    lake.complete()
    assert lake.written("ledger") == sorted(set(lake.written("ledger")))
    lake.verified()
    lake.judge().assert_clean()
