"""The clock jumps by a day, in both directions, between the attempt at a batch and its repetition. The result is the same."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ingest.lab.chaos.clock import DAY_S, library, shifted
from ingest.lab.oracle.oracle_tables import select
from ingest.lab.oracle.sources import Number
from ingest.runtime.crash_points import FIRST_BATCH
from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SECOND_MS = 1000


def planned_ms(lake: Pipeline) -> dict[Number, int]:
    """The planning time of each batch in the offset logs of all epochs, by the JVM's clock."""
    found = {}
    for path in lake.checkpoint().parent.glob("*/offsets/[0-9]*"):
        epoch, number = int(path.parts[-3]), int(path.name) + FIRST_BATCH
        found[epoch, number] = int(json.loads(path.read_text(encoding="utf-8").splitlines()[1])["batchTimestampMs"])
    return found


def test_a_clock_a_day_off_between_attempt_and_repetition_does_not_change_the_result(pipeline: PipelineFactory, tmp_path: Path) -> None:
    """One batch is cut off before its rows are committed, one after. Rows contain the time at which their batch was planned."""
    preload = library(tmp_path)
    if preload is None:
        pytest.skip("no C compiler for the library that moves a process's clock")
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    now_ms = time.time() * SECOND_MS
    for days, fault in ((1, "after_quarantine:kill@2"), (-1, "after_target:kill@3")):
        lake.crash(fault, environment=shifted(preload, days * DAY_S))
    lake.start(environment=shifted(preload, DAY_S)).ended(0)
    for batch, days in (((1, 2), 1), ((2, 2), -1), ((3, 2), 1)):
        assert abs(planned_ms(lake)[batch] - now_ms - days * DAY_S * SECOND_MS) < DAY_S * SECOND_MS / 10, "the clock was moved"
    for epoch, batch, ingested_at in select(lake.delta(), ["_epoch", "_batch", "_ingested_at"]):
        assert round(ingested_at.timestamp() * SECOND_MS) == planned_ms(lake)[epoch, batch]
    lake.produce(500, seed=2)
    lake.complete()
    lake.judge().assert_clean()
