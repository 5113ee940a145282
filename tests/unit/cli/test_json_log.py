"""`ingest run --log-format json`: every line is one JSON object with a fixed head."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.cli import run as run_verb
from ingest.cli.json_log import JsonLines, json_display
from ingest.cli.run import LogFormat
from ingest.contract.definition import Contract
from ingest.quality.scope import Scope
from ingest.quality.validation import Checked
from ingest.run.application import Application, TableResult
from ingest.runtime.errors import RunStopped
from tests.unit.cli.test_progress import report
from tests.unit.quality.test_validation_result import row
from tests.unit.run.test_display_events import CONTRACT

pytestmark = pytest.mark.unit

FENCED = RunStopped("FENCED", "a \x1b[31mlater\nrun", expected="one run.", remedy="none.")
PLACE = {"pipeline": "shop", "table": "orders"}


def lines(text: str) -> list[dict[str, Any]]:
    """The lines without their times, which must be in UTC and now."""
    found = [json.loads(line) for line in text.splitlines()]
    for each in found:
        moment = each.pop("time")
        assert moment.endswith("Z") and abs((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()) < 60
    return found


def test_batches_go_to_stdout_and_errors_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    shown = JsonLines(quiet=False)
    shown.ready(["shop.orders"], Path("spark.log"))
    shown.batch(report(steps={"decode": 0.12345}), 5)
    shown.batch(report(number=4), None)
    shown.healed("shop.orders", "rolled back")
    shown.reopened("shop.orders", "A new epoch is opened.")
    shown.note("waiting")
    shown.stopping()
    shown.ended("shop.orders", None)
    shown.ended("shop.payments", FENCED)
    said = capsys.readouterr()
    counts = {"records_read": 1000, "inserted": 900, "duplicate": 70, "quarantined": 30, "target_version": 4}
    info = {"level": "info"}
    assert lines(said.out) == [
        {**info, "event": "start", **PLACE, "spark_log": "spark.log"},
        {**info, "event": "batch", **PLACE, "epoch": 2, "batch": 3, **counts, "lag": 5, "seconds": 0.5, "steps": {"decode": 0.123}},
        {**info, "event": "batch", **PLACE, "epoch": 2, "batch": 4, **counts, "lag": None, "seconds": 0.5, "steps": {}},
        {**info, "event": "stopping", "message": "finishing the current batch first"},
        {**info, "event": "stopped", **PLACE},
    ]
    error = {"code": "FENCED", "found": FENCED.found, "expected": "one run.", "remedy": "none.", "exit_code": 5}
    assert lines(said.err) == [
        {"level": "warning", "event": "healed", **PLACE, "message": "rolled back"},
        {"level": "warning", "event": "reopened", **PLACE, "message": "A new epoch is opened."},
        {**info, "event": "note", "message": "waiting"},
        {"level": "error", "event": "error", "pipeline": "shop", "table": "payments", **error},
    ]
    assert "\x1b" not in said.err


@pytest.mark.parametrize(
    ("rows", "level"),
    [
        ((row(success=True),), "info"),
        ((row(success=False, severity="warning"),), "warning"),
        ((row(success=False, severity="critical"),), "error"),
    ],
)
def test_a_check_is_a_line_at_the_level_of_its_result(rows: tuple[Any, ...], level: str, capsys: pytest.CaptureFixture[str]) -> None:
    JsonLines(quiet=True).checked(Checked("shop.orders", Scope(7, None), rows, None, None, 1.5))
    (line,) = lines(capsys.readouterr().err)
    assert (line["event"], line["level"], line["target_version"], line["expectations"]) == ("check", level, 7, 1)
    assert (line["failed"], line["critical"]) == (int(level != "info"), int(level == "error"))


def test_an_error_of_the_whole_run_is_a_line_and_keeps_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, json_display(quiet=False):
        raise FENCED
    assert ended.value.code == 5
    (line,) = lines(capsys.readouterr().err)
    assert (line["event"], line["code"], line["exit_code"]) == ("error", "FENCED", 5)


def test_with_json_the_document_reports_the_error() -> None:
    with pytest.raises(RunStopped), json_display(quiet=True):
        raise FENCED


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_run_prints_the_error_of_a_table_once(
    log_format: LogFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "events.yml").write_text(CONTRACT.to_json())

    def execute(_: Application, display: Any) -> list[TableResult]:
        display.ended("t.events", FENCED)
        return [TableResult("t.events", error=FENCED)]

    monkeypatch.setattr(Application, "execute", execute)
    with pytest.raises(SystemExit) as ended:
        run_verb.run(project=tmp_path, lake=str(tmp_path), checkpoints=str(tmp_path / "c"), once=True, metrics="0", log_format=log_format)
    assert ended.value.code == 5
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("FENCED") == 1 and "metrics: http://127.0.0.1:" in said.err


def test_the_checks_of_a_run_become_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    contracts = [CONTRACT, Contract.model_validate({**CONTRACT.model_dump(by_alias=True), "table": "other"})]
    monkeypatch.setattr("ingest.quality.suite.load_suites", lambda *_: [SimpleNamespace(contract=CONTRACT)])
    watch = run_verb._watch(tmp_path, contracts, LogFormat.JSON, quiet=False)
    watch.on_missed("t.events", "LOCKED")
    assert [(line["event"], line["table"], line.get("code")) for line in lines(capsys.readouterr().err)] == [
        ("check", "events", None),
        ("check", "other", None),
        ("check", "events", "LOCKED"),
    ]
