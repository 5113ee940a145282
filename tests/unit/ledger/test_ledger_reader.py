"""The ledger's state, the commits that it lacks, and the rows that a run appends to it (I7)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from ingest.ledger.ledger_row import LedgerRow

from ingest.delta import delta_sql
from ingest.delta import writer as commits
from ingest.delta.batch_commit import BatchCommit, BatchId
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import At, DataFusion, Unreadable
from ingest.delta.table_writer import SparkWriter
from ingest.kafka.topic_state import TopicId
from ingest.ledger.ledger_reader import LedgerState, read_ledger, unledgered
from ingest.ledger.projection import Ledger
from ingest.recovery.decision import Start, decide
from ingest.runtime.files import LocalFiles
from tests.unit.recovery.engine_scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Epoch 1: four batches of ten. Epoch 2 was cut off. Epoch 3: one batch."""
    scene = Scene(tmp_path)
    scene.first()
    for start in (0, 10, 20, 30):
        scene.batch(start, start + 10, range(start, start + 9), (start + 9,))
    scene.start()
    scene.start()
    scene.batch(40, 50, range(40, 50))
    scene.keep()
    return scene


def known(scene: Scene) -> LedgerState:
    return read_ledger(None, scene.log("ledger"))


def lacks(scene: Scene) -> list[BatchId]:
    return [batch_commit.id for _, batch_commit in unledgered(scene.log(), "shop.orders", known(scene))]


def lose(scene: Scene, *batches: tuple[int, int]) -> None:
    scene.ledger = [row for row in scene.ledger if (row.epoch, row.batch) not in batches]
    scene.keep()


def test_a_missing_or_empty_ledger_has_an_empty_state(tmp_path: Path) -> None:
    assert read_ledger(None, DeltaLog(LocalFiles(), str(tmp_path / "none"))) == LedgerState()
    scene = Scene(tmp_path)
    scene.keep()
    assert known(scene) == LedgerState()


def test_the_newest_batch_is_the_last_one_of_the_highest_epoch(scene: Scene) -> None:
    state = known(scene)
    assert state.newest is not None and (state.newest.id, state.newest.ends) == (BatchId(3, 2), {0: 50})
    assert (state.newest.snapshots, state.newest.version, state.epoch) == (None, scene.snapshots().version, 3)
    assert (state.table_id, state.reached, state.holes) == (scene.snapshots().table_id, {("id", 0): 50}, frozenset())
    assert (state.topics, state.sought) == ({1: "id", 3: "id"}, frozenset({1}))
    assert lacks(scene) == []


def test_a_seek_without_batches_is_the_newest_and_the_offsets_read_before_remain(scene: Scene) -> None:
    scene.topic = TopicId("orders", "new")
    scene.seek(5, gaps=((0, 5),))
    scene.keep()
    state = known(scene)
    assert state.newest is not None and (state.newest.id, state.newest.ends, state.newest.topic.id) == (
        BatchId(4, 1),
        {0: 5},
        "new",
    )
    assert (state.reached, state.sought) == ({("id", 0): 50}, frozenset({1, 4}))
    assert lacks(scene) == []
    scene.batch(5, 9, range(5, 9))
    scene.keep()
    assert known(scene).reached == {("id", 0): 50, ("new", 0): 9}


def test_a_ledger_that_a_user_altered_still_has_its_table_id(scene: Scene) -> None:
    DeltaTable(scene.places.ledger).alter.set_table_properties({"delta.appendOnly": "false"})
    assert known(scene).table_id == scene.snapshots().table_id


@pytest.mark.parametrize(
    ("lost", "holes"),
    [
        ([(3, 2), (3, 0)], ()),
        ([(3, 2), (3, 0), (1, 5)], ()),
        ([(1, 3)], (3,)),
        ([(1, 2), (1, 4)], (2, 4)),
        ([(1, 4), (3, 2), (3, 0)], (4,)),
    ],
)
def test_only_the_batches_that_the_ledger_lacks_are_read_from_the_log(
    scene: Scene, lost: list[tuple[int, int]], holes: tuple[int, ...]
) -> None:
    """I7: a RESTORE of the ledger during a run leaves a hole."""
    lose(scene, *lost)
    assert known(scene).holes == {BatchId(1, number) for number in holes}
    assert lacks(scene) == sorted(BatchId(*id) for id in lost if id[1])


