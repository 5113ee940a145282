"""`ingest run --check` without --once: rows are checked while the stream runs, and failures are reported at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.cli import run as verb
from ingest.contract.definition import Contract
from ingest.quality.validation import Checked
from ingest.quality.watch import CheckSchedule
from ingest.runtime.errors import RunStopped
from tests.integration.lane import Lane, order
from tests.integration.suites import COLUMNS, COUNT, STATUS

pytestmark = pytest.mark.integration

ENDS_WITHIN_S = 300.0
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command runs in this process and in the tests' session. It neither starts nor ends one. Signal handlers are restored."""
    monkeypatch.setattr("ingest.runtime.spark.start", lambda *_, **__: spark)
    monkeypatch.setattr("ingest.runtime.spark.end", lambda _: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # A run that waits forever is stopped by SIGTERM, and the test fails by its assertions.
    guard = threading.Timer(ENDS_WITHIN_S, os.kill, (os.getpid(), signal.SIGTERM))
    guard.start()
    yield
    guard.cancel()
    for number, handler in before.items():
        signal.signal(number, handler)


def project_of(one: Lane, folder: Path, quality: str) -> Path:
    """A project that contains the lane's contract with a suite."""
    (folder / "tables").mkdir(parents=True)
    contract = {**json.loads(one.contract.to_json()), "suite": "suite.json", "quality": quality}
    (folder / "tables" / "events.yml").write_text(json.dumps(contract))  # JSON is YAML
    (folder / "suite.json").write_text(json.dumps({"name": "t", "expectations": [STATUS, COUNT]}))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("quality", "engine"), [("report", "duckdb"), ("stop", "spark")])
def test_rows_are_checked_while_the_stream_runs(
    lane: Callable[..., Lane],
    one_session: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    quality: str,
    engine: str,
) -> None:
    if engine == "spark":
        monkeypatch.setenv("INGEST_DUCKDB_ROWS", "0")
    one = lane(COLUMNS)
    one.send(order("a1", status="paid"), order("a2", status="placed"))
    seen: list[tuple[Checked, str]] = []
    watches: list[CheckSchedule] = []
    make = verb._watch

    def eager(project: Path, contracts: Sequence[Contract], log_format: verb.LogFormat, *, quiet: bool) -> CheckSchedule:
        watch = make(project, contracts, log_format, quiet=quiet)
        watch.every_s = 0.1  # a minute by default
        say = watch.on_checked

        def then(checked: Checked) -> None:
            say(checked)
            seen.append((checked, capfd.readouterr().out))
            if not checked.critical:
                one.transaction(order("bad", status="lost"), order("a3", status="paid"))
            elif quality == "report":
                os.kill(os.getpid(), signal.SIGTERM)  # with quality `stop` the run ends by itself

        watch.on_checked = then
        watches.append(watch)
        return watch

    monkeypatch.setattr(verb, "_watch", eager)
    project = project_of(one, tmp_path / "project", quality)
    with pytest.raises(SystemExit) as ended:
        verb.run(
            project=project,
            lake=one.places.lake,
            checkpoints=one.places.checkpoints,
            bootstrap_servers=one.bootstrap_servers,
            master="local[2]",
            every="200ms",
            check=True,
        )
    assert ended.value.code == {"report": 1, "stop": RunStopped.exit_code}[quality]
    good, bad = seen[0], seen[-1]
    assert (good[0].scope.name, len(good[0].rows), good[0].failed, good[0].page) == ("whole", 2, (), None), "the first covers all rows"
    assert len(bad[0].rows) == 1, "later checks skip the row count, which needs the whole table"
    assert good[1].count("t.events: passed") == 0, "a passed check is not reported every time"
    assert bad[0].scope.name == "new" and bad[0].scope.after == good[0].scope.version
    assert "t.events: FAILED" in bad[1] and "expect_column_values_to_be_in_set (status): 1 of 2 rows, such as bad" in bad[1]
    assert bad[0].page is not None and bad[0].page.is_file()
    assert one.ids() == ["a1", "a2", "a3", "bad"], "checks run after the commit"
    errors = capfd.readouterr().err
    assert ("QUALITY_STOP" in errors and "rows such as bad" in errors) == (quality == "stop")
    rows = one.session.read.format("delta").load(one.places.quality).orderBy("run_at").collect()
    assert [(row["success"], row["scope"], row["engine"]) for row in rows] == [
        (True, "whole", engine),
        (True, "whole", engine),
        (False, "new", engine),
    ]


@pytest.mark.slow
def test_two_concurrent_checks_both_keep_all_their_results(lane: Callable[..., Lane], tmp_path: Path) -> None:
    """Two processes do not see each other's commits on a local disk in time, so the lock of the results table serializes them."""
    one = lane(COLUMNS)
    one.send(order("a1", status="paid"), order("bad", status="lost"))
    one.run()
    project = project_of(one, tmp_path / "project", "report")
    words = [sys.executable, "-m", "ingest", "check", "--json", "--project", str(project), "--master", "local[1]"]
    words += ["--lake", one.places.lake, "--checkpoints", one.places.checkpoints]
    both = [subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    documents = [json.loads(each.communicate(timeout=ENDS_WITHIN_S)[0]) for each in both]
    assert [each.returncode for each in both] == [1, 1], documents
    rows = one.session.read.format("delta").load(one.places.quality).collect()
    reported = sum(len(each["tables"][0]["expectations"]) for each in documents)
    assert len(rows) == reported and len({row["run_id"] for row in rows}) == 2, "no process overwrote the other's results"
    assert all(Path(each["tables"][0]["page"]).is_file() for each in documents)
