"""Drivers that stop by themselves, are stopped, told to stop, or lose one of their two processes, one after the other in one lake.

The fault `hang` stops a driver at a known place in a batch, so that a signal meets it there and not by chance somewhere else.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator

import pytest

from ingest.lab.oracle.sources import Number
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import Driver, holder, until
from tests.faults.pipeline import Pipeline

pytestmark = pytest.mark.timeout(900)

IMPATIENT = {"INGEST_LOCK_WAIT_S": "0.5"}
# What a person or a supervisor takes for at once; a loaded machine gets the double.
AT_ONCE_S = 4.0


def produce_a_batch(lake: Pipeline) -> None:
    """About 1,300 offsets, with what was aborted and the markers."""
    lake.produce(900, poison=15, seed=1 + len(lake.manifests))


@pytest.fixture(scope="module")
def shared_lake(shared_pipeline: PipelineFactory) -> Pipeline:
    """A lake with a batch to read; a test that needs another one writes it."""
    made = shared_pipeline(batch=1500)
    produce_a_batch(made)
    return made


@pytest.fixture
def lake(shared_lake: Pipeline) -> Iterator[Pipeline]:
    """The lake, left without drivers whatever became of the test."""
    yield shared_lake
    shared_lake.close()


def hang(lake: Pipeline, point: str, *arguments: str) -> tuple[Driver, Number]:
    """A driver stopped at `point` of its first batch; another one is there to be read after it."""
    produce_a_batch(lake)
    driver = lake.start(*arguments, fault=f"{point}:hang@2")
    driver.stopped()
    return driver, (lake.epoch(), 2)


@pytest.mark.slow
def test_beyond_the_quarantine_limit_the_run_stops_with_nothing_of_the_batch_written(lake: Pipeline) -> None:
    """I5: the limit is raised in the contract, and the tests that follow read on; the oracle misses nothing in the end."""
    lake.write_contracts(max_share=0.001)
    said = lake.start().ended(5)
    assert "ingest: QUARANTINE_LIMIT: " in said and "records of batch 2 of shop.orders would go to quarantine" in said
    assert "Traceback" not in said
    assert (lake.numbers("offsets"), lake.written("target"), lake.written("quarantine")) == ([2], [], [])
    lake.write_contracts(max_share=0.2)


@pytest.mark.slow
def test_a_driver_that_stands_still_keeps_its_lock_and_on_sigterm_ends_the_batch_at_hand(lake: Pipeline) -> None:
    first, batch = hang(lake, "after_quarantine", "--every", "0s")
    refused = lake.start(environment=IMPATIENT).ended(3)
    python_pid, jvm_pid = holder(lake.lock())
    assert "LOCKED" in refused and f"JVM process {jvm_pid}, Python process {python_pid}" in refused
    assert python_pid == first.pid and [process.pid for process in first.jvms()] == [jvm_pid]
    first.jvms()[0].terminate()  # as systemd does, which tells every process of a service
    first.signal(signal.SIGTERM)
    first.proceed()
    said = first.ended(0)
    assert "stopping: finishing the current batch first" in said
    assert lake.numbers("commits") == [2] and lake.written()[-1] == batch, "ended, in the commit log, and no other begun"


def test_without_its_jvm_python_ends_with_one_clear_error(lake: Pipeline) -> None:
    driver, batch = hang(lake, "after_quarantine")
    (jvm,) = driver.jvms()
    jvm.kill()
    driver.proceed()
    said = driver.ended(5)
    assert "ingest: JVM_GONE: " in said
    assert "Traceback" not in said and "py4j" not in said
    assert batch not in lake.written()


@pytest.mark.slow
def test_without_its_python_the_jvm_keeps_the_lock_until_it_is_gone_and_a_new_start_waits_for_it(lake: Pipeline) -> None:
    killed, batch = hang(lake, "after_quarantine")
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.died() == -9
    assert "LOCKED" in lake.start(environment=IMPATIENT).ended(3), "the lock outlives Python"
    following = lake.start(fault="after_target:hang@2")
    killed.proceed()
    killed.gone()
    following.stopped()
    assert batch not in lake.written() and lake.written()[-1] == (batch[0] + 1, 2), "what it had begun is read again"
    following.interrupt()
    following.proceed()
    following.ended(130)
    assert lake.numbers("commits") == [2] and lake.written()[-1] == (batch[0] + 1, 2), "Ctrl-C ends the batch at hand, too"


def ends_at_once(driver: Driver, number: int, code: int) -> str:
    """Send a signal; the driver must end within a moment, and leave nothing that could end later."""
    before = time.monotonic()
    driver.interrupt() if number == signal.SIGINT else driver.signal(number)
    assert driver.died() == code, driver.said
    assert time.monotonic() - before < AT_ONCE_S
    assert not driver.jvms(), "a JVM that ends by itself, later"
    assert "stopped before anything was read" in driver.said and "Traceback" not in driver.said
    return driver.said


def test_a_start_that_waits_for_a_lock_hears_a_stop_at_once(lake: Pipeline) -> None:
    epoch = lake.epoch()
    with lake.lock().open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
            driver = lake.start("--every", "0s")
            until(lambda driver=driver: "note: waiting up to 60 s for " in driver.said, "a driver that waits")  # type: ignore[misc]
            ends_at_once(driver, number, code)
    assert lake.epoch() == epoch, "no epoch was opened"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"])
def test_a_start_hears_a_stop_while_spark_comes_up_and_leaves_no_jvm(lake: Pipeline, number: int, code: int) -> None:
    epoch = lake.epoch()
    driver = lake.start("--every", "0s")
    until(driver.jvms, "a JVM")
    ends_at_once(driver, number, code)
    assert lake.epoch() == epoch, "no epoch was opened"


@pytest.mark.slow
def test_a_run_whose_reader_goes_away_ends_the_batch_at_hand_and_stops_quietly(lake: Pipeline) -> None:
    """`ingest run | head -1`: exit code 0, as on SIGTERM."""
    produce_a_batch(lake)
    said = lake.command("run", "--every", "0s", reader="head -1").ended(0)
    assert said.startswith("running: shop.orders") and len(said.splitlines()) == 1
    assert lake.written()[-1] == (lake.epoch(), lake.numbers("commits")[-1]), "ended, and in the commit log"


def test_after_all_of_them_the_oracle_finds_nothing(lake: Pipeline) -> None:
    until(lambda: not any(driver.left() for driver in lake.drivers), "the end of all drivers")
    lake.complete()
    lake.verified()
    lake.judge().assert_clean()
    assert not (lake.lake / "logs" / "tmp").exists(), "what killed JVMs have left is removed by the next start"
