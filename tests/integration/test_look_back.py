"""Somebody restores, drops or rewinds a table beneath a run (I1): the run stops and says so, and one command mends it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.runtime import crash_points
from ingest.runtime.errors import Refused, RunStopped
from tests.integration.desk import Desk
from tests.integration.lane import order

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
TO_TABLE = Seeking(Aim("table"), accept_gap=False, reason="--to table")


def restore(desk: Desk, table: str, version: int) -> None:
    desk.session.newSession().sql(f"RESTORE TABLE delta.`{desk.places.root}/{table}` TO VERSION AS OF {version}").collect()


@pytest.mark.parametrize("table", ["target", pytest.param("quarantine", marks=pytest.mark.slow)])
def test_a_restore_in_the_middle_of_a_batch_stops_it_and_a_seek_reads_again_what_is_missing(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    one = desk()
    version = one.log(table).newest()
    one.batch(order("a"), "{")
    at, before = crash_points.at, one.log().newest()

    def restored(point: str, batch: int, *more: str) -> None:
        if point == "after_offset_log":
            restore(one, table, version)
        at(point, batch, *more)

    monkeypatch.setattr(crash_points, "at", restored)
    code = f"{table.upper()}_REWOUND".replace("TARGET", "TABLE")
    with pytest.raises(RunStopped, match=code):
        one.batch(order("b"))
    monkeypatch.undo()
    assert one.log().newest() == before + (table == "target"), "nothing was written behind it"
    with pytest.raises(Refused, match=code):
        one.open()
    one.table = one.open(TO_TABLE)
    assert one.table.epoch.starts == {0: 0}
    one.batch(order("a"), "{", order("b"))
    assert one.rows("id") == [("a",), ("b",)] and len(one.quarantine()) == 1


@pytest.mark.slow
def test_a_batch_that_slipped_in_behind_a_restore_is_found_by_its_own_look_back_and_by_the_next_start(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last look at the table and its MERGE, which Delta then lets through."""
    one = desk()
    one.batch(order("a"))
    one.batch(order("b"))
    for_path = DeltaTable.forPath

    def late(session: SparkSession, path: str) -> DeltaTable:
        if path == one.places.target:
            monkeypatch.undo()
            restore(one, "target", one.log().newest() - 1)
        return for_path(session, path)

    monkeypatch.setattr(DeltaTable, "forPath", late)
    with pytest.raises(RunStopped, match="TABLE_REWOUND"):
        one.batch(order("c"))
    assert [name for (name,) in one.rows("id")] == ["a", "c"], "the batch was merged"
    with pytest.raises(Refused, match="TABLE_REWOUND"):
        one.open()
    one.table = one.open(TO_TABLE)
    assert one.table.epoch.starts == {0: 1}, "where the first hole is"
    one.batch(order("b"), order("c"))
    assert [name for (name,) in one.rows("id")] == ["a", "b", "c"]


@pytest.mark.slow
def test_a_target_that_is_dropped_in_the_middle_of_a_batch_is_not_made_anew_by_it(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append to a folder without a log would make a table of its own there."""
    one = desk()
    one.batch(order("a"))
    at = crash_points.at

    def dropped(point: str, batch: int, *more: Any) -> None:
        if point == "after_quarantine":
            shutil.rmtree(one.places.target)
        at(point, batch, *more)

    monkeypatch.setattr(crash_points, "at", dropped)
    with pytest.raises(RunStopped, match="TABLE_REWOUND"):
        one.batch(order("b"))
    assert not Path(one.places.target, "_delta_log").exists()
