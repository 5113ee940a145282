"""Opening an epoch on real Delta (I2, I7, I8): it fences every statement of an earlier writer, whether in flight or started later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from ingest.delta import writer
from ingest.delta.batch_commit import Snapshots
from ingest.recovery.look_back import LookBack
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.runtime import crash_points
from ingest.runtime.errors import RunStopped
from tests.integration.desk import FAR, Desk
from tests.integration.gate import Gate
from tests.integration.lane import order

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
EARLIEST = Seeking(Aim("earliest"), accept_gap=False, reason="--to earliest")


def statements(desk: Desk, table: str = "target") -> list[str]:
    """Kind, epoch and number of each of our commits in a table's log, after the one that created it."""
    return [f"{each.batch_commit.kind} {each.batch_commit.id}" for each in desk.log(table).since(0) if each.batch_commit is not None]


def meanwhile(monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], Any]) -> None:
    """Call `act` when this crash point is reached for the first time."""
    at = crash_points.at

    def reached(name: str, batch: int, *more: str) -> None:
        if name == point:
            monkeypatch.setattr(crash_points, "at", at)
            act()
        at(name, batch, *more)

    monkeypatch.setattr(crash_points, "at", reached)


def kill_after_quarantine(desk: Desk, *values: str) -> None:
    """Process a batch that is killed between its two commits."""

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        meanwhile(patch, "after_quarantine", killed)
        desk.batch(*values)


@pytest.mark.slow
def test_a_first_start_commits_its_offsets_and_a_restart_continues_where_the_table_ends(desk: MakeDesk) -> None:
    """I2: the restart needs no checkpoint, which is only a cache."""
    one = desk()
    assert statements(one) == ["fence 1/0", "start 1/1"] and statements(one, "quarantine") == ["fence 1/0"]
    one.batch(order("a"), "{")
    one.table.epoch.ledger.append()
    one.table = one.open()
    assert one.table.epoch.starts == {(0, 0): 2} and Path(one.table.epoch.checkpoint).name == "2"
    one.batch(order("a"), order("b"))
    assert statements(one)[2:] == ["batch 1/2", "fence 2/0", "batch 2/2"]
    assert statements(one, "quarantine")[1:] == ["batch 1/2", "fence 2/0"]
    assert one.rows("id", "_epoch", "_batch") == [("a", 1, 2), ("b", 2, 2)]
    one.table.epoch.ledger.append()
    rows = one.session.read.format("delta").load(one.places.ledger).where("why <> 'batch'").collect()
    assert [(row["epoch"], row["batch"], row["why"], row["start_offset"]) for row in rows] == [(1, 1, "first", 0)]


def test_after_a_start_from_latest_that_read_nothing_the_next_has_the_same_offsets(desk: MakeDesk) -> None:
    """Otherwise records that arrived in between would be skipped silently."""
    one = desk(source={"starting_offsets": "latest"})
    assert one.table.epoch.starts == {(0, 0): FAR}
    one.far = FAR + 5
    assert one.open().epoch.starts == {(0, 0): FAR}