def test_a_hole_that_the_log_no_longer_contains_is_not_searched_at_each_start(scene: Scene) -> None:
    lose(scene, (1, 3), (1, 4), (3, 2), (3, 0))
    scene.clean("target", 5)  # batch 3 was version 4
    assert lacks(scene) == [BatchId(1, 4), BatchId(3, 2)]


def test_without_a_ledger_the_whole_log_is_projected(scene: Scene) -> None:
    assert [batch_commit.id for _, batch_commit in unledgered(scene.log(), "shop.orders", LedgerState())] == EVERYTHING
    assert unledgered(scene.log(), "shop.payments", LedgerState()) == []


EVERYTHING = [BatchId(1, n) for n in (1, 2, 3, 4, 5)] + [BatchId(3, 2)]


def test_after_a_delete_in_the_ledger_the_whole_log_is_projected(scene: Scene) -> None:
    """I7: the remaining rows cannot show that an epoch's last batches, or a whole epoch, are missing."""
    DeltaTable(scene.places.ledger).delete("epoch = 1 AND batch = 5")
    assert lacks(scene) == EVERYTHING
    scene.keep()
    assert lacks(scene) == []


def test_if_only_rows_of_epoch_starts_are_left_the_whole_log_is_projected(scene: Scene) -> None:
    """I7: no row has the newest epoch's end offsets. Run, seek and status once failed with an IndexError."""
    DeltaTable(scene.places.ledger).delete("kind = 'batch'")
    state = known(scene)
    assert (state.newest, state.epoch, state.cut, state.topics) == (None, 3, True, {1: "id", 3: "id"})
    assert lacks(scene) == EVERYTHING
    decision = decide(scene.start_state())
    assert isinstance(decision, Start) and decision.offsets == {0: 50}


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[BatchCommit, Sequence[LedgerRow]]]:
    """Captures the BatchCommit and the rows of each MERGE into the ledger."""
    found: list[tuple[BatchCommit, Sequence[LedgerRow]]] = []
    monkeypatch.setattr(
        commits, "merge_ledger", lambda _, __, batch_commit, rows: found.append((batch_commit, [LedgerRow(**row) for row in rows]))
    )
    return found


def appended(scene: Scene, state: LedgerState) -> Ledger:
    session: Any = None
    ledger = Ledger.of(session, scene.places, Logs.of(scene.places), state, SparkWriter(session))
    ledger.append()
    return ledger


def keys(rows: Iterable[LedgerRow]) -> list[tuple[object, ...]]:
    return sorted((row.epoch, row.batch, row.kind, row.inserted, row.quarantined, row.stood) for row in rows)


def test_a_lost_ledger_is_recreated_from_the_log(scene: Scene, merged: list[tuple[BatchCommit, Sequence[LedgerRow]]]) -> None:
    """I7: every row is the same."""
    ledger = appended(scene, LedgerState())
    ((batch_commit, rows),) = merged
    assert (batch_commit.kind, batch_commit.id, batch_commit.ranges) == ("ledger", BatchId(3, 2), ())
    assert keys(rows) == keys(scene.ledger) and ledger.pending == []
    ledger.append()
    assert len(merged) == 1, "nothing is pending after the first append"


@pytest.mark.parametrize("kept", [True, False])
def test_the_rows_that_existed_at_a_seek_are_counted_at_its_snapshot(
    scene: Scene, merged: list[tuple[BatchCommit, Sequence[LedgerRow]]], kept: bool
) -> None:
    """This includes batches that the ledger still lacks. Rows deleted after the seek's snapshot still count."""
    before = known(scene) if kept else LedgerState()
    scene.target.delete('"_offset" IN (31, 32, 33)')
    scene.seek(30)
    scene.target.delete("true")
    appended(scene, before)
    ((_, rows),) = merged
    stood = {(row.epoch, row.batch): row.stood for row in rows if row.stood is not None}
    assert stood == {(1, 5): 10 - 3, (3, 2): 10}


