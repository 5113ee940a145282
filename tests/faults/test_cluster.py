"""The same command on a standalone cluster with two workers: work that is lost there is repeated, and its result is stored once."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from ingest.runtime.spark import ONE_COMPILER
from tests.cluster import Cluster
from tests.faults.code_mutants import BYPASSED, copy_with
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import Driver, until
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BATCHES = 3
DEFAULTS = """\
spark.executor.memory 768m
spark.sql.shuffle.partitions 4
spark.executor.extraJavaOptions {compiler} -XX:+UseSerialGC
spark.eventLog.enabled true
spark.eventLog.compress false
spark.eventLog.rolling.enabled false
spark.eventLog.dir {events}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=1, memory_mb=768) as running:
        yield running


@pytest.fixture
def lake(pipeline: PipelineFactory, cluster: Cluster, tmp_path: Path, quick: Mapping[str, str]) -> Pipeline:
    """A scenario of three batches whose runs use the cluster."""
    (tmp_path / "events").mkdir()
    (tmp_path / "spark-defaults.conf").write_text(
        DEFAULTS.format(events=(tmp_path / "events").as_uri(), compiler=ONE_COMPILER), encoding="utf-8"
    )
    made = pipeline(batch=1500)
    workers = {"PYSPARK_PYTHON": str(python_without_ingest(tmp_path))}
    made.environment = {**quick, **workers, "INGEST_MASTER": cluster.master_url, "SPARK_CONF_DIR": str(tmp_path)}
    made.produce(3600, poison=40)
    return made


def python_without_ingest(folder: Path) -> Path:
    """A Python for the executors with the same libraries but without this package, as on any cluster."""
    python = folder / "python"
    libraries = sysconfig.get_path("purelib")  # by PYTHONPATH, where .pth files of editable packages are not read
    base = Path(sys.base_prefix) / "bin" / Path(sys.executable).resolve().name
    ran = python.with_suffix(".ran")
    lines = ("#!/bin/sh", f"touch {ran}", f'PYTHONPATH="{libraries}:$PYTHONPATH" exec {base} "$@"', "")
    python.write_text("\n".join(lines), encoding="utf-8")
    python.chmod(0o755)
    imports = {name: subprocess.run([python, "-c", f"import {name}"], cwd=folder, check=False).returncode for name in ("msgspec", "ingest")}
    assert imports == {"msgspec": 0, "ingest": 1}
    ran.unlink()
    return python


def in_the_middle_of_a_merge(lake: Pipeline, cluster: Cluster) -> Driver:
    """A run whose driver is paused after the first data file of its second batch, before its commit."""
    driver = lake.start("--once", fault="during_target:hang@3")
    driver.stopped()
    assert lake.written() == [(1, 2)]
    assert len(cluster.executors()) == 2
    return driver


def nothing_is_lost_or_doubled(lake: Pipeline, cluster: Cluster) -> None:
    assert len(lake.written()) >= BATCHES
    assert Path(lake.environment["PYSPARK_PYTHON"]).with_suffix(".ran").exists(), "the executors used this Python to decode"
    lake.verified()
    lake.judge().assert_clean()
    until(lambda: not cluster.executors(), "all executors have ended")


def test_a_lake_that_executors_do_not_see_is_refused_by_name_and_one_that_they_share_is_not(lake: Pipeline, tmp_path: Path) -> None:
    """DIRECT_UNFIT: the folder of a process is another one in each executor, as a disk that only the driver has."""
    code = f"""
from pathlib import Path
from ingest.run.executor_disks import refuse_unshared
from ingest.runtime import spark
from ingest.runtime.errors import InvalidEnvironment
with spark.session({lake.environment["INGEST_MASTER"]!r}, Path("spark.log").resolve(), short=True) as session:
    refuse_unshared(session, "shop.orders", {str(tmp_path / "shared")!r})
    try:
        refuse_unshared(session, "shop.orders", "/proc/self/cwd/own")
    except InvalidEnvironment as error:
        print(error.code, error.found)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, **lake.environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith("LAKE_NOT_SHARED the lake of shop.orders, /proc/self/cwd/own, is not the same folder on the executor")
    assert not [*(tmp_path / "shared").iterdir(), *(tmp_path / "own").iterdir()], "the question leaves nothing behind"


def test_the_direct_writer_takes_the_files_of_executors(lake: Pipeline, cluster: Cluster) -> None:
    lake.start("--once", "--writer", "direct").ended(0)
    nothing_is_lost_or_doubled(lake, cluster)


def test_executors_lost_between_quarantine_and_merge_have_their_partitions_recomputed(lake: Pipeline, cluster: Cluster) -> None:
    """All executors are lost between quarantine and MERGE, with the batch's cached partitions and shuffle files."""
    driver = lake.start("--once", fault="after_quarantine:hang@3")
    driver.stopped()
    victims = cluster.executors()
    for victim in victims:
        victim.kill()
    until(lambda: not any(map(running, victims)), "the executors have ended; the master starts others")
    driver.proceed()
    driver.ended(0)
    log = lake.spark_log()
    assert log.count("Lost executor") == len(victims) == 2
    assert "No more replicas available for rdd_" in log, "they had cached partitions of the batch that the MERGE reads"
    nothing_is_lost_or_doubled(lake, cluster)


