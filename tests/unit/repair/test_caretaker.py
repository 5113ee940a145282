"""The upkeep of a run: when it is due, what it does beside the batches, and what an error means."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.contract.definition import Contract
from ingest.delta.delta_log import Logs
from ingest.delta.direct_fit import unfit
from ingest.delta.log_checkpoint import BEHIND_MAX
from ingest.delta.merge_groups import FAN_IN
from ingest.delta.table_upkeep import DirectUpkeep
from ingest.repair.caretaker import AGAIN_S, COMPACT_EVERY_S, Caretaker, said
from ingest.repair.maintenance import Maintained, Maintenance, Settings, Tended
from ingest.runtime.errors import InvalidInput, RunStopped
from ingest.runtime.places import Places
from tests.unit.batch.local_desk import LocalDesk, Record

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


SESSION: Any = SimpleNamespace()
SOURCE = {"topic": "t", "format": "json"}
COLUMNS = [{"name": "id", "type": "STRING", "nullable": False}, {"name": "n", "type": "INT"}]
CONTRACT = Contract.model_validate({"pipeline": "shop", "table": "orders", "source": SOURCE, "event_id": ["id"], "columns": COLUMNS})


def test_small_files_of_a_run_with_the_direct_writer_are_merged_as_batches_come_and_rarely_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = LocalDesk(CONTRACT, tmp_path)
    for number in range(FAN_IN + 1):
        desk.process([[Record(0, number, json.dumps({"id": f"e{number}", "n": 1}).encode())]])
    before, caretaker = desk.rows(), Caretaker(compacts=True)
    assert caretaker.due(desk.places, direct=False) is None, "Delta in Spark commits alone"
    assert caretaker.due(desk.places, direct=True) == "beside"
    assert caretaker.tend(None, desk.places, lambda: False) == [] and caretaker.due(desk.places, direct=True) is None
    assert len(DeltaTable(desk.places.target).file_uris()) == 2 and desk.rows() == before
    desk.process([[Record(0, FAN_IN + 1, b'{"id": "e0", "n": 1}')]])
    assert desk.rows() == before, "the batch has seen the merged file: its event id is there"
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic(): now + COMPACT_EVERY_S)
    assert caretaker.due(desk.places, direct=True) == "beside"


def test_checkpoints_are_written_before_a_batch_has_to(tmp_path: Path) -> None:
    desk = LocalDesk(CONTRACT, tmp_path)
    for number in range(BEHIND_MAX // 2):
        desk.process([[Record(0, number, json.dumps({"id": f"e{number}", "n": 1}).encode())]])
    assert Logs.of(desk.places).target.checkpoint_version() == -1
    Caretaker(compacts=True).tend(None, desk.places, lambda: False)
    assert Logs.of(desk.places).target.checkpoint_version() >= BEHIND_MAX // 2


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (OSError("no space"), "beside"),
        (RunStopped("COMMIT_OUTRUN", "", expected="", remedy=""), "beside"),
        (RunStopped("TABLE_REWOUND", "", expected="", remedy=""), "beside"),  # the ledger: a run goes on with one that was put back
        (unfit("t", "is clustered"), None),
    ],
)
def test_an_upkeep_that_fails_waits_and_a_table_that_needs_spark_gets_no_more(
    places: Places, monkeypatch: pytest.MonkeyPatch, error: Exception, again: str | None
) -> None:
    caretaker = Caretaker(compacts=True)

    def fails(*_: object) -> int:
        raise error

    monkeypatch.setattr("ingest.repair.caretaker.compact", fails)
    with nullcontext() if again is None else pytest.raises(type(error)):
        assert caretaker.tend(None, places, lambda: False) == []
    for later, due in ((COMPACT_EVERY_S, None), (AGAIN_S, again)):
        with monkeypatch.context() as clock:
            clock.setattr(time, "monotonic", lambda now=time.monotonic() + later: now)
            assert caretaker.due(places, direct=True) == due, later


def test_what_a_batch_has_done_meanwhile_is_not_done_again_while_spark_holds_the_table(
    places: Places, did: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look for what is due and the work are two steps. In between, this process would compact a table of Delta in Spark."""
    monkeypatch.setattr("ingest.repair.caretaker.compact", lambda *_: pytest.fail("this process compacts"))
    caretaker = Caretaker(every_s=60, compacts=True)
    for _ in range(2):
        caretaker.tend(SESSION, places, lambda: False)
    assert len(did) == 1


def test_a_table_that_needs_spark_is_maintained_between_two_batches(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    caretaker = Caretaker(every_s=60)

    def unfit_table(self: Maintenance) -> Maintained:
        if isinstance(self.upkeep, DirectUpkeep):
            raise unfit("t", "is clustered")
        return Maintained(self.places.name, dry_run=False)

    monkeypatch.setattr(Maintenance, "do", unfit_table)
    assert caretaker.due(places, direct=True) == "beside"
    assert caretaker.tend(None, places, lambda: False) == []
    assert caretaker.due(places, direct=True) == "between"
    caretaker.tend(SESSION, places, lambda: False)
    assert caretaker.due(places, direct=True) is None


def test_a_schedule_is_due_at_once_and_after_its_interval(places: Places, did: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    caretaker = Caretaker(every_s=60)
    assert caretaker.due(places, direct=True)
    caretaker.tend(None, places, lambda: False)
    assert len(did) == 1 and not caretaker.due(places, direct=True)
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert caretaker.due(places, direct=True)


def test_a_failed_maintenance_waits_for_its_interval_too(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Maintenance) -> Maintained:
        raise OSError("no space")

    monkeypatch.setattr(Maintenance, "do", fail)
    caretaker = Caretaker(every_s=60)
    with pytest.raises(OSError, match="no space"):
        caretaker.tend(None, places, lambda: False)
    assert not caretaker.due(places, direct=True), "it would fail after every batch"


def test_a_short_vacuum_needs_a_reason() -> None:
    for reason in ("", "  "):
        with pytest.raises(InvalidInput, match="RETENTION_SHORT"):
            Settings(vacuum_s=3600, force=reason)
    assert Settings(vacuum_s=3600, force="GDPR request 12").vacuum_s == 3600
    assert Settings(vacuum_s=7 * 86400).force == ""


def test_a_run_says_nothing_about_a_maintenance_without_work() -> None:
    assert said(Maintained("shop.orders", dry_run=False, tables=[Tended("target", 1, 1, 1, 1)])) == []
