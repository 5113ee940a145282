"""If a table is restored or dropped during a run, the run stops with an error. One command repairs the table (I1)."""

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


@pytest.mark.slow
@pytest.mark.parametrize("table", ["target", "quarantine"])
def test_a_restore_during_a_batch_stops_it_and_a_seek_re_reads_what_is_missing(
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
    assert one.log().newest() == before + (table == "target"), "nothing was written after the restore"
    with pytest.raises(Refused, match=code):
        one.open()
    one.table = one.open(TO_TABLE)
    assert one.table.epoch.starts == {(0, 0): 0}
    one.batch(order("a"), "{", order("b"))
    assert one.rows("id") == [("a",), ("b",)] and len(one.quarantine()) == 1


@pytest.mark.slow
def test_a_batch_merged_after_a_restore_is_detected_by_its_look_back_and_the_next_start(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore comes between the batch's last check of the table and its MERGE, so Delta accepts the MERGE."""
    one = desk()
    if one.direct is not None:
        pytest.skip("a commit of the direct writer is at the version after its look, or not at all (test_direct_writer.py)")
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
    assert one.table.epoch.starts == {(0, 0): 1}, "the seek starts at the first missing offset"
    one.batch(order("b"), order("c"))
    assert [name for (name,) in one.rows("id")] == ["a", "b", "c"]


@pytest.mark.slow
def test_a_target_dropped_during_a_batch_is_not_recreated_by_it(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append to a folder without a log would create a new table there."""
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