def test_executors_killed_while_they_run_merge_tasks_have_those_tasks_retried(lake: Pipeline, cluster: Cluster, tmp_path: Path) -> None:
    """Stopped executors accept tasks but run none, so a job waits for them. Then they are killed."""
    driver = lake.start("--once", fault="after_quarantine:hang@3")
    driver.stopped()
    victims = cluster.executors()
    for victim in victims:
        victim.suspend()
    waits = Waits(tmp_path)
    driver.proceed()
    until(waits, "a job of the MERGE waits for its tasks")
    assert lake.written() == [(1, 2)]
    for victim in victims:
        victim.kill()
    driver.ended(0)
    assert lake.spark_log().count("Lost executor") == len(victims) == 2
    assert events(tmp_path).count('"Reason":"ExecutorLostFailure"') >= 1, "they were running tasks"
    nothing_is_lost_or_doubled(lake, cluster)


def events(folder: Path) -> str:
    """Spark's event log."""
    return "".join(path.read_text(encoding="utf-8") for path in folder.glob("events/*"))


class Waits:
    """True once a job that started after construction has stayed open for `LOOKS` polls in a row without any other event."""

    LOOKS = 50

    def __init__(self, folder: Path) -> None:
        self._folder, self._looks = folder, 0
        self._before = self._seen = self._jobs()

    def _jobs(self) -> tuple[int, int]:
        """How many jobs have started and ended."""
        text = events(self._folder)
        return text.count('"Event":"SparkListenerJobStart"'), text.count('"Event":"SparkListenerJobEnd"')

    def __call__(self) -> bool:
        former, self._seen = self._seen, self._jobs()
        started, ended = self._seen
        self._looks = self._looks + 1 if self._seen == former and started > max(ended, self._before[0]) else 0
        return self._looks >= self.LOOKS


def test_a_worker_lost_during_a_merge_leaves_the_rest_of_the_work_to_the_other_worker(lake: Pipeline, cluster: Cluster) -> None:
    driver = in_the_middle_of_a_merge(lake, cluster)
    cluster.kill_worker(0)
    try:
        assert len(cluster.executors()) == 1
        driver.proceed()
        driver.ended(0)
        assert "Lost executor" in lake.spark_log(), "the run noticed the loss"
        nothing_is_lost_or_doubled(lake, cluster)
    finally:
        cluster.start_worker()


def test_a_driver_killed_during_a_merge_leaves_no_executor_and_the_next_run_completes_the_batch(lake: Pipeline, cluster: Cluster) -> None:
    lake.crash("during_target:kill@3")
    assert lake.written() == [(1, 2)]
    until(lambda: not cluster.executors(), "executors without a driver have ended")
    lake.complete()
    nothing_is_lost_or_doubled(lake, cluster)


def test_a_stopped_cluster_leaves_no_process(tmp_path: Path) -> None:
    with Cluster(tmp_path / "one", workers=1) as running:
        members = [process for worker in running.workers for process in worker.processes()]
        assert members
        state = running.told()
        assert state is not None and state["url"] == running.master_url
    assert not [process for process in members if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert running.told() is None


def test_retried_tasks_leave_every_count_exact(pipeline: PipelineFactory, tmp_path: Path) -> None:
    lake = pipeline(batch=1500, code=copy_with(BYPASSED["each task of the source fails once"], tmp_path / "failing"))
    lake.produce(2500, poison=40)
    lake.start(environment={"INGEST_MASTER": "local[2,4]"}).ended(0)
    assert lake.spark_log().count("Lost task") >= len(lake.written()), "tasks have failed"
    lake.judge().assert_clean()
    lake.verified()


def running(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
