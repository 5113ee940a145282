"""`ingest effects`: status, list, history, settle and reconcile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from ingest.cli import effects as verbs
from ingest.cli.app import app
from ingest.lab.payment_service import PaymentService
from ingest.runtime.errors import InvalidInput, Refused
from tests.database.effects_scene import Payments, request
from tests.polling import until

assert verbs.effects


@pytest.fixture
def payments(engine: Engine, tmp_path: Path) -> Iterator[Payments]:
    with PaymentService(tmp_path / "charges.jsonl") as service:
        yield Payments(engine, service)


@pytest.fixture
def shop(payments: Payments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Payments:
    """In the current folder: a module with the API. In the database: one call in SUCCESS, one HELD, one FAILED."""
    charge = payments.offers("neither")
    charge.perform("order-1", request("order-1"))
    payments.service.fault("close_before")
    charge.perform("order-2", request("order-2"))
    payments.service.declines_over_cents = 500
    charge.perform("order-3", request("order-3", 501))
    (tmp_path / "effects_shop.py").write_text(
        "from tests.database.effects_scene import http_api\n"
        f"api = http_api({payments.service.url!r}, 'neither')\n"
        f"def make():\n    return http_api({payments.service.url!r}, 'neither')\n"
        "number = 7\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "effects_shop", raising=False)
    return payments


def ingest(url: str, *words: str) -> Result:
    result = CliRunner().invoke(app, ["effects", *words], env={"INGEST_DATABASE_URL": url})
    if isinstance(result.exception, Exception):
        raise result.exception
    return result


def document(url: str, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ingest(url, *words, "--json").stdout)
    assert (found["ok"] and found["schema"] == f"oncelake/effects-{words[0]}/1") or "-" in words[0]
    return found


def test_status_counts_the_calls_and_points_at_the_held_ones(shop: Payments, database_url: str) -> None:
    (charge,) = document(database_url, "status")["effects"]
    assert charge["effect"] == "charge" and charge["oldest_open_s"] is None
    assert charge["states"] == {"SENDING": 0, "WAITING": 0, "UNKNOWN": 0, "SUCCESS": 1, "FAILED": 1, "HELD": 1}
    assert "ingest effects list --state HELD" in ingest(database_url, "status").stdout
    shop.service.fault("close_after")
    shop.left_open(shop.offers("look-up"), ["order-4"])
    (charge,) = document(database_url, "status")["effects"]
    assert charge["states"]["UNKNOWN"] == 1 and 0 <= charge["oldest_open_s"] < 60


def test_list_and_history_show_what_happened(shop: Payments, database_url: str) -> None:
    rows = document(database_url, "list")["rows"]
    assert [row["event_id"] for row in rows] == ["order-3", "order-2", "order-1"] and rows[2]["reference"] == "ch_1"
    assert "request" not in rows[0]
    (row,) = document(database_url, "list", "charge", "--state", "held")["rows"]
    assert row["event_id"] == "order-2" and "neither" in row["detail"]
    assert document(database_url, "list", "refund")["rows"] == []
    steps = document(database_url, "history", "charge", "order-2")["rows"]
    assert [step["state"] for step in steps] == ["SENDING", "UNKNOWN", "HELD"]
    assert "order-2" in ingest(database_url, "list").stdout and "UNKNOWN" in ingest(database_url, "history", "charge", "order-2").stdout
    with pytest.raises(InvalidInput, match="EFFECT_UNKNOWN"):
        ingest(database_url, "history", "charge", "order-9")


def test_a_person_settles_a_held_call_and_the_history_says_who_and_why(shop: Payments, database_url: str) -> None:
    found = document(database_url, "settle", "charge", "order-2", "--as", "success", "--why", "it is on the statement")
    assert found["state"] == "SUCCESS"
    last = document(database_url, "history", "charge", "order-2")["rows"][-1]
    assert (last["state"], last["detail"]) == ("SUCCESS", "it is on the statement") and last["worker"].startswith("person ")
    with pytest.raises(Refused, match="EFFECT_DONE"):
        ingest(database_url, "settle", "charge", "order-2", "--as", "send-again", "--why", "sure?")
    with pytest.raises(InvalidInput, match="--why"):
        ingest(database_url, "settle", "charge", "order-3", "--as", "success", "--why", " ")


@pytest.mark.parametrize("made", ["api", "make"])
def test_a_call_to_be_sent_again_is_sent_by_reconcile(shop: Payments, database_url: str, made: str) -> None:
    shown = ingest(database_url, "settle", "charge", "order-2", "--as", "send-again", "--why", "not on the statement").stdout
    assert "ingest effects reconcile charge" in shown and shop.charges() == {"order-1": 1}
    assert document(database_url, "reconcile", "charge", "--api", f"effects_shop:{made}")["states"] == {"SUCCESS": 1}
    assert shop.charges() == {"order-1": 1, "order-2": 1}
    assert "nothing was due" in ingest(database_url, "reconcile", "charge", "--api", "effects_shop:api").stdout


@pytest.mark.parametrize("named", ["effects_shop", "effects_shop:nothing", "effects_shop:number", "no_such_module:api", ":api"])
def test_an_api_that_cannot_be_loaded_is_refused(shop: Payments, database_url: str, named: str) -> None:
    with pytest.raises(InvalidInput, match="EFFECT_API"):
        ingest(database_url, "reconcile", "charge", "--api", named)


@pytest.mark.slow
def test_reconcile_every_few_seconds_runs_until_it_is_stopped(shop: Payments, database_url: str, tmp_path: Path) -> None:
    run = "from ingest.cli.app import app; import ingest.cli.effects; app()"
    words = ["effects", "reconcile", "charge", "--api", "effects_shop:api", "--every", "0.2"]
    environment = {**os.environ, "INGEST_DATABASE_URL": database_url, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-c", run, *words], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        for event_id in ("order-2", "order-3"):
            shop.service.declines_over_cents = 1_000
            ingest(database_url, "settle", "charge", event_id, "--as", "send-again", "--why", "a test")
            until(lambda: shop.states()[event_id] == "SUCCESS", "the reconciler has sent it", 30)  # noqa: B023 - called at once
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
        assert process.returncode == 0 and "2 SUCCESS" in output
    finally:
        process.kill()
        process.wait(10)
