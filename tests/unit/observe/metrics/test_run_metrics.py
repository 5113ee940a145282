"""The metrics of a run: what a report changes, and that neither a scrape nor a broken metric reaches the run."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ingest.observe.metrics.board import Board
from ingest.observe.metrics.endpoint import parse_address, served
from ingest.observe.metrics.measured import Measured
from ingest.run.display import Display
from ingest.runtime.errors import IngestError, InvalidEnvironment, InvalidInput, RunStopped
from tests.unit.cli.test_progress import report

pytestmark = pytest.mark.unit

TABLES = ["shop.orders", "shop.payments"]
FENCED = RunStopped("FENCED", "a later run", expected="one run.", remedy="none.")


class Shown(Display):
    """Keeps the names of the methods that were called, and the notes."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.notes: list[str] = []

    def ready(self, tables: Any, log: Path) -> None:
        self.calls.append("ready")

    def batch(self, report: Any, lag: int | None) -> None:
        self.calls.append("batch")

    def tick(self) -> None:
        self.calls.append("tick")

    def stopping(self) -> None:
        self.calls.append("stopping")

    def note(self, text: str) -> None:
        self.notes.append(text)

    def ended(self, table: str, error: IngestError | None) -> None:
        self.calls.append("ended")


def scraped(url: str) -> dict[str, float]:
    """The samples at a URL: `name table[ label]` to value."""
    with urllib.request.urlopen(url, timeout=10) as response:
        text = response.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            more = [value for label, value in sample.labels.items() if label not in ("pipeline", "table")]
            found[" ".join([sample.name, sample.labels.get("table", ""), *more]).strip()] = sample.value
    return found


def url_of(shown: Shown) -> str:
    return shown.notes[0].removeprefix("metrics: ")


def test_a_scrape_shows_what_the_run_reported() -> None:
    shown, checks = Shown(), dict[str, Any]()
    with served("0", TABLES, shown, checks) as display:
        assert scraped(url_of(shown))["oncelake_run_up orders"] == 0
        display.ready(TABLES, Path("spark.log"))
        display.batch(report(steps={"decode": 0.25}), 7)
        display.batch(report(number=4, seconds=2.0, target_version=5, steps={"decode": 0.5}), 3)
        display.reopened("shop.orders", "A new epoch is opened.")
        checks["shop.orders"] = [SimpleNamespace(rows=[1, 2, 3], failed=[1, 2], critical=[1])]
        display.tick()
        display.ended("shop.payments", FENCED)
        found = scraped(url_of(shown))
    assert found["oncelake_records_read_total orders"] == 2000
    assert found["oncelake_records_inserted_total orders"] == 1800
    assert found["oncelake_records_duplicate_total orders"] == 140
    assert found["oncelake_records_quarantined_total orders"] == 60
    assert found["oncelake_records_read_total payments"] == 0
    assert found["oncelake_batches_total orders"] == 2
    assert found["oncelake_batch_seconds_count orders"] == 2 and found["oncelake_batch_seconds_sum orders"] == 2.5
    assert found["oncelake_batch_seconds_bucket orders 0.5"] == 1 and found["oncelake_batch_seconds_bucket orders 2.5"] == 2
    assert found["oncelake_batch_step_seconds_total orders decode"] == 0.75
    assert (found["oncelake_lag_offsets orders"], found["oncelake_epoch orders"], found["oncelake_batch orders"]) == (3, 2, 4)
    assert found["oncelake_target_version orders"] == 5
    assert found["oncelake_epochs_reopened_total orders"] == 1
    assert (found["oncelake_run_up orders"], found["oncelake_run_up payments"]) == (1, 0)
    assert found["oncelake_error_info payments FENCED"] == 1
    assert (found["oncelake_quality_failures orders critical"], found["oncelake_quality_failures orders other"]) == (1, 1)
    assert not [name for name in found if "_created" in name]
    assert shown.calls == ["ready", "batch", "batch", "tick", "ended"]
    assert shown.notes[1:] == ["A new epoch is opened."]


def test_an_unknown_lag_is_absent() -> None:
    shown = Shown()
    with served("0", TABLES, shown, {}) as display:
        display.batch(report(), 7)
        display.batch(report(), None)
        assert "oncelake_lag_offsets orders" not in scraped(url_of(shown))


def test_the_port_is_free_again_after_the_run() -> None:
    shown = Shown()
    with served("0", TABLES, shown, {}):
        port = url_of(shown).rpartition(":")[2].partition("/")[0]
    with served(port, TABLES, Shown(), {}):
        pass


def test_a_taken_port_is_an_error_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidEnvironment, match="METRICS_PORT_TAKEN") as raised, served(str(port), TABLES, Shown(), {}):
            pass
    assert raised.value.exit_code == 4


def test_only_loopback_is_served_unless_a_host_is_named() -> None:
    assert parse_address("9464") == ("127.0.0.1", 9464)
    assert parse_address("0.0.0.0:9464") == ("0.0.0.0", 9464)
    assert parse_address("[::1]:9464") == ("::1", 9464)
    for wrong in ("", "metrics", "host:", "99999", "::1:9464", "１"):
        with pytest.raises(InvalidInput, match="METRICS_ADDRESS_INVALID"):
            parse_address(wrong)


def test_a_client_that_hangs_or_hangs_up_does_not_matter(capfd: pytest.CaptureFixture[str]) -> None:
    shown = Shown()
    with served("0", TABLES, shown, {}) as display:
        port = int(url_of(shown).rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as half:
            half.sendall(b"GET /metrics HT")
            display.batch(report(), 1)
            assert scraped(url_of(shown))["oncelake_batches_total orders"] == 1
    assert capfd.readouterr().err == ""


def test_a_metric_that_fails_is_shown_once_and_does_not_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, board = Shown(), Board("run")
    display = Measured(board, TABLES, shown, {})

    def broken(*_: object) -> None:
        raise ValueError("no such label")

    monkeypatch.setattr(board, "at", broken)
    display.ready(TABLES, Path("spark.log"))
    display.batch(report(), 1)
    display.ended("shop.orders", None)
    display.stopping()
    assert shown.calls == ["ready", "batch", "ended", "stopping"]
    assert shown.notes == ["a metric was not updated (ValueError: no such label); the run continues without it"]


def test_every_method_of_the_display_is_passed_on() -> None:
    own = {name for name, value in vars(Display).items() if callable(value) or isinstance(value, property)}
    assert own <= vars(Measured).keys() | {"__init__"}
