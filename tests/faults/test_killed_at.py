"""SIGKILL at every crash point of a batch, in one lake: each restart completes the batch before and dies at the next point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pytest

from ingest.oracle.judge import Verdict
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import batch_lines
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Batch by point. The seven restarts of both journeys take five minutes where two tests share a machine.
KILLS = {"after_quarantine": 1, "during_target": 2, "after_target": 3}
MORE_KILLS = {"before_offset_log": 1, "after_offset_log": 1, "after_ledger": 2, "after_commit_log": 3}
SKIPPED = "was written before, skipped"


@dataclass(frozen=True)
class Aftermath:
    """What a kill left on the disk, and what the next run said of the batches it had before it."""

    offsets: list[int]
    commits: list[int]
    target: list[int]
    quarantine: list[int]
    ledger: list[int]
    planned: dict[int, int]
    orphans: set[str]
    next_run: dict[int, str]


@dataclass(frozen=True)
class Journey:
    pipeline: Pipeline
    after: dict[str, Aftermath]
    verdict: Verdict


@pytest.fixture(scope="module")
def journey(shared_pipeline: PipelineFactory) -> Journey:
    return travelled(shared_pipeline(batch=1500), KILLS)


@pytest.fixture(scope="module")
def longer_journey(shared_pipeline: PipelineFactory) -> Journey:
    return travelled(shared_pipeline(batch=1500), MORE_KILLS)


def travelled(pipeline: Pipeline, kills: Mapping[str, int]) -> Journey:
    pipeline.produce(6200, poison=60)
    left = {}
    for point, batch in kills.items():
        # With a pause after each batch the watcher cannot come too late for what is before the next one's offset log.
        trigger = ("--every", "300s") if point == "before_offset_log" else ("--once",)
        # Else a minute would have to pass before the ledger is appended to, and the point would be that after the target.
        at_once = {"INGEST_LEDGER_EVERY_S": "0"} if point == "after_ledger" else None
        pipeline.crash(f"{point}:kill@{batch}", *trigger, environment=at_once)
        left[point] = partial(
            Aftermath,
            pipeline.numbers("offsets"),
            pipeline.numbers("commits"),
            pipeline.written("target"),
            pipeline.written("quarantine"),
            pipeline.written("ledger"),
            pipeline.planned(batch),
            pipeline.orphans(),
        )
    pipeline.complete()
    said = [batch_lines(driver.said, "shop.orders") for driver in pipeline.drivers]
    after = {point: left[point](said[number + 1]) for number, point in enumerate(kills)}
    return Journey(pipeline, after, pipeline.judge())


def test_killed_before_offset_log_the_batch_is_planned_anew(longer_journey: Journey) -> None:
    left = longer_journey.after["before_offset_log"]
    assert (left.offsets, left.commits, left.target) == ([0], [0], [0])


def test_killed_after_offset_log_the_same_range_is_written_once(longer_journey: Journey) -> None:
    left = longer_journey.after["after_offset_log"]
    assert (left.offsets[-1], left.commits[-1], left.target[-1], left.quarantine[-1]) == (1, 0, 0, 0)
    assert SKIPPED not in left.next_run[1]
    version = longer_journey.pipeline.version_of(1)
    (commit,) = [each for each in longer_journey.pipeline.commits() if each.version == version]
    assert left.planned and {partition: end for partition, (_, end) in commit.ranges.items()} == left.planned


def test_killed_after_quarantine_the_target_follows_and_nothing_is_quarantined_twice(journey: Journey) -> None:
    left, batch = journey.after["after_quarantine"], KILLS["after_quarantine"]
    assert (left.offsets[-1], left.commits[-1], left.target[-1], left.quarantine[-1]) == (batch, batch - 1, batch - 1, batch), (
        "quarantine first (I7)"
    )
    assert "quarantined 0 ·" not in left.next_run[batch]
    assert journey.pipeline.written("quarantine").count(batch) == 1


def test_killed_during_target_the_files_it_left_are_in_no_version(journey: Journey) -> None:
    left, batch = journey.after["during_target"], KILLS["during_target"]
    assert (left.offsets[-1], left.commits[-1], left.target[-1], left.quarantine[-1]) == (batch, batch - 1, batch - 1, batch)
    assert left.orphans - journey.after["after_quarantine"].orphans
    assert left.orphans <= journey.pipeline.orphans()


def skipped(journey: Journey, point: str, batch: int) -> None:
    left = journey.after[point]
    assert (left.offsets[-1], left.commits[-1], left.target[-1]) == (batch, batch - 1, batch)
    assert left.next_run[batch].startswith(SKIPPED)
    assert f"version {journey.pipeline.version_of(batch)}" in left.next_run[batch]
    assert journey.pipeline.version_of(batch + 1) == journey.pipeline.version_of(batch) + 1, "the skip has made a commit"


def test_killed_after_target_the_batch_is_skipped_and_the_version_stays(journey: Journey) -> None:
    skipped(journey, "after_target", KILLS["after_target"])
    assert KILLS["after_target"] not in journey.after["after_target"].ledger


def test_killed_after_ledger_the_batch_is_skipped_and_the_version_stays(longer_journey: Journey) -> None:
    batch = MORE_KILLS["after_ledger"]
    skipped(longer_journey, "after_ledger", batch)
    assert longer_journey.after["after_ledger"].ledger[-1] == batch
    assert longer_journey.pipeline.written("ledger").count(batch) == 1


def test_killed_after_commit_log_the_batch_is_not_looked_at_again(longer_journey: Journey) -> None:
    left, batch = longer_journey.after["after_commit_log"], MORE_KILLS["after_commit_log"]
    assert batch in left.commits and batch in left.target
    assert batch not in left.next_run


def right_at_the_end(journey: Journey) -> None:
    """I1: every batch, also those that were killed, has one commit in the target, in their order; I2–I5 by the oracle."""
    written = journey.pipeline.written("target")
    assert written == journey.pipeline.numbers("offsets") == list(range(len(written)))
    journey.verdict.assert_clean()
    assert not journey.verdict.notes


def test_every_batch_is_one_commit_and_the_oracle_finds_no_event_lost_doubled_or_let_in_from_an_aborted_transaction(
    journey: Journey,
) -> None:
    """Retries inside a batch, across batches, partitions and restarts are in what was produced."""
    right_at_the_end(journey)


def test_after_the_other_kills_too_every_batch_is_one_commit_and_the_oracle_finds_nothing(longer_journey: Journey) -> None:
    right_at_the_end(longer_journey)
