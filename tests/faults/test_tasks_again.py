"""Tasks that fail and are tried again: what an attempt that failed has counted counts nowhere (I4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.conftest import PipelineFactory
from tests.faults.planted import Change, copy_with

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CALL = "report = process(records, number, self._table)"
# No bug of the engine: the source's own tasks fail, each once, after some records.
FAILING = Change(
    "none",
    "stream/query.py",
    (
        (CALL, CALL.replace("records,", "_failing(records),")),
        (
            "@dataclass(frozen=True)\nclass Trigger:",
            """def _failing(records: DataFrame) -> DataFrame:
    from pyspark import TaskContext
    from pyspark.sql import functions as F

    seen = []

    def fine(offset: int) -> bool:
        seen.append(offset)
        if TaskContext.get().attemptNumber() == 0 and len(seen) > 20:
            raise RuntimeError("the first attempt of this task")
        return True

    return records.where(F.udf(fine, "boolean")("offset"))


@dataclass(frozen=True)
class Trigger:""",
        ),
    ),
)


def test_tasks_that_are_tried_again_leave_every_count_exact(pipeline: PipelineFactory, tmp_path: Path) -> None:
    lake = pipeline(batch=1500, code=copy_with(FAILING, tmp_path / "failing"))
    lake.produce(2500, poison=40)
    lake.start(environment={"INGEST_MASTER": "local[2,4]"}).ended(0)
    log = "".join(path.read_text(encoding="utf-8", errors="replace") for path in (lake.lake / "logs").rglob("*.log"))
    assert log.count("Lost task") >= len(lake.written()), "tasks have failed"
    lake.judge().assert_clean()
    lake.verified()
