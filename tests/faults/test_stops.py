"""Drivers that stop by themselves, are paused, receive a signal, or lose one of their two processes, in turn in one lake.

The fault `hang` pauses a driver at a known point of a batch, so that a signal reaches it exactly there.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.lab.oracle.sources import Number
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import Driver, holder, until
from tests.faults.pipeline import Pipeline
from tests.unit.observe.metrics.test_run_metrics import scraped

pytestmark = pytest.mark.timeout(900)

IMPATIENT = {"INGEST_LOCK_WAIT_S": "0.5"}
# What a person or a supervisor regards as immediate, doubled for a loaded machine.
AT_ONCE_S = 4.0


def produce_a_batch(lake: Pipeline) -> None:
    """About 1,300 offsets, including aborted records and markers."""
    lake.produce(900, poison=15, seed=1 + len(lake.manifests))


@pytest.fixture(scope="module")
def shared_lake(shared_pipeline: PipelineFactory) -> Pipeline:
    """A lake with a batch to read. A test that needs another batch produces it."""
    made = shared_pipeline(batch=1500)
    produce_a_batch(made)
    return made


@pytest.fixture
def lake(shared_lake: Pipeline) -> Iterator[Pipeline]:
    """The lake. Its drivers are killed after each test, whether it passed or failed."""
    yield shared_lake
    shared_lake.close()


def metrics_url(said: str) -> str:
    """The address that a run prints; empty before."""
    found = re.search(r"metrics: (http://[\w.:/]+/metrics)", said)
    return found[1] if found else ""


def hang(lake: Pipeline, point: str, *arguments: str) -> tuple[Driver, Number]:
    """A driver paused at `point` of its first batch. The topic contains another batch after it."""
    produce_a_batch(lake)
    driver = lake.start(*arguments, fault=f"{point}:hang@2")
    driver.stopped()
    return driver, (lake.epoch(), 2)


@pytest.mark.slow
def test_above_the_quarantine_limit_the_run_stops_and_writes_nothing_of_the_batch(lake: Pipeline) -> None:
    """I5. Afterwards the contract raises the limit again, and the following tests read the batch; the oracle checks it at the end."""
    lake.write_contracts(max_share=0.001)
    output = lake.start().ended(5)
    assert "ingest: QUARANTINE_LIMIT: " in output and "records of batch 2 of shop.orders would go to quarantine" in output
    assert "Traceback" not in output
    assert (lake.numbers("offsets"), lake.written("target"), lake.written("quarantine")) == ([2], [], [])
    lake.write_contracts(max_share=0.2)


@pytest.mark.slow
def test_a_paused_driver_keeps_its_lock_and_on_sigterm_finishes_the_current_batch(lake: Pipeline) -> None:
    first, batch = hang(lake, "after_quarantine", "--every", "0s")
    refused = lake.start(environment=IMPATIENT).ended(3)
    python_pid, jvm_pid = holder(lake.lock())
    assert "LOCKED" in refused and f"JVM process {jvm_pid}, Python process {python_pid}" in refused
    assert python_pid == first.pid and [process.pid for process in first.jvms()] == [jvm_pid]
    first.jvms()[0].terminate()  # as systemd does, which signals every process of a service
    first.signal(signal.SIGTERM)
    first.proceed()
    output = first.ended(0)
    assert "stopping: finishing the current batch first" in output
    assert lake.numbers("commits") == [2] and lake.written()[-1] == batch, "the batch is in the commit log, and no other was started"


@pytest.mark.slow
def test_python_without_its_jvm_stops_with_one_clear_error(lake: Pipeline) -> None:
    driver, batch = hang(lake, "after_quarantine")
    (jvm,) = driver.jvms()
    jvm.kill()
    driver.proceed()
    output = driver.ended(5)
    assert "ingest: JVM_GONE: " in output
    assert "Traceback" not in output and "py4j" not in output
    assert batch not in lake.written()


@pytest.mark.slow
def test_a_jvm_without_its_python_keeps_the_lock_and_a_new_start_waits_until_it_is_gone(lake: Pipeline) -> None:
    killed, batch = hang(lake, "after_quarantine")
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.died() == -9
    assert "LOCKED" in lake.start(environment=IMPATIENT).ended(3), "the lock outlives Python"
    following = lake.start(fault="after_target:hang@2")
    killed.proceed()
    killed.gone()
    following.stopped()
    assert batch not in lake.written() and lake.written()[-1] == (batch[0] + 1, 2), "the killed driver's batch is re-read"
    following.interrupt()
    following.proceed()
    following.ended(130)
    assert lake.numbers("commits") == [2] and lake.written()[-1] == (batch[0] + 1, 2), "Ctrl-C finishes the current batch, too"


def ends_at_once(driver: Driver, number: int, code: int) -> str:
    """Send a signal; the driver must end within AT_ONCE_S and leave no process behind."""
    before = time.monotonic()
    driver.interrupt() if number == signal.SIGINT else driver.signal(number)
    assert driver.died() == code, driver.said
    assert time.monotonic() - before < AT_ONCE_S
    assert not driver.jvms(), "no JVM is left that ends later"
    assert "stopped before anything was read" in driver.said and "Traceback" not in driver.said
    return driver.said


def test_a_start_that_waits_for_a_lock_stops_at_once_on_a_signal(lake: Pipeline) -> None:
    epoch = lake.epoch()
    lake.lock().parent.mkdir(parents=True, exist_ok=True)
    with lake.lock().open("a+b") as lock_file:
        fcntl.lockf(lock_file, fcntl.LOCK_EX)
        for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
            driver = lake.start("--every", "0s", "--metrics", "0")
            until(lambda driver=driver: "note: waiting up to 60 s for " in driver.said, "the driver waits for the lock")  # type: ignore[misc]
            assert scraped(metrics_url(driver.said))["oncelake_run_up orders"] == 0
            ends_at_once(driver, number, code)
    assert lake.epoch() == epoch, "no epoch was opened"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_while_spark_is_starting_stops_the_run_at_once_and_leaves_no_jvm(lake: Pipeline, number: int, code: int) -> None:
    epoch = lake.epoch()
    driver = lake.start("--every", "0s")
    until(driver.jvms, "a JVM is running")
    ends_at_once(driver, number, code)
    assert lake.epoch() == epoch, "no epoch was opened"


@pytest.mark.slow
def test_a_run_serves_its_metrics_and_logs_in_json_until_a_signal(lake: Pipeline) -> None:
    produce_a_batch(lake)
    driver = lake.start("--every", "0s", "--metrics", "0", "--log-format", "json")
    url = until(lambda: metrics_url(driver.said), "the run says where its metrics are")
    until(lambda: scraped(url).get("oncelake_lag_offsets orders") == 0, "everything is read")
    found = scraped(url)
    driver.signal(signal.SIGTERM)
    lines = [json.loads(line) for line in driver.ended(0).splitlines()]
    batches = [line for line in lines if line["event"] == "batch"]
    assert {(line["pipeline"], line["table"], line["epoch"]) for line in batches} == {("shop", "orders", lake.epoch())}
    assert found["oncelake_batches_total orders"] == len(batches) == found["oncelake_batch_seconds_count orders"]
    for name in ("read", "inserted", "duplicate", "quarantined"):
        key = "records_read" if name == "read" else name
        assert found[f"oncelake_records_{name}_total orders"] == sum(line[key] for line in batches), name
    assert [line["event"] for line in lines if line["event"] != "batch"][-2:] == ["stopping", "stopped"]


@pytest.mark.slow
def test_a_run_whose_output_pipe_closes_finishes_the_current_batch_and_stops_quietly(lake: Pipeline) -> None:
    """`ingest run | head -1`: exit code 0, as on SIGTERM."""
    produce_a_batch(lake)
    output = lake.command("run", "--every", "0s", reader="head -1").ended(0)
    assert output.startswith("running: shop.orders") and len(output.splitlines()) == 1
    assert lake.written()[-1] == (lake.epoch(), lake.numbers("commits")[-1]), "the batch is finished and in the commit log"


@pytest.mark.slow
def test_after_all_these_stops_the_oracle_finds_nothing(lake: Pipeline) -> None:
    until(lambda: not any(driver.left() for driver in lake.drivers), "all drivers have ended")
    lake.complete()
    lake.verified()
    lake.judge().assert_clean()
    assert not (lake.lake / "logs" / "tmp").exists(), "the next start removes the temporary files of killed JVMs"


def python_without(package: str, folder: Path) -> Path:
    """A Python for Spark's workers with all libraries of this one except `package`."""
    libraries, python = folder / "libraries", folder / "python"
    libraries.mkdir()
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if each.name != package:
            (libraries / each.name).symlink_to(each)
    base = Path(sys.base_prefix) / "bin" / Path(sys.executable).resolve().name
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{libraries}:$PYTHONPATH" exec {base} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("package", ["msgspec", "pyarrow"])
def test_a_package_that_workers_lack_is_named_with_the_command_that_adds_it(lake: Pipeline, tmp_path: Path, package: str) -> None:
    produce_a_batch(lake)
    python = python_without(package, tmp_path)
    written = lake.written()
    said = lake.start("--once", environment={**IMPATIENT, "PYSPARK_PYTHON": str(python)}).ended(5)
    assert "ingest: WORKER_PACKAGE_MISSING: " in said and f"has no package {package}." in said
    assert f"`{python} -m pip install {package}`" in said
    assert lake.written() == written
    lake.start("--once").ended(0)
    lake.verified()
