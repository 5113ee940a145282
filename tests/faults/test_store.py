"""A store that writes a commit and then reports an error: what was committed is looked up, and committed no second time."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest

from ingest import jars
from ingest.local import java
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import until
from tests.faults.pipeline import KINDS, with_jvm
from tests.faults.planted import BYPASSED, copy_with

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOURCE = Path(__file__).with_name("stores.scala")
OURS = "org.apache.hadoop.fs.local"
LOST_ANSWERS = {"spark.delta.logStore.file.impl": f"{OURS}.LostAnswers"}
HALTING = {"spark.hadoop.fs.AbstractFileSystem.file.impl": f"{OURS}.Halting"}


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The class path of stores.scala."""
    made = tmp_path_factory.mktemp("stores")
    of_spark = Path(pyspark.__file__).parent / "jars"
    delta = next(path for path in jars.spark_jars() if path.name.startswith("delta-storage-"))
    # Spark brings the compiler that it was built with.
    compiler = [next(of_spark.glob(f"scala-{part}-2*.jar")) for part in ("library", "compiler", "reflect")]
    known = [compiler[0], next(of_spark.glob("hadoop-client-api-*.jar")), delta]
    java_command = str(java.find().home / "bin" / "java")
    command = [
        java_command,
        "-Xmx512m",
        "-cp",
        together(compiler),
        "scala.tools.nsc.Main",
        "-cp",
        together(known),
        "-d",
        str(made),
        str(SOURCE),
    ]
    subprocess.run(command, check=True, timeout=300, stdin=subprocess.DEVNULL)
    return [made, delta]


def together(files: list[Path]) -> str:
    return ":".join(map(str, files))


def environment(folder: Path, classes: list[Path], settings: Mapping[str, str], *options: str) -> dict[str, str]:
    """A run whose Spark has these classes, settings and options of the JVM."""
    folder.mkdir()
    lines = {"spark.driver.extraClassPath": together(classes), **settings}
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()), encoding="utf-8")
    return {"SPARK_CONF_DIR": str(folder), **with_jvm(*options)}


@pytest.mark.parametrize("answer", ["error", "exists"])
def test_a_store_that_reports_an_error_after_each_commit_leads_to_no_second_one(
    pipeline: PipelineFactory, classes: list[Path], tmp_path: Path, answer: str
) -> None:
    """A table that was made so stops the start, and the next one takes it as it is; of a batch's commits each is believed by the log."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    told = tmp_path / "told"
    losing = environment(tmp_path / "spark", classes, LOST_ANSWERS, f"-Dlost.answer={answer}", f"-Dlost.answers={told}")
    assert "ingest: QUERY_FAILED: " in lake.start(environment=losing).ended(5)
    lake.crash("after_offset_log:kill@0")
    lake.start(environment=losing).ended(0)

    committed = {f"{kind} {commit.version:020}.json" for kind in KINDS for commit in lake.commits(kind) if commit.txns}
    lied_of = told.read_text(encoding="utf-8").splitlines()
    assert {*lied_of} == {"target 00000000000000000000.json", *committed} and len(lied_of) == len({*lied_of})
    assert lake.written("target") == lake.written("quarantine") == [0, 1, 2]
    lake.verified()
    lake.judge().assert_clean()


def test_without_locks_a_rename_on_a_local_disk_replaces_anothers_commit_and_what_is_lost_is_told(
    pipeline: PipelineFactory, classes: list[Path], tmp_path: Path
) -> None:
    """The first driver looks, and there is no such commit; a second one that ignores its locks, with a checkpoint of its own, commits; the
    first renames its own over that. It is the last thing that it does."""
    lake = pipeline(batch=1000)
    lake.produce(3200)
    lake.crash("after_offset_log:kill@0")
    at, here = lake.delta() / "_delta_log" / f"{1:020}.json", tmp_path / "here"
    first = lake.start(environment=environment(tmp_path / "spark", classes, HALTING, f"-Dhalt.at={at}", f"-Dhalt.here={here}"))
    until(here.exists, lambda: f"the first at its rename; {first.said}")

    kept, lake.code = lake.code, copy_with(BYPASSED["no lock is taken"], tmp_path / "bypassed")
    lake.write_contracts(batch=2500)
    lake.start(environment={"INGEST_CHECKPOINTS": str(tmp_path / "other checkpoints")}).ended(0)
    lake.code = kept
    second = lake.commits()[1]
    here.unlink()
    assert "ingest: TABLE_OWNED: " in first.ended(5)
    replaced, rest = lake.commits()[1:]
    assert replaced.version == second.version and rest.txns[0][0] == second.txns[0][0] != replaced.txns[0][0]

    assert any("and is lost" in finding for finding in lake.judge().findings)
    told = json.loads(lake.command("verify", "--json").ended(1))["tables"][0]["findings"]
    assert [(each["code"], each["partition"], each["end_offset"]) for each in told] == [
        ("RECORDS_MISSING", partition, end) for partition, (_, end) in sorted(second.ranges.items())
    ]
    lake.refused("TABLE_OWNED")
