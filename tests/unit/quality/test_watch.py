"""The schedule of the checks during a run."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.batch.batch import BatchReport
from ingest.cli import check as check_verb
from ingest.cli import run as run_verb
from ingest.contract.definition import Contract
from ingest.kafka.kafka_options import KafkaOptions
from ingest.quality import watch as module
from ingest.quality.scope import Scope
from ingest.quality.suite import Suite
from ingest.quality.validation import Checked
from ingest.quality.watch import BROKEN_EVERY_S, CheckSchedule
from ingest.run.application import Application, TableResult
from ingest.run.table_query import Trigger
from ingest.runtime.errors import IngestError, RunStopped
from ingest.runtime.places import Places
from tests.unit.quality.test_validation_result import row

pytestmark = pytest.mark.unit

PLACES = Places("/lake", "/checkpoints", "t", "events")
COLUMNS = [{"name": "id", "type": "STRING", "nullable": False}]
CONTRACT = Contract.model_validate(
    {"pipeline": "t", "table": "events", "source": {"topic": "x", "format": "json"}, "columns": COLUMNS, "event_id": ["id"]}
)


class Clock:
    """A clock that the test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def report() -> BatchReport:
    given: dict[str, Any] = dict.fromkeys(BatchReport.__dataclass_fields__, 1)
    return BatchReport(**{**given, "table": PLACES.name})


def test_the_pauses_grow_while_an_expectation_cannot_be_evaluated_and_shrink_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each such check reads all rows again. Once a minute, it would take all the time of the run."""
    clock = Clock(monkeypatch)
    exception: list[str | None] = [None]
    checked = lambda *_, **__: Checked(PLACES.name, Scope(1, None), (row(success=False, exception=exception[0]),), None, None, 0.0)  # noqa: E731
    monkeypatch.setattr(module, "check", checked)
    watch = CheckSchedule({PLACES.name: Suite(CONTRACT, "s.json", "hash", ())}, lambda _: None, lambda *_: None, every_s=60)
    session: Any = None

    def pause() -> float:
        """Wait until the next check is due, run it, and return the seconds waited."""
        watch.saw(report())
        began = clock.now
        while not watch.due(PLACES.name):
            clock.now += 60
        watch.check(session, PLACES, at_work=True)
        return clock.now - began

    assert [pause(), pause()] == [60, 60]
    exception[0] = "Unclosed group"
    assert [pause() for _ in range(9)] == [60, 120, 240, 480, 960, 1920, BROKEN_EVERY_S, BROKEN_EVERY_S, BROKEN_EVERY_S]
    exception[0] = None
    assert [pause(), pause()] == [BROKEN_EVERY_S, 60]


STOP = RunStopped("QUALITY_STOP", "t.events: it failed.", expected="that it holds.", remedy="look at it.")


class Query:
    """A stream that continues until it is asked to stop."""

    contract = CONTRACT
    places = PLACES

    def __init__(self) -> None:
        self.asked = 0
        self.notes: list[str] = []
        self.maintained: list[str] = []

    def ask_to_stop(self) -> None:
        self.asked += 1

    def poll(self) -> bool:
        return self.asked > 0

    def reopen(self) -> None:
        """Nothing to reopen: the query ended because it was asked to."""

    def finish(self) -> None:
        return None


class Critical:
    """Checks that are due at once and return these errors in turn. One check too many raises StopIteration."""

    def __init__(self, *found: IngestError | None) -> None:
        self.found = iter(found)
        self.at_work: list[bool] = []

    def saw(self, report: BatchReport) -> None:
        raise AssertionError("there was no batch")

    def due(self, table: str) -> bool:
        return table == PLACES.name

    def check(self, session: Any, places: Places, *, at_work: bool) -> IngestError | None:
        self.at_work.append(at_work)
        return next(self.found)


def test_a_critical_failure_stops_its_tables_query_and_becomes_the_tables_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.run.application.POLL_S", 0.0)
    monkeypatch.setattr("ingest.runtime.spark.jvm_exit", lambda _: None)
    checks, query, result = Critical(None, STOP), Query(), TableResult(PLACES.name)
    job = Application([CONTRACT], "/lake", "/checkpoints", KafkaOptions("x:1"), "local", Trigger(once=False, every_s=0.0), checks=checks)
    ended: list[tuple[str, IngestError | None]] = []
    screen: Any = SimpleNamespace(gone=False, tick=lambda: None, ended=lambda *result: ended.append(result))
    queries: Any = [query]
    job._watch(None, queries, screen, {PLACES.name: result})  # type: ignore[arg-type]
    assert (query.asked, checks.at_work, result.error) == (1, [True, True], STOP), "the first check found nothing, and the run continued"
    assert ended == [(PLACES.name, STOP)], "the display hears of it too"


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restores the SIGTERM handler, which the command replaces."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("failed", "error", "code"), [(False, None, None), (True, None, 1), (True, STOP, 5)])
def test_a_run_with_checks_exits_with_the_code_of_their_result(
    monkeypatch: pytest.MonkeyPatch, handlers: None, tmp_path: Path, failed: bool, error: IngestError | None, code: int | None
) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "events.yml").write_text(CONTRACT.to_json())  # JSON is YAML
    monkeypatch.setattr(run_verb, "_watch", lambda *_, **__: SimpleNamespace(failed=failed, found={}))
    monkeypatch.setattr(Application, "execute", lambda *_: [TableResult(PLACES.name, error=error)])
    try:
        run_verb.run(project=tmp_path, lake=str(tmp_path), checkpoints=str(tmp_path / "c"), bootstrap_servers="x:1", once=True, check=True)
        ended = None
    except SystemExit as exit_:
        ended = exit_.code
    assert ended == code


@pytest.mark.parametrize("code", [0, 1])
def test_a_check_exits_with_1_if_a_critical_expectation_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "events.yml").write_text(CONTRACT.to_json())
    monkeypatch.setattr("ingest.runtime.spark.start", lambda *_, **__: None)
    monkeypatch.setattr("ingest.runtime.spark.end", lambda _: None)
    monkeypatch.setattr("ingest.quality.suite.load_suites", lambda *_, **__: [Suite(CONTRACT, "s.json", "", ())])
    monkeypatch.setattr(check_verb, "check_all", lambda *_, **__: code)
    assert check_verb.check(project=tmp_path, lake=str(tmp_path), checkpoints=str(tmp_path / "c")) == code
