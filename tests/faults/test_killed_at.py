"""SIGKILL at every crash point of a batch, in one lake: each restart completes the batch before and dies at the next point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

from ingest.oracle.judge import Verdict
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import batch_lines
from tests.faults.pipeline import Pipeline

pytestmark = pytest.mark.timeout(900)

# Batch by point.
KILLS = {
    "before_offset_log": 1,
    "after_offset_log": 1,
    "after_quarantine": 2,
    "during_target": 3,
    "after_target": 4,
    "after_ledger": 5,
    "after_commit_log": 6,
}
SKIPPED = "was written before, skipped"


@dataclass(frozen=True)
class Aftermath:
    """What a kill left on the disk, and what the next run said of the batches it had before it."""

    offsets: list[int]
    commits: list[int]
    target: list[int]
    quarantine: list[int]
    orphans: set[str]
    next_run: dict[int, str]


@dataclass(frozen=True)
class Journey:
    pipeline: Pipeline
    after: dict[str, Aftermath]
    verdict: Verdict


@pytest.fixture(scope="module")
def journey(shared_pipeline: PipelineFactory) -> Journey:
    pipeline = shared_pipeline(batch=1500)
    pipeline.produce(8500, poison=90)
    left = {}
    for point, batch in KILLS.items():
        # With a pause after each batch the watcher cannot come too late for what is before the next one's offset log.
        trigger = ("--every", "300s") if point == "before_offset_log" else ("--once",)
        pipeline.crash(f"{point}:kill@{batch}", *trigger)
        left[point] = partial(
            Aftermath,
            pipeline.numbers("offsets"),
            pipeline.numbers("commits"),
            pipeline.written("target"),
            pipeline.written("quarantine"),
            pipeline.orphans(),
        )
    pipeline.complete()
    said = [batch_lines(driver.said, "shop.orders") for driver in pipeline.drivers]
    after = {point: left[point](said[number + 1]) for number, point in enumerate(KILLS)}
    return Journey(pipeline, after, pipeline.judge())


def test_killed_before_offset_log_the_batch_is_planned_anew(journey: Journey) -> None:
    left = journey.after["before_offset_log"]
    assert (left.offsets, left.commits, left.target) == ([0], [0], [0])


def test_killed_after_offset_log_the_same_range_is_written_once(journey: Journey) -> None:
    left = journey.after["after_offset_log"]
    assert (left.offsets[-1], left.commits[-1], left.target[-1], left.quarantine[-1]) == (1, 0, 0, 0)
    assert SKIPPED not in left.next_run[1]


def test_killed_after_quarantine_the_target_follows_and_nothing_is_quarantined_twice(journey: Journey) -> None:
    left = journey.after["after_quarantine"]
    assert (left.offsets[-1], left.commits[-1], left.target[-1], left.quarantine[-1]) == (2, 1, 1, 2), "quarantine first (I7)"
    assert "quarantined 0 ·" not in left.next_run[2]
    assert journey.pipeline.written("quarantine").count(2) == 1


def test_killed_during_target_the_files_it_left_are_in_no_version(journey: Journey) -> None:
    left = journey.after["during_target"]
    assert (left.offsets[-1], left.commits[-1], left.target[-1], left.quarantine[-1]) == (3, 2, 2, 3)
    assert left.orphans - journey.after["after_quarantine"].orphans
    assert left.orphans <= journey.pipeline.orphans()


@pytest.mark.parametrize("point", ["after_target", "after_ledger"])
def test_killed_between_target_and_commit_log_the_batch_is_skipped_and_the_version_stays(journey: Journey, point: str) -> None:
    left, batch = journey.after[point], KILLS[point]
    assert (left.offsets[-1], left.commits[-1], left.target[-1]) == (batch, batch - 1, batch)
    assert left.next_run[batch].startswith(SKIPPED)
    assert f"version {journey.pipeline.version_of(batch)}" in left.next_run[batch]
    assert journey.pipeline.version_of(batch + 1) == journey.pipeline.version_of(batch) + 1, "the skip has made a commit"


def test_killed_after_commit_log_the_batch_is_not_looked_at_again(journey: Journey) -> None:
    left, batch = journey.after["after_commit_log"], KILLS["after_commit_log"]
    assert batch in left.commits and batch in left.target
    assert batch not in left.next_run


@pytest.mark.parametrize("point", KILLS)
def test_every_batch_is_one_commit_whatever_was_killed(journey: Journey, point: str) -> None:
    """I1: the batch killed at this point has one commit in the target, and the others too, in their order."""
    written = journey.pipeline.written("target")
    assert written.count(KILLS[point]) == 1
    assert written == journey.pipeline.numbers("offsets") == list(range(len(written)))


def test_the_oracle_finds_no_event_lost_doubled_or_let_in_from_an_aborted_transaction(journey: Journey) -> None:
    """Retries inside a batch, across batches, partitions and restarts are in what was produced."""
    journey.verdict.assert_clean()
    assert not journey.verdict.notes
