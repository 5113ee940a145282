"""Two drivers at once, as real processes: the locks stop the second one, and without them no event is stored twice (I3, I8)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.faults.conftest import PipelineFactory
from tests.faults.driver import holder
from tests.faults.pipeline import Pipeline
from tests.faults.planted import BYPASSED, copy_with

pytestmark = pytest.mark.timeout(900)

IMPATIENT = {"INGEST_LOCK_WAIT_S": "0.5"}


@pytest.fixture
def lake(pipeline: PipelineFactory) -> Pipeline:
    """Three batches to read, retries of one event in several of them."""
    made = pipeline(batch=1500)
    made.produce(3200, poison=40)
    return made


@pytest.mark.slow
def test_a_second_driver_is_locked_out_and_with_the_locks_bypassed_no_event_is_stored_twice(lake: Pipeline, tmp_path: Path) -> None:
    """The first stands still in the middle of a MERGE; a second one that ignores its locks writes the same batch and goes on; then
    the first wakes up and commits."""
    first = lake.start(fault="during_target:hang@0")
    first.stopped()
    python_pid, jvm_pid = holder(lake.lock())
    named = f"host {socket.gethostname()}, JVM process {jvm_pid}, Python process {python_pid}"
    assert python_pid == first.pid

    elsewhere = {**IMPATIENT, "INGEST_CHECKPOINTS": str(tmp_path / "other checkpoints")}
    for environment in (IMPATIENT, elsewhere):  # with one checkpoint, and with another on the same table, whose lock is asked for first
        said = lake.start(environment=environment).ended(3)
        assert "ingest: LOCKED: " in said and str(lake.delta().parent / "lock") in said and named in said
    assert lake.written("target") == []

    kept, lake.code = lake.code, copy_with(BYPASSED["no lock is taken"], tmp_path / "bypassed")
    second = lake.start().ended(0)
    lake.code = kept
    assert "shop.orders batch 2" in second
    first.proceed()
    first.died()  # how it ends is not promised: it may meet its own commit, Spark's log, or the ledger written by the other
    first.gone()
    written = lake.written("target")
    assert written == list(range(len(written))), "each batch has one commit"

    said = lake.complete()
    assert "LOCKED" not in said, "a lock whose holder is gone holds nobody up"
    lake.judge().assert_clean()


@pytest.mark.slow
def test_a_lock_whose_holder_was_killed_is_recognised_as_free(lake: Pipeline) -> None:
    killed = lake.crash("after_target:kill@1")
    assert holder(lake.lock())[0] == killed.pid, "its name is still in the file"
    assert "LOCKED" not in lake.start(environment=IMPATIENT).ended(0)
    lake.judge().assert_clean()