def test_files_that_vacuum_removed_before_a_seek_is_in_the_ledger_block_no_run(
    scene: Scene, merged: list[tuple[BatchCommit, Sequence[LedgerRow]]]
) -> None:
    """Otherwise every batch of every later run would fail."""
    before = known(scene)
    scene.seek(30)
    scene.target.delete("true")
    scene.vacuum()
    appended(scene, before)
    ((_, rows),) = merged
    assert keys(rows) == [(4, 1, "epoch", 0, 0, None)]


def test_a_first_start_counts_no_existing_rows(tmp_path: Path, merged: list[tuple[BatchCommit, Sequence[LedgerRow]]]) -> None:
    scene = Scene(tmp_path)
    scene.first(7)
    appended(scene, LedgerState())
    ((_, rows),) = merged
    assert [(row.kind, row.start_offset, row.why) for row in rows] == [("epoch", 7, "first")]
    assert keys(rows) == keys(replace(row) for row in scene.ledger)


@pytest.mark.parametrize("how", ["restored", "restored from a copy", "emptied, and the log cleaned"])
def test_rows_that_the_ledger_loses_during_a_run_are_appended_again(
    scene: Scene, merged: list[tuple[BatchCommit, Sequence[LedgerRow]]], how: str
) -> None:
    """The run's next rows would hide the missing ones. Rows that the run itself still has to append do not depend on the log."""
    session: Any = None
    copy = Path(scene.places.root) / "copy"
    shutil.copytree(scene.places.ledger, copy)
    scene.keep()
    ledger = Ledger.of(session, scene.places, Logs.of(scene.places), known(scene), SparkWriter(session))
    ledger.pending = unledgered(scene.log(), "shop.orders", LedgerState())[-1:]
    if how == "restored":
        DeltaTable(scene.places.ledger).restore(0)
    elif how == "restored from a copy":
        shutil.rmtree(scene.places.ledger)
        copy.rename(scene.places.ledger)
    else:
        DeltaTable(scene.places.ledger).delete("true")
        scene.rows(())
        scene.clean("target", scene.snapshots().version)
    ledger.append()
    ((_, rows),) = merged
    expected = EVERYTHING[-1:] if how.startswith("emptied") else EVERYTHING
    assert sorted({BatchId(row.epoch, row.batch) for row in rows if row.batch}) == expected


def test_a_ledger_that_deltalake_cannot_read_is_read_through_spark(
    scene: Scene, merged: list[tuple[BatchCommit, Sequence[LedgerRow]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads a ledger that uses a Delta feature that deltalake lacks."""
    session, ask, before = object(), DataFusion.ask, known(scene)

    class Session:
        """A substitute for Spark."""

        def __init__(self, given: object) -> None:
            assert given is session

        def ask(self, sql: str, **tables: At) -> list[dict[str, Any]]:
            return ask(DataFusion(), sql, **tables)

    def lacking(self: DataFusion, sql: str, **tables: At) -> list[dict[str, Any]]:
        if "ledger" in tables:
            raise Unreadable("typeWidening")
        return ask(self, sql, **tables)

    monkeypatch.setattr(DataFusion, "ask", lacking)
    monkeypatch.setattr(delta_sql, "Spark", Session)
    with pytest.raises(Unreadable):
        known(scene)
    given: Any = session
    assert read_ledger(given, scene.log("ledger")) == before
    scene.seek(30)
    Ledger.of(given, scene.places, Logs.of(scene.places), before, SparkWriter(given)).append()
    ((_, rows),) = merged
    assert {(row.epoch, row.batch): row.stood for row in rows if row.stood is not None} == {(1, 5): 10, (3, 2): 10}
