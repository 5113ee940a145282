"""What the ledger lacks is read from the logs of both tables, and is appended; whatever became of the ledger meanwhile (I7)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta.batch_commit import BatchId, Snapshots, State
from ingest.delta.delta_log import Logs
from ingest.delta.direct_writer import DirectWriter
from ingest.ledger.ledger_line import Line
from ingest.ledger.ledger_reader import ledger_lines
from ingest.ledger.projection import EVERY_VARIABLE, Ledger, complete, unwritten
from tests.unit.recovery.engine_scene import Scene
from tests.unit.verify.proof_lake import ENGINE

FIRST = [BatchId(1, n) for n in (1, 2, 3)]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A first start and two batches, in tables and ledger. A third batch and a removal, which the ledger lacks."""
    scene = Scene(tmp_path)
    scene.first()
    scene.batch(0, 10, range(9), (9,))
    scene.batch(10, 20, range(10, 20))
    scene.keep()
    return scene


def go_on(scene: Scene) -> None:
    scene.batch(20, 30, range(20, 30))
    scene.retire(9)


def lacking(scene: Scene) -> list[tuple[BatchId, str]]:
    return [(line.id, line.posting.why) for line in unwritten(Logs.of(scene.places), "shop.orders")[0]]


def lines(scene: Scene) -> list[Line]:
    return ledger_lines(ENGINE, scene.places)


BATCHES = [(BatchId(1, 1), "first"), *((BatchId(1, n), "batch") for n in (2, 3))]
LATER = [(BatchId(1, 4), "batch"), (BatchId(0, 0), "retention")]


def test_only_what_was_committed_since_is_read_and_both_logs_count(scene: Scene) -> None:
    assert lacking(scene) == []
    go_on(scene)
    assert lacking(scene) == LATER
    assert unwritten(Logs.of(scene.places), "shop.orders")[1] == Snapshots(scene.snapshots(), scene.snapshots("quarantine"))
    assert unwritten(Logs.of(scene.places), "shop.payments")[0] == []
    before, version = lines(scene), scene.ledger.version()
    scene.keep()
    assert lacking(scene) == [] and len(lines(scene)) == len(before) + 2
    scene.keep()
    assert scene.ledger.version() == version + 1, "nothing to append"
    assert [(line.id, line.posting.why) for line in unwritten(Logs.of(scene.places), "shop.orders", version)[0]] == LATER


def test_a_statement_without_postings_is_no_line(scene: Scene) -> None:
    """Fences, creations, and commits of others."""
    scene.start()
    scene.rows([77])
    scene.target.optimize.compact()
    assert lacking(scene) == []


def _deleted(scene: Scene) -> None:
    shutil.rmtree(scene.places.ledger)


def _restored(scene: Scene) -> None:
    scene.ledger.restore(1)


def _lines_deleted(scene: Scene) -> None:
    scene.ledger.delete("batch = 3")


def _emptied(scene: Scene) -> None:
    scene.ledger.delete()


def _overwritten(scene: Scene) -> None:
    write_deltalake(scene.places.ledger, scene.ledger.to_pyarrow_table().slice(2), mode="overwrite")


HARMS: list[Callable[[Scene], None]] = [_deleted, _restored, _lines_deleted, _emptied, _overwritten]


@pytest.mark.parametrize("harm", HARMS)
def test_a_ledger_that_lost_lines_is_made_again_and_its_lines_are_read_once(scene: Scene, harm: Callable[[Scene], None]) -> None:
    """Those that it kept are written a second time."""
    go_on(scene)
    scene.keep()
    before = lines(scene)
    harm(scene)
    assert lacking(scene) == [*BATCHES, *LATER]
    scene.keep()
    assert lines(scene) == before and len(before) == 5
    assert len(scene.ledger.to_pyarrow_table()) >= 5
    assert lacking(scene) == [] and scene.codes() == []


def test_a_copy_of_the_ledger_is_completed(scene: Scene) -> None:
    copy = Path(scene.places.root) / "copy"
    shutil.copytree(scene.places.ledger, copy)
    go_on(scene)
    scene.keep()
    before = lines(scene)
    shutil.rmtree(scene.places.ledger)
    copy.rename(scene.places.ledger)
    assert lacking(scene) == LATER
    scene.keep()
    assert lines(scene) == before


def test_a_copy_of_the_target_in_its_place_is_read_from_its_beginning(scene: Scene) -> None:
    """The version that the ledger was complete up to is not in it, or is another commit. So other statements may be in it."""
    copy = Path(scene.places.root) / "copy"
    shutil.copytree(scene.places.target, copy)
    go_on(scene)
    scene.keep()
    shutil.rmtree(scene.places.target)
    copy.rename(scene.places.target)
    assert lacking(scene) == BATCHES
    scene.number = 9
    for start in (20, 30):
        scene.batch(start, start + 10, range(start, start + 10))
    assert lacking(scene) == [*BATCHES, (BatchId(1, 9), "batch"), (BatchId(1, 10), "batch")]


def test_a_cleaned_log_adds_nothing_and_the_ledger_keeps_its_lines(scene: Scene) -> None:
    scene.batch(20, 30, range(20, 30))
    scene.rows(())
    scene.clean("target", scene.target.version())
    before = lines(scene)
    scene.ledger.delete("batch = 2")
    assert lacking(scene) == [], "neither the lost line nor the late batch is in the log any more"
    assert lines(scene) == [line for line in before if line.id.number != 2]


def test_a_run_appends_when_it_is_due_and_at_its_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on(scene)
    ledger = Ledger(scene.places, Logs.of(scene.places), DirectWriter())
    monkeypatch.setenv(EVERY_VARIABLE, "3600")
    ledger.append_if_due(None)
    assert lacking(scene) == LATER
    monkeypatch.setenv(EVERY_VARIABLE, "0")
    ledger.append_if_due(None)
    assert lacking(scene) == []
    scene.batch(30, 40, range(30, 40))
    ledger.append()
    assert lacking(scene) == []


def test_a_command_that_removes_files_completes_a_ledger_and_makes_none(scene: Scene) -> None:
    go_on(scene)
    complete(DirectWriter(), scene.places)
    assert lacking(scene) == []
    shutil.rmtree(scene.places.ledger)
    complete(DirectWriter(), scene.places)
    assert not DeltaTable.is_deltatable(scene.places.ledger)


def test_an_erasure_posts_what_a_batch_of_sparks_writer_added_also_without_a_ledger(scene: Scene) -> None:
    """I4: once the files are gone, nobody could count its rows."""
    shutil.rmtree(scene.places.ledger)
    scene.batch(20, 30, range(20, 30), opened=True)
    complete(DirectWriter(), scene.places, alone=True)
    newest = scene.log().commit(scene.target.version()).batch_commit
    assert newest is not None and newest.case == State() and [each.inserted for each in newest.postings] == [10]
    assert not DeltaTable.is_deltatable(scene.places.ledger)


def test_without_a_table_nothing_is_unwritten(scene: Scene) -> None:
    shutil.rmtree(scene.places.quarantine)
    assert unwritten(Logs.of(scene.places), "shop.orders") == ([], None)
