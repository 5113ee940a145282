"""Opening an epoch on real Delta (I2, I7, I8): a later one fences every statement of an earlier writer, begun later or in flight."""

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
    """Our statements with a transaction id in the log of a table: kind, epoch and number."""
    return [f"{each.batch_commit.kind} {each.batch_commit.id}" for each in desk.log(table).since(-1) if each.batch_commit is not None]


def meanwhile(monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], Any]) -> None:
    """Somebody acts when this point is reached for the first time."""
    at = crash_points.at

    def reached(name: str, batch: int, *more: str) -> None:
        if name == point:
            monkeypatch.setattr(crash_points, "at", at)
            act()
        at(name, batch, *more)

    monkeypatch.setattr(crash_points, "at", reached)


def cut_off_behind_its_quarantine(desk: Desk, *values: str) -> None:
    """A batch that is killed between its two commits."""

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        meanwhile(patch, "after_quarantine", killed)
        desk.batch(*values)


def test_a_first_start_commits_where_it_begins_and_a_restart_goes_on_where_the_table_ends(desk: MakeDesk) -> None:
    """I2: also without any checkpoint, which is a cache."""
    one = desk()
    assert statements(one) == ["epoch 1/0", "seek 1/1"] and statements(one, "quarantine") == ["epoch 1/0"]
    one.batch(order("a"), "{")
    one.table.epoch.ledger.append()
    one.table = one.open()
    assert one.table.epoch.starts == {0: 2} and Path(one.table.epoch.checkpoint).name == "2"
    one.batch(order("a"), order("b"))
    assert statements(one)[2:] == ["batch 1/2", "epoch 2/0", "batch 2/2"]
    assert statements(one, "quarantine")[1:] == ["batch 1/2", "epoch 2/0"]
    assert one.rows("id", "_epoch", "_batch") == [("a", 1, 2), ("b", 2, 2)]
    one.table.epoch.ledger.append()
    rows = one.session.read.format("delta").load(one.places.ledger).where("kind = 'epoch'").orderBy("epoch").collect()
    assert [(row["epoch"], row["batch"], row["why"], row["start_offset"]) for row in rows] == [(1, 1, "first", 0), (2, 0, "start", 2)]


def test_a_start_from_the_latest_that_read_nothing_goes_on_where_it_had_begun(desk: MakeDesk) -> None:
    """What came in between would be passed over in silence."""
    one = desk(source={"starting_offsets": "latest"})
    assert one.table.epoch.starts == {0: FAR}
    one.far = FAR + 5
    assert one.open().epoch.starts == {0: FAR}


@pytest.mark.parametrize("point", ["start_tables", "start_target_fenced"])
def test_of_two_starts_that_want_one_epoch_the_second_takes_a_higher_one(
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


def test_a_batch_that_is_committed_between_a_starts_look_and_its_fence_is_seen_by_its_second_look(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = desk()
    new = old.rival()
    old.table = old.open()
    meanwhile(monkeypatch, "start_tables", lambda: old.batch(order("a"), "{"))
    new.table = new.open()
    assert new.table.epoch.starts == {0: 2} and len(new.quarantine()) == 1


@pytest.mark.parametrize("value", [pytest.param(order("b"), id="target"), pytest.param("{", id="quarantine")])
def test_a_batch_of_an_earlier_writer_is_fenced_and_nothing_of_it_stands(desk: MakeDesk, value: str) -> None:
    """I8: Delta skips a MERGE with a lower transaction id in silence; that never passes for done."""
    one = desk()
    one.batch(order("a"))
    two = one.rival()
    with pytest.raises(RunStopped, match="FENCED") as stopped:
        one.batch(value)
    assert stopped.value.exit_code == 5 and "has taken epoch 2" in stopped.value.found
    assert one.rows("id") == [("a",)] and one.quarantine() == []
    report = two.batch(order("b"), "{")
    assert (report.inserted, report.quarantined) == (1, 1)


def test_fenced_between_its_two_commits_a_batch_is_rolled_back_and_read_again_once(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """I7: of the quarantine only what the uncommitted batch put there."""
    one = desk()
    one.batch("[")
    rivals: list[Desk] = []
    meanwhile(monkeypatch, "after_quarantine", lambda: rivals.append(one.rival()))
    with pytest.raises(RunStopped, match="FENCED"):
        one.batch(order("a"), "{")
    assert [row["offset"] for row in one.quarantine()] == [0] and one.rows("id") == []
    two = rivals[0]
    assert statements(two, "quarantine")[-2:] == ["epoch 2/0", "rollback 2/1"]
    report = two.batch(order("a"), "{")
    assert (report.inserted, report.quarantined) == (1, 1)
    assert [(row["offset"], row["epoch"]) for row in two.quarantine()] == [(0, 1), (2, 2)]


@pytest.mark.parametrize("seeking", [pytest.param(None, id="roll-back", marks=pytest.mark.slow), pytest.param(EARLIEST, id="seek")])
def test_a_start_whose_roll_back_or_seek_comes_behind_a_later_epoch_is_fenced(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, seeking: Seeking | None
) -> None:
    one = desk()
    one.batch(order("a"))
    if seeking is None:
        cut_off_behind_its_quarantine(one, "{")
    again = LookBack.again
    rivals: list[Desk] = []

    def overtaken(self: LookBack) -> Snapshots:
        monkeypatch.setattr(LookBack, "again", again)
        rivals.append(one.rival())
        return again(self)

    monkeypatch.setattr(LookBack, "again", overtaken)
    with pytest.raises(RunStopped, match="FENCED"):
        one.open(seeking)
    assert statements(one)[-1] == "epoch 3/0" and one.quarantine() == []
    assert rivals[0].table.epoch.starts == {0: 1}, "an offset that nobody committed is nowhere"


@pytest.mark.parametrize("table", ["target", pytest.param("quarantine", marks=pytest.mark.slow)])
def test_a_merge_that_is_in_flight_when_a_later_epoch_opens_fails(desk: MakeDesk, tmp_path: Path, table: str) -> None:
    """I8: it began before the fence, and would end behind it."""
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
    assert rivals[0].table.epoch.starts == {0: 2}
    for name, version in before.items():
        assert [each.batch_commit.kind for each in one.log(name).since(version) if each.batch_commit] == ["epoch"]
    assert one.rows("id") == [("a",)] and len(one.quarantine()) == 1
