"""Checkpoints deleted, torn, or put back as they were, between runs and beneath one: the next batch begins where the table ends (I2)."""

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
    """Files of the newest one, each damaged in another way: as Spark would not read them, were it to go on with it."""
    newest = lake.checkpoint()
    (newest / "metadata").write_bytes(b"")
    (newest / "offsets/1").write_bytes((newest / "offsets/1").read_bytes()[:20])
    shutil.rmtree(newest / "commits")
    (newest / "oncelake/epoch.json").write_text("{", encoding="utf-8")


def older(lake: Pipeline) -> None:
    """The first epoch's in place of the newest: Spark would plan its batches anew, with other ranges."""
    newest = lake.checkpoint()
    shutil.rmtree(newest)
    shutil.copytree(newest.parent / "1", newest)


def gone_back(lake: Pipeline) -> None:
    """A backup of all of them, from before the newest epoch."""
    shutil.rmtree(lake.checkpoint())


HARMS: tuple[Callable[[Pipeline], None], ...] = (older, torn, gone_back, deleted)


@pytest.mark.parametrize("point", ["after_quarantine", "after_target"])
def test_whatever_has_become_of_checkpoints_between_two_runs_the_next_one_goes_on(pipeline: PipelineFactory, point: str) -> None:
    """Each run is killed in its second batch, between two commits of it; then its checkpoint is harmed, too."""
    lake = pipeline(batch=900)
    lake.produce(6200, poison=90)
    begun: list[Number] = []
    for harm in HARMS:
        lake.crash(f"{point}:kill@3")
        epoch = lake.epoch()
        written = [(epoch, 2)] if point == "after_quarantine" else [(epoch, 2), (epoch, 3)]
        assert lake.written() == [*begun, *written] and lake.written("quarantine")[-1] == (epoch, 3)
        begun = lake.written()
        if harm is older and epoch == 1:
            lake.crash("after_offset_log:kill@2")  # with only one there is none that is older
        harm(lake)
    assert f"there is no checkpoint of epoch {epoch}: nothing is lost" in lake.complete()
    lake.verified()
    lake.judge().assert_clean()


def test_checkpoints_deleted_or_torn_beneath_a_run_lead_to_a_new_epoch_by_itself(pipeline: PipelineFactory) -> None:
    """Deleted while a batch is planned, and between two batches; a batch that was committed meanwhile is not read again."""
    lake = pipeline(batch=1500)
    lake.produce(4200, poison=60)
    driver = lake.start("--every", "0s", fault="after_offset_log:hang@3")
    driver.stopped()
    deleted(lake)
    driver.proceed()
    until(lambda: driver.process.poll() is not None or len(lake.written()) > 2, lambda: f"batches of a new epoch; {driver.said}")
    assert driver.process.poll() is None and lake.epochs() == {1, 2}, driver.said
    lake.produce(900, seed=2)
    shutil.rmtree(lake.checkpoint())
    lake.produce(900, seed=3)
    end = lake.shown().end
    until(lambda: driver.process.poll() is not None or lake.ends() == end, lambda: f"what was produced since; {driver.said}")
    assert driver.process.poll() is None and "A new epoch is opened (2 of 3)" in driver.said
    driver.signal(signal.SIGTERM)
    assert "Traceback" not in driver.ended(0)
    lake.complete()
    lake.verified()
    lake.judge().assert_clean()


def test_an_exception_behind_the_commit_reopens_the_run_by_itself_and_makes_no_second_commit(pipeline: PipelineFactory) -> None:
    """It goes on in a new epoch behind the batch that is there, and says so in one line."""
    lake = pipeline(batch=1500)
    lake.produce(3000, poison=40)
    said = lake.start(fault="after_target:raise@3").ended(0)
    assert "InjectedFault: after_target@3 A new epoch is opened (1 of 3)" in said
    for word in ("Traceback", "StackOverflow", "\tat ", "py4j"):
        assert word not in said
    assert lake.written()[:3] == [(1, 2), (1, 3), (2, 2)]
    lake.verified()
    lake.judge().assert_clean()
