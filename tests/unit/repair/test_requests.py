"""Requests to the run that holds a table: each is carried out at most once, and never after its command has given up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ingest.repair import requests
from ingest.repair.caretaker import Caretaker, said
from ingest.repair.maintenance import Maintained, Maintenance, Settings, Tended
from ingest.runtime.errors import InvalidInput
from ingest.runtime.places import Places

pytestmark = pytest.mark.unit


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of each maintenance that was done."""
    found: list[Settings] = []

    def do(self: Maintenance) -> Maintained:
        found.append(self.settings)
        return Maintained(self.places.name, dry_run=False, tables=[Tended("target", 12, 1, 1200, 300, compacted=True)])

    monkeypatch.setattr(Maintenance, "do", do)
    return found


NONE: Any = None


def test_a_request_is_carried_out_with_its_settings_and_answered(places: Places, did: list[Settings]) -> None:
    caretaker = Caretaker()
    assert not caretaker.due(places)
    request = requests.send(places, Settings(keep_quarantine_s=5), 60)
    assert caretaker.due(places) and requests.answered(places, request) is None
    notes = caretaker.tend(NONE, places, lambda: False)
    assert did == [Settings(keep_quarantine_s=5)] and "12 files compacted to 1 (1.2 kB to 300 B)" in notes[0]
    done = requests.answered(places, request)
    assert isinstance(done, Maintained) and done.tables[0].files_before == 12 and done.by.startswith("the run in process")
    assert requests.answered(places, request) is None and not caretaker.due(places)
    assert list((Path(places.root) / "maintain").iterdir()) == [], "no file is left"


def test_a_request_that_was_withdrawn_or_has_expired_is_not_carried_out(places: Places, did: list[Settings]) -> None:
    assert requests.withdraw(places, requests.send(places, Settings(), 60))
    requests.send(places, Settings(), -1)
    Caretaker().tend(NONE, places, lambda: False)
    assert did == [] and not requests.waiting(places)


def test_a_request_that_a_run_has_taken_cannot_be_withdrawn(places: Places) -> None:
    request = requests.send(places, Settings(), 60)
    assert requests.take(places) == request
    assert not requests.withdraw(places, request)


def test_a_torn_request_is_removed_and_the_others_are_carried_out(places: Places, did: list[Settings]) -> None:
    request = requests.send(places, Settings(), 60)
    (Path(places.root) / "maintain" / f"0{requests.REQUEST}").write_text("{")
    Caretaker().tend(NONE, places, lambda: False)
    assert len(did) == 1 and requests.answered(places, request) is not None and not requests.waiting(places)


def test_a_failure_is_the_answer_and_an_error_for_the_run(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Maintenance) -> Maintained:
        raise OSError("no space\nleft")

    monkeypatch.setattr(Maintenance, "do", fail)
    request = requests.send(places, Settings(), 60)
    with pytest.raises(OSError, match="no space"):
        Caretaker().tend(NONE, places, lambda: False)
    assert requests.answered(places, request) == "OSError: no space"


def test_a_schedule_is_due_at_once_and_after_its_interval(places: Places, did: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    caretaker = Caretaker(every_s=60)
    assert caretaker.due(places)
    caretaker.tend(NONE, places, lambda: False)
    assert len(did) == 1 and not caretaker.due(places)
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert caretaker.due(places)


def test_a_failed_maintenance_waits_for_its_interval_too(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Maintenance) -> Maintained:
        raise OSError("no space")

    monkeypatch.setattr(Maintenance, "do", fail)
    caretaker = Caretaker(every_s=60)
    with pytest.raises(OSError, match="no space"):
        caretaker.tend(NONE, places, lambda: False)
    assert not caretaker.due(places), "it would fail after every batch"


def test_a_short_vacuum_needs_a_reason() -> None:
    for reason in ("", "  "):
        with pytest.raises(InvalidInput, match="RETENTION_SHORT"):
            Settings(vacuum_s=3600, force=reason)
    assert Settings(vacuum_s=3600, force="GDPR request 12").vacuum_s == 3600
    assert Settings(vacuum_s=7 * 86400).force == ""


def test_a_run_says_nothing_about_a_maintenance_without_work() -> None:
    assert said(Maintained("shop.orders", dry_run=False, tables=[Tended("target", 1, 1, 1, 1)])) == []
