"""SIGKILL at every crash point of a batch, in one lake. Each restart repeats the cut-off batch in a new epoch and is killed in turn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from ingest.lab.oracle.oracle_tables import select
from ingest.lab.oracle.sources import Number
from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline, ranges

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Each kill hits the second batch of its epoch. The first batch repeats what the previous kill cut off.
SPARK = os.environ.get("INGEST_WRITER") == "spark"  # `make faults` runs these tests with both writers
KILLS = ("after_quarantine", "during_target", "after_target")
MORE_KILLS = ("before_offset_log", "after_offset_log", "after_ledger", "after_commit_log")
ONLY_DIRECT = ("staged", "put_sent")
# Where files may be on the disk that no commit names.
WITH_ORPHANS = ("during_target",) if SPARK else ("staged", "after_quarantine", "during_target")
BATCH = 3


@dataclass(frozen=True)
class Left:
    """The state after a kill in `BATCH`: whether Spark has planned and committed the batch, and which tables contain it."""

    planned: bool
    done: bool
    quarantine: bool
    target: bool
    ledger: bool


EXPECTED = {
    "before_offset_log": Left(planned=False, done=False, quarantine=False, target=False, ledger=False),
    "after_offset_log": Left(planned=True, done=False, quarantine=False, target=False, ledger=False),
    "staged": Left(planned=True, done=False, quarantine=False, target=False, ledger=False),
    "put_sent": Left(planned=True, done=False, quarantine=True, target=True, ledger=False),
    "after_quarantine": Left(planned=True, done=False, quarantine=True, target=False, ledger=False),
    "during_target": Left(planned=True, done=False, quarantine=True, target=False, ledger=False),
    "after_target": Left(planned=True, done=False, quarantine=True, target=True, ledger=False),
    "after_ledger": Left(planned=True, done=False, quarantine=True, target=True, ledger=True),
    "after_commit_log": Left(planned=True, done=True, quarantine=True, target=True, ledger=False),
}


@pytest.mark.parametrize(
    "points",
    [KILLS, MORE_KILLS, pytest.param(ONLY_DIRECT, marks=pytest.mark.skipif(SPARK, reason="points of the direct writer"))],
    ids=["during the write", "before or after the write", "around the put"],
)
def test_a_batch_killed_at_each_crash_point_is_done_exactly_once(pipeline: PipelineFactory, points: tuple[str, ...]) -> None:
    """The quarantine is written first (I7). Its rows without a target commit are rolled back, and the run re-reads from the table's end.

    The topic contains aborted transactions (row 12) and copies inside a batch and across batches, partitions and restarts (row 14).
    """
    lake = pipeline(batch=900)
    lake.produce(6200, poison=90)
    ends: Mapping[int, int] = {}
    orphans: set[str] = set()
    for epoch, point in enumerate(points, 1):
        killed(lake, point)
        number = (epoch, BATCH)
        assert left(lake, number) == EXPECTED[point], point
        first = lake.batches()[-2 if EXPECTED[point].target else -1]
        assert first.number == (epoch, 2)
        assert not ends or {p: start for p, (start, _) in ranges(first).items()} == ends, "the batch starts at the table's end"
        ends = lake.ends()
        assert not lake.orphans() > orphans or point in WITH_ORPHANS, "files of no version"
        orphans = lake.orphans()
    last = lake.written()
    lake.complete()
    assert lake.written()[: len(last)] == last, "no commit was made twice"
    uncommitted = {(epoch, BATCH) for epoch, point in enumerate(points, 1) if EXPECTED[point].quarantine and not EXPECTED[point].target}
    assert uncommitted == set(lake.written("quarantine")) - set(lake.written())
    quarantined = {(epoch, batch) for epoch, batch in select(lake.delta("quarantine"), ["epoch", "batch"])}
    assert quarantined and quarantined <= set(lake.written()), "uncommitted batches are rolled back"
    assert lake.ledgered() == set(lake.written())
    lake.verified()
    verdict = lake.judge()
    verdict.assert_clean()
    assert not verdict.notes


def killed(lake: Pipeline, point: str) -> None:
    # With a pause after each batch, the watcher process cannot miss the moment before the next batch's offset log.
    trigger = ("--every", "300s") if point == "before_offset_log" else ("--once",)
    every = {"INGEST_LEDGER_EVERY_S": "0" if point == "after_ledger" else "3600"}
    lake.crash(f"{point}:kill@{BATCH}", *trigger, environment=every)


def left(lake: Pipeline, number: Number) -> Left:
    batch = number[1]
    planned, done = (batch in lake.numbers(log) for log in ("offsets", "commits"))
    return Left(planned, done, number in lake.written("quarantine"), number in lake.written(), number in lake.ledgered())
