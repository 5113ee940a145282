"""Checkpoints are deleted, torn or restored, between runs and during a run: the next batch starts at the table's end (I2)."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable

import pytest

from ingest.lab.oracle.sources import Number
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import until
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


def deleted(lake: Pipeline) -> None:
    shutil.rmtree(lake.checkpoints)


def torn(lake: Pipeline) -> None:
    """Damage files of the newest checkpoint, each in another way. Spark could not continue from any of them."""
    newest = lake.checkpoint()
    (newest / "metadata").write_bytes(b"")
    (newest / "offsets/1").write_bytes((newest / "offsets/1").read_bytes()[:20])
    shutil.rmtree(newest / "commits")
    (newest / "oncelake/epoch.json").write_text("{", encoding="utf-8")


def older(lake: Pipeline) -> None:
    """Replace the newest checkpoint by the first epoch's. Spark would plan its batches again, with other ranges."""
    newest = lake.checkpoint()
    shutil.rmtree(newest)
    shutil.copytree(newest.parent / "1", newest)


def restored(lake: Pipeline) -> None:
    """Restore a backup of all checkpoints from before the newest epoch."""
    shutil.rmtree(lake.checkpoint())


DAMAGES: tuple[Callable[[Pipeline], None], ...] = (older, torn, restored, deleted)


@pytest.mark.parametrize("point", ["after_quarantine", "after_target"])
def test_after_checkpoints_are_deleted_torn_or_replaced_between_two_runs_the_next_one_continues(
    pipeline: PipelineFactory, point: str
) -> None:
    """Each run is killed in its second batch, between two of its commits. Then its checkpoint is damaged, too."""
    lake = pipeline(batch=900)
    lake.produce(6200, poison=90)
    before: list[Number] = []
    for damage in DAMAGES:
        lake.crash(f"{point}:kill@3")
        epoch = lake.epoch()
        written = [(epoch, 2)] if point == "after_quarantine" else [(epoch, 2), (epoch, 3)]
        assert lake.written() == [*before, *written] and lake.written("quarantine")[-1] == (epoch, 3)
        before = lake.written()
        if damage is older and epoch == 1:
            lake.crash("after_offset_log:kill@2")  # with only one checkpoint, none is older
        damage(lake)
    assert f"there is no checkpoint of epoch {epoch}: nothing is lost" in lake.complete()
    lake.verified()
    lake.judge().assert_clean()


def test_a_run_whose_checkpoints_are_deleted_opens_a_new_epoch_by_itself(pipeline: PipelineFactory) -> None:
    """Deleted while a batch is planned, and between two batches. A batch that was committed meanwhile is not re-read."""
    lake = pipeline(batch=1500)
    lake.produce(4200, poison=60)
    driver = lake.start("--every", "0s", fault="after_offset_log:hang@3")
    driver.stopped()
    deleted(lake)
    driver.proceed()
    until(lambda: driver.process.poll() is not None or len(lake.written()) > 2, lambda: f"a batch of a new epoch; output:\n{driver.said}")
    assert driver.process.poll() is None and lake.epochs() == {1, 2}, driver.said
    lake.produce(900, seed=2)
    shutil.rmtree(lake.checkpoint())
    lake.produce(900, seed=3)
    end = lake.shown().end
    until(lambda: driver.process.poll() is not None or lake.ends() == end, lambda: f"the new records are read; output:\n{driver.said}")
    assert driver.process.poll() is None and "A new epoch is opened (2 of 3)" in driver.said
    driver.signal(signal.SIGTERM)
    assert "Traceback" not in driver.ended(0)
    lake.complete()
    lake.verified()
    lake.judge().assert_clean()


def test_an_exception_after_the_commit_opens_a_new_epoch_and_causes_no_second_commit(pipeline: PipelineFactory) -> None:
    """The run continues in a new epoch after the committed batch, and reports this in one line."""
    lake = pipeline(batch=1500)
    lake.produce(3000, poison=40)
    output = lake.start(fault="after_target:raise@3").ended(0)
    assert "InjectedFault: after_target@3 A new epoch is opened (1 of 3)" in output
    for word in ("Traceback", "StackOverflow", "\tat ", "py4j"):
        assert word not in output
    assert lake.written()[:3] == [(1, 2), (1, 3), (2, 2)]
    lake.verified()
    lake.judge().assert_clean()
