"""Killed while Spark purges the old files of its checkpoint: the restart needs none of those that are half gone."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.faults.conftest import PipelineFactory
from tests.faults.driver import DEADLINE_S, holder, until
from tests.faults.pipeline import with_jvm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Spark keeps the files of a hundred batches; with two it purges after every batch.
PURGING = with_jvm("-Dspark.sql.streaming.minBatchesToRetain=2")
KILLS = 3


def test_killed_while_old_checkpoint_files_are_purged_a_restart_goes_on(pipeline: PipelineFactory) -> None:
    """Each kill comes at the moment at which the oldest file of the offset log goes; its batch's commit file goes after it."""
    lake = pipeline(batch=300)
    lake.produce(6000, poison=40)
    for _ in range(KILLS):
        number = min(lake.numbers("offsets"), default=0)
        oldest, done = (lake.checkpoint() / log / str(number) for log in ("offsets", "commits"))
        driver = lake.start("--every", "0s", environment=PURGING)
        until(lambda driver=driver: lake.locked_by(driver), "a driver that holds the lock")  # type: ignore[misc]
        python_pid, _ = holder(lake.lock())
        until(oldest.exists, "the batch that will be purged")
        deadline = time.monotonic() + DEADLINE_S
        # Without a pause: the commit file goes a moment later.
        while oldest.exists():
            assert time.monotonic() < deadline, driver.said
        os.killpg(python_pid, signal.SIGKILL)
        driver.ended(-9)
        print(f"batch {number}: its commit file is {'there' if done.exists() else 'gone'}, offsets {lake.numbers('offsets')}")
    # The kill may have come too late for it: this is how it would have left the last of them.
    done.write_bytes((done.parent / str(lake.numbers("commits")[-1])).read_bytes())
    assert done.exists() and not oldest.exists()
    lake.start(environment=PURGING).ended(0)
    assert min(lake.numbers("offsets")) > KILLS, "files were purged"
    written = lake.written()
    assert written == list(range(len(written)))
    lake.judge().assert_clean()
