"""Tasks that fail and are tried again: what an attempt that failed has counted counts nowhere (I4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.conftest import PipelineFactory
from tests.faults.planted import BYPASSED, copy_with

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_tasks_that_are_tried_again_leave_every_count_exact(pipeline: PipelineFactory, tmp_path: Path) -> None:
    lake = pipeline(batch=1500, code=copy_with(BYPASSED["each task of the source fails once"], tmp_path / "failing"))
    lake.produce(2500, poison=40)
    lake.start(environment={"INGEST_MASTER": "local[2,4]"}).ended(0)
    assert lake.spark_log().count("Lost task") >= len(lake.written()), "tasks have failed"
    lake.judge().assert_clean()
    lake.verified()