@pytest.mark.slow
@pytest.mark.parametrize("point", ["start_tables", "start_target_fenced"])
def test_if_two_starts_want_the_same_epoch_the_second_takes_a_higher_one(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    one = desk()
    one.batch(order("a"))
    rivals: list[Desk] = []
    meanwhile(monkeypatch, point, lambda: rivals.append(one.rival()))
    one.table = one.open()
    won = one.table.epoch.writer.epoch
    assert won == rivals[0].table.epoch.writer.epoch + 1
    with pytest.raises(RunStopped, match=f"FENCED.*epoch {won}"):
        rivals[0].batch(order("b"))
    assert one.batch(order("b")).inserted == 1 and one.rows("id") == [("a",), ("b",)]


def test_a_batch_committed_between_a_starts_first_read_and_its_fence_is_not_missed(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    old = desk()
    new = old.rival()
    old.table = old.open()
    meanwhile(monkeypatch, "start_tables", lambda: old.batch(order("a"), "{"))
    new.table = new.open()
    assert new.table.epoch.starts == {(0, 0): 2} and len(new.quarantine()) == 1


@pytest.mark.parametrize("value", [pytest.param(order("b"), id="target"), pytest.param("{", id="quarantine", marks=pytest.mark.slow)])
def test_a_batch_of_an_earlier_writer_is_fenced_and_writes_nothing(desk: MakeDesk, value: str) -> None:
    """I8: Delta silently skips a MERGE with a lower transaction id. The engine never reports that as success."""
    one = desk()
    one.batch(order("a"))
    two = one.rival()
    with pytest.raises(RunStopped, match="FENCED") as stopped:
        one.batch(value)
    assert stopped.value.exit_code == 5 and "has taken epoch 2" in stopped.value.found
    assert one.rows("id") == [("a",)] and one.quarantine() == []
    report = two.batch(order("b"), "{")
    assert (report.inserted, report.quarantined) == (1, 1)


def test_a_batch_fenced_between_its_two_commits_is_rolled_back_and_re_read_once(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """I7: only the uncommitted batch's records are removed from quarantine."""
    one = desk()
    one.batch("[")
    rivals: list[Desk] = []
    meanwhile(monkeypatch, "after_quarantine", lambda: rivals.append(one.rival()))
    with pytest.raises(RunStopped, match="FENCED"):
        one.batch(order("a"), "{")
    assert [row["offset"] for row in one.quarantine()] == [0] and one.rows("id") == []
    two = rivals[0]
    assert statements(two, "quarantine")[-2:] == ["fence 2/0", "rollback 2/1"]
    report = two.batch(order("a"), "{")
    assert (report.inserted, report.quarantined) == (1, 1)
    assert [(row["offset"], row["epoch"]) for row in two.quarantine()] == [(0, 1), (2, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("seeking", [pytest.param(None, id="roll-back"), pytest.param(EARLIEST, id="seek")])
def test_a_start_that_rolls_back_or_seeks_after_a_later_epoch_opened_is_fenced(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, seeking: Seeking | None
) -> None:
    one = desk()
    one.batch(order("a"))
    if seeking is None:
        kill_after_quarantine(one, "{")
    again = LookBack.again
    rivals: list[Desk] = []

    def overtaken(self: LookBack) -> Snapshots:
        monkeypatch.setattr(LookBack, "again", again)
        rivals.append(one.rival())
        return again(self)

    monkeypatch.setattr(LookBack, "again", overtaken)
    with pytest.raises(RunStopped, match="FENCED"):
        one.open(seeking)
    assert statements(one)[-1] == "fence 3/0" and one.quarantine() == []
    assert rivals[0].table.epoch.starts == {(0, 0): 1}, "the overtaken start committed no offset"


@pytest.mark.slow
@pytest.mark.parametrize("table", ["target", "quarantine"])
def test_a_merge_that_is_in_flight_when_a_later_epoch_opens_fails(desk: MakeDesk, tmp_path: Path, table: str) -> None:
    """I8: it started before the fence and would commit after it."""
    one = desk()
    one.batch(order("a"), "{")
    batch_commit = one.batch_commit(3, 2, 4)
    before = {name: one.log(name).newest() for name in ("target", "quarantine")}
    rivals: list[Desk] = []
    gate = Gate(tmp_path, lambda: rivals.append(one.rival()))
    stored = one.session.read.format("delta").load(f"{one.places.root}/{table}")
    with pytest.raises(RunStopped, match="FENCED"):
        if table == "target":
            source = gate.behind(stored.withColumn("id", F.lit("b")))
            writer.merge_target(source, one.contract, one.log(), {}, lambda: batch_commit)
        else:
            source = gate.behind(stored.withColumn("offset", F.lit(3).cast("bigint")), "reason_code")
            writer.merge_quarantine(source, one.log("quarantine"), lambda: batch_commit, reopen=False)
    assert rivals[0].table.epoch.starts == {(0, 0): 2}
    for name, version in before.items():
        assert [each.batch_commit.kind for each in one.log(name).since(version) if each.batch_commit] == ["fence"]
    assert one.rows("id") == [("a",)] and len(one.quarantine()) == 1
