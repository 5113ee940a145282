"""A maintenance without Spark: no row changes, the balance holds after each step, and a start goes on from what is left (I2, I4)."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ingest.contract.definition import Contract
from ingest.delta import log_cleanup
from ingest.delta.delta_log import Logs
from ingest.delta.delta_sql import DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.table_upkeep import DirectUpkeep
from ingest.ledger.projection import complete
from ingest.repair import file_sizes
from ingest.repair.maintenance import Maintenance, Settings, Tended
from ingest.runtime import crash_points
from ingest.runtime.errors import InvalidInput, Refused
from ingest.verify.verdict import Verified, verify
from tests.unit.batch.local_desk import LocalDesk, Record

pytestmark = pytest.mark.unit

SOURCE = {"topic": "t", "format": "json"}
COLUMNS = [{"name": "id", "type": "STRING", "nullable": False}, {"name": "n", "type": "INT"}]
DOCUMENT = {
    "pipeline": "shop",
    "table": "orders",
    "source": SOURCE,
    "event_id": ["id"],
    "columns": COLUMNS,
    "quarantine": {"max_share": 1.0},
}
# Everything that is settled, also in this second, and every file that the newest version does not need.
ALL = Settings(vacuum_s=0, keep_quarantine_s=-60, force="a test: nobody reads")
DAY_S = 86_400


@pytest.fixture
def desk(tmp_path: Path) -> LocalDesk:
    """Batches of one row and one record for the quarantine each."""
    one = LocalDesk(Contract.model_validate(DOCUMENT), tmp_path)
    for number in range(0, 24, 2):
        batch(one, number)
    return one


def batch(desk: LocalDesk, offset: int) -> None:
    desk.process([[Record(0, offset, json.dumps({"id": f"e{offset}", "n": 1}).encode()), Record(0, offset + 1, b"{")]])


def tend(desk: LocalDesk, settings: Settings = ALL) -> dict[str, Tended]:
    done = Maintenance(DirectUpkeep(DirectWriter()), desk.places, settings).do()
    return {each.table: each for each in done.tables}


def verified(desk: LocalDesk) -> Verified:
    complete(DirectWriter(), desk.places)
    found = verify(DataFusion(), desk.contract, desk.places)
    assert not found.findings, found.findings
    return found


def drop(desk: LocalDesk, offset: int) -> None:
    DirectWriter().set_state(desk.places, f"`offset` = {offset}", "dropped", "ada")


def test_a_maintenance_beside_a_run_balances_and_both_go_on(desk: LocalDesk) -> None:
    """The run has looked at the tables before; its next batch rebases."""
    drop(desk, 1)
    before = desk.rows()
    done = tend(desk)
    assert (done["target"].files_before, done["target"].files_after, done["quarantine"].files_after) == (12, 1, 1)
    assert (done["quarantine"].retired, done["target"].compacted, done["ledger"].checkpointed) == (1, True, False)
    assert done["target"].vacuumed == 12 and done["target"].freed_bytes > 0
    assert desk.rows() == before and len(desk.quarantine()) == 11
    assert len(list(Path(desk.places.target).glob("*.parquet"))) == 1
    found = verified(desk)
    assert (found.quarantine.put, found.quarantine.retired, found.quarantine.found, found.deletes) == (12, 1, 11, ())
    assert not any(each.retired or each.compacted for name, each in tend(desk).items() if name != "ledger"), "once"
    batch(desk, 24)
    desk.process([[Record(0, 26, b'{"id": "e0", "n": 1}')]])
    assert len(desk.rows()) == 13
    verified(desk)
    desk.open()
    assert desk.starts[0] == 27
    verified(desk)


@pytest.mark.parametrize("point", crash_points.MAINTAINING)
def test_a_maintenance_that_dies_at_a_step_balances_and_the_next_one_does_the_rest(
    desk: LocalDesk, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    class Killed(BaseException):
        pass

    def dies(at: str, *_: object) -> None:
        if at == point:
            raise Killed

    drop(desk, 1)
    before = desk.rows()
    with monkeypatch.context() as patched:
        patched.setattr(crash_points, "at", dies)
        with pytest.raises(Killed):
            tend(desk)
    assert desk.rows() == before
    verified(desk)
    tend(desk)
    assert desk.rows() == before and len(desk.quarantine()) == 11
    assert verified(desk).quarantine.retired == 1
    assert len(list(Path(desk.places.target).glob("*.parquet"))) == 1


def test_open_and_recent_records_stay(desk: LocalDesk) -> None:
    drop(desk, 1)
    kept = replace(ALL, keep_quarantine_s=3600.0)
    assert tend(desk, kept)["quarantine"].retired == 0
    assert tend(desk)["quarantine"].retired == 1, "the others are open"
    assert tend(desk, replace(ALL, open_too=True))["quarantine"].retired == 11
    assert verified(desk).quarantine.found == 0


def test_a_clustered_target_is_left_to_spark_as_soon_as_clustering_is_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = LocalDesk(Contract.model_validate({**DOCUMENT, "layout": {"cluster_by": ["n"]}}), tmp_path)
    batch(one, 0)
    assert not tend(one)["target"].compacted
    batch(one, 2)
    monkeypatch.setattr(file_sizes, "SAVED_FILES_MIN", 1)
    with pytest.raises(InvalidInput, match=r"DIRECT_UNFIT.*is clustered"):
        tend(one)


def logged(table: str) -> list[int]:
    return sorted(int(path.name[:20]) for path in (Path(table) / "_delta_log").glob("*.json"))


def clean(desk: LocalDesk, monkeypatch: pytest.MonkeyPatch, days: float) -> dict[str, Tended]:
    """A maintenance so many days later."""
    now = time.time()
    with monkeypatch.context() as later:
        later.setattr(log_cleanup, "time", SimpleNamespace(time=lambda: now + days * DAY_S))
        return tend(desk)


def test_commits_older_than_the_logs_retention_go_below_a_checkpoint_and_a_start_and_verify_go_on(
    desk: LocalDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(desk, 1)
    whole = verified(desk)
    assert clean(desk, monkeypatch, 31)["target"].cleaned == 0, "no checkpoint"
    for path in (desk.places.target, desk.places.quarantine, desk.places.ledger):
        DeltaTable(path).create_checkpoint()
    version = DeltaTable(desk.places.target).version()
    batch(desk, 24)
    assert clean(desk, monkeypatch, 29)["target"].cleaned == 0, "too young"
    done = clean(desk, monkeypatch, 31)
    assert done["target"].cleaned == version and logged(desk.places.target)[0] == version
    assert not [name for name in os.listdir(f"{desk.places.target}/_delta_log") if name[:20].isdigit() and int(name[:20]) < version]
    with pytest.raises(DeltaError, match=r"(?i)version|log"):
        DeltaTable(desk.places.target, version=version - 1)
    assert DeltaTable(desk.places.target, version=version).version() == version
    rows = desk.rows()
    found = verified(desk)
    assert found.quarantine.retired == whole.quarantine.retired + 1 and len(rows) == 13
    batch(desk, 26)
    desk.open()
    assert desk.starts[0] == 28
    batch(desk, 28)
    assert len(desk.rows()) == 15
    verified(desk)
    desk.open(again=True)
    for number in range(0, 30, 2):
        batch(desk, number)
    assert len(desk.rows()) == 15, "a seek, too"
    verified(desk)


def test_a_log_is_not_cleaned_below_a_checkpoint_that_cannot_be_read_or_if_the_table_says_so(
    desk: LocalDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = desk.places.target
    DeltaTable(path).create_checkpoint()
    commits = logged(path)
    (checkpoint,) = (Path(path) / "_delta_log").glob("*.checkpoint.parquet")
    data = checkpoint.read_bytes()
    checkpoint.write_bytes(data[: len(data) // 2])
    writer = DirectWriter()
    monkeypatch.setattr(log_cleanup, "time", SimpleNamespace(time=lambda now=time.time(): now + 31 * DAY_S))
    for damage in (data[: len(data) // 2], data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :]):
        checkpoint.write_bytes(data)
        writer.looked_at(path)
        checkpoint.write_bytes(damage)
        with pytest.raises(Refused, match="LOG_TORN"):
            log_cleanup.clean(writer, path)
        assert logged(path) == commits
    checkpoint.write_bytes(data)
    DeltaTable(path).alter.set_table_properties({"delta.enableExpiredLogCleanup": "false"})
    assert log_cleanup.clean(DirectWriter(), path) == 0
    assert Logs.of(desk.places).target.whole()
