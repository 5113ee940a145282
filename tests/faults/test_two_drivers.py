"""Two drivers at once, and a store that reports an error after each commit.

On a local disk the lock stops the second driver. If the lock is bypassed on a store with exclusive commits, the later epoch continues and
the earlier one ends as FENCED (I8). The failing store causes no second commit (I1).
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyspark
import pytest

from ingest.runtime import jars, java
from tests.faults.code_mutants import BYPASSED, copy_with
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import holder
from tests.faults.pipeline import BY_SPARK, KINDS, Pipeline, with_jvm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOURCE = Path(__file__).with_name("stores.scala")
IMPATIENT = {"INGEST_LOCK_WAIT_S": "0.5"}


def compiled(folder: Path) -> list[Path]:
    """Compile the stores into `folder`; return their class path."""
    folder.mkdir(exist_ok=True)
    of_spark = Path(pyspark.__file__).parent / "jars"
    delta = next(path for path in jars.ensure(jars.JarSet.SPARK) if path.name.startswith("delta-storage-"))
    # Spark ships the compiler that it was built with.
    compiler = [next(of_spark.glob(f"scala-{part}-2*.jar")) for part in ("library", "compiler", "reflect")]
    known = _together([compiler[0], next(of_spark.glob("hadoop-client-api-*.jar")), delta])
    command = [str(java.find().home / "bin" / "java"), "-Xmx512m", "-cp", _together(compiler), "scala.tools.nsc.Main"]
    subprocess.run([*command, "-cp", known, "-d", str(folder), str(SOURCE)], check=True, timeout=300, stdin=subprocess.DEVNULL)
    return [folder, delta]


def with_store(folder: Path, store: str, *options: str) -> dict[str, str]:
    """The environment of a run that commits through this store and whose JVM has these options."""
    folder.mkdir()
    lines = {
        "spark.driver.extraClassPath": _together(compiled(folder / "classes")),
        "spark.delta.logStore.file.impl": f"org.apache.hadoop.fs.local.{store}",
    }
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()), encoding="utf-8")
    return {"SPARK_CONF_DIR": str(folder), **with_jvm(*options)}


def _together(files: Sequence[Path]) -> str:
    return ":".join(map(str, files))


@pytest.fixture
def lake(pipeline: PipelineFactory) -> Pipeline:
    """Three batches to read. Several of them contain retries of the same event."""
    made = pipeline(batch=1500)
    made.produce(3200, poison=60)
    return made


@pytest.mark.parametrize("point", ["after_quarantine", "during_target", "after_target"])
def test_a_paused_driver_is_fenced_by_a_second_one_and_does_no_harm(lake: Pipeline, tmp_path: Path, point: str) -> None:
    """Its next statement (on the quarantine or the target) is skipped or fails while it runs. The second driver has its own checkpoints."""
    lake.environment = {**lake.environment, **with_store(tmp_path / "spark", "Exclusive")}
    first = lake.start(fault=f"{point}:hang@3")
    first.stopped()
    committed = [(1, 2), (1, 3)] if point == "after_target" else [(1, 2)]
    assert lake.written() == committed and lake.written("quarantine") == [(1, 2), (1, 3)]

    lake.code = copy_with(BYPASSED["no lock is taken"], tmp_path / "bypassed")
    lake.start(environment={"INGEST_CHECKPOINTS": str(tmp_path / "other checkpoints")}).ended(0)
    written = lake.written()
    assert written[: len(committed) + 1] == [*committed, (2, 2)]

    first.proceed()
    output = first.ended(5)
    assert "ingest: FENCED: another run has taken epoch 2 of shop.orders; this one is epoch 1" in output and "Traceback" not in output
    assert lake.written() == written and {epoch for epoch, _ in lake.written("quarantine")[2:]} == {2}
    lake.produce(800, poison=20, seed=2)
    lake.complete()
    lake.verified()
    lake.judge().assert_clean()


def test_a_second_driver_is_locked_out_until_the_holder_of_the_lock_is_killed(lake: Pipeline, tmp_path: Path) -> None:
    first = lake.start(fault="during_target:hang@2")
    first.stopped()
    python_pid, jvm_pid = holder(lake.lock())
    named = f"host {socket.gethostname()}, JVM process {jvm_pid}, Python process {python_pid}"
    assert python_pid == first.pid
    elsewhere = {**IMPATIENT, "INGEST_CHECKPOINTS": str(tmp_path / "other checkpoints")}
    for environment in (IMPATIENT, elsewhere):
        output = lake.start(environment=environment).ended(3)
        assert "ingest: LOCKED: " in output and str(lake.lock()) in output and named in output
    assert "ingest: LOCKED: " in lake.command("seek", "orders", "--to", "table", environment=IMPATIENT).ended(3)
    assert lake.written() == []
    first.kill_all()
    assert holder(lake.lock())[0] == first.pid, "the lock file still names the killed driver"
    assert "LOCKED" not in lake.start(environment=IMPATIENT).ended(0)
    lake.judge().assert_clean()


@pytest.mark.parametrize("answer", ["error", "exists"])
def test_a_store_that_reports_an_error_after_each_commit_causes_no_second_commit(lake: Pipeline, tmp_path: Path, answer: str) -> None:
    """The error after creating a table stops the start, and the next start uses that table. For all other commits, the log decides."""
    lake.environment = {**lake.environment, **BY_SPARK}
    reports = tmp_path / "reports"
    losing = with_store(tmp_path / "spark", "LostAnswers", f"-Dlost.answer={answer}", f"-Dlost.answers={reports}")
    assert "ingest: QUERY_FAILED: " in lake.start(environment=losing).ended(5)
    lake.crash("start_tables:kill@0")
    # A commit without a transaction id may end the run when its reply is lost, but it exists.
    assert lake.start(environment=losing).died() in (0, 5)

    ours = {f"{kind} {commit.version:020}.json" for kind in KINDS[:2] for commit in lake.commits(kind) if commit.txns}
    reported = reports.read_text(encoding="utf-8").splitlines()
    assert ours <= {*reported} and len(reported) == len({*reported}) and len(ours) > 2 * len(lake.written()) > 4
    assert lake.epochs() == {1} and lake.written() == lake.written("quarantine")
    lake.complete()
    lake.verified()
    lake.judge().assert_clean()
