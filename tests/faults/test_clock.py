"""The clock jumps by a day, in both directions, between an attempt at a batch and its replay: the result is the same."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ingest.chaos.clock import DAY_S, library, shifted
from ingest.oracle.tables import select
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import batch_lines
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SECOND_MS = 1000


def planned_ms(lake: Pipeline, batch: int) -> int:
    """The time of a batch in Spark's offset log, by the clock of the JVM that planned it."""
    return int(json.loads((lake.checkpoint() / "offsets" / str(batch)).read_text().splitlines()[1])["batchTimestampMs"])


def test_clock_a_day_off_between_attempt_and_replay_the_result_is_the_same(pipeline: PipelineFactory, tmp_path: Path) -> None:
    """Batch 1 is cut off before its rows are committed, batch 2 after; rows carry the time at which their batch was planned."""
    preload = library(tmp_path)
    if preload is None:
        pytest.skip("neither a C compiler nor libfaketime, with which the clock of a process can be moved")
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    now_ms = time.time() * SECOND_MS
    for days, fault in ((1, "after_quarantine:kill@1"), (-1, "after_target:kill@2")):
        lake.start(fault=fault, environment=shifted(preload, days * DAY_S)).ended(-9)
    said = lake.start(environment=shifted(preload, DAY_S)).ended(0)
    assert "skipped" in batch_lines(said, "shop.orders")[2]
    for batch, days in ((1, 1), (2, -1)):
        assert abs(planned_ms(lake, batch) - now_ms - days * DAY_S * SECOND_MS) < DAY_S * SECOND_MS / 10, "the clock was moved"
    lake.produce(500, seed=2)
    lake.complete()
    ranges = {batch: lake.commits()[lake.version_of(batch)].ranges for batch in lake.written()}
    for partition, offset, ingested_at in select(lake.delta(), ["_partition", "_offset", "_ingested_at"]):
        (batch,) = (number for number, each in ranges.items() if each[partition][0] <= offset < each[partition][1])
        assert round(ingested_at.timestamp() * SECOND_MS) == planned_ms(lake, batch)
    lake.judge().assert_clean()
