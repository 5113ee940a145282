"""The ledger's state in a few queries, and up to which versions of the tables it is complete (I7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from ingest.delta import delta_sql
from ingest.delta.batch_commit import Batch, BatchId, Snapshots
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, DataFusion, Unreadable
from ingest.delta.posting import Key, Posting
from ingest.kafka.offsets import OffsetRange, Position
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.ledger_reader import LedgerState, read_ledger, written
from ingest.recovery.decision import Start, decide
from ingest.runtime.files import LocalFiles
from tests.unit.recovery.engine_scene import Scene
from tests.unit.verify.proof_lake import TOPIC

RETURNS, REFUNDS = TopicId("returns", "r"), TopicId("refunds", "f")


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
    return read_ledger(None, scene.log("ledger"), "shop.orders")


def complete(scene: Scene) -> Snapshots | None:
    return written(scene.log("ledger"), "shop.orders")[0]


def test_a_missing_or_empty_ledger_has_an_empty_state(tmp_path: Path) -> None:
    assert read_ledger(None, DeltaLog(LocalFiles(), str(tmp_path / "none")), "shop.orders") == LedgerState()
    scene = Scene(tmp_path)
    scene.keep()
    assert known(scene) == LedgerState()


def test_the_newest_batch_is_the_last_one_of_the_highest_epoch(scene: Scene) -> None:
    state = known(scene)
    assert state.newest is not None and (state.newest.id, state.newest.ends) == (BatchId(3, 2), {(0, 0): 50})
    assert (state.newest.snapshots, state.newest.version, state.epoch) == (None, scene.snapshots().version, 3)
    assert (state.table_id, state.reached, state.newest.sources) == (scene.snapshots().table_id, {(0, 0): 50}, (TOPIC,))
    assert state.statement == BatchId(3, 2)


def test_a_seek_without_batches_is_the_newest_and_the_offsets_read_before_remain(scene: Scene) -> None:
    scene.topic = TopicId("orders", "new")
    scene.seek(5, gaps=((0, 5),))
    scene.keep()
    state = known(scene)
    assert state.newest is not None and (state.newest.id, state.newest.ends, state.newest.sources) == (
        BatchId(4, 1),
        {(1, 0): 5},
        (TOPIC, TopicId("orders", "new")),
    )
    assert (state.reached, state.statement) == ({(0, 0): 50}, BatchId(4, 1))
    scene.batch(5, 9, range(5, 9))
    scene.keep()
    assert known(scene).reached == {(0, 0): 50, (1, 0): 9}


def test_without_its_commit_a_batch_of_several_topics_is_read_from_its_lines(scene: Scene) -> None:
    """I6, I7: Delta has cleaned up the commit. A topic that left keeps its number, and one is as the newest statement names it."""
    scene.sources = [replace(TOPIC, id="")]
    scene.seek(50)
    scene.topic = RETURNS
    scene.seek(7)
    scene.sources.append(REFUNDS)
    postings = [
        Posting(Key(scene.epoch, 2, *at.of), "batch", at, present=0)
        for at in (OffsetRange(0, 7, 9, 4, 1), OffsetRange(0, 0, 3, None, 2), OffsetRange(1, 5, 5, 6, 2))
    ]
    scene.rows((), batch_commit=scene.batch_commit(Batch(), 2, *postings))
    scene.keep()
    newest = known(scene).newest
    assert newest is not None and newest.ends == {(1, 0): 9, (2, 0): 3, (2, 1): 5}
    assert newest.read_to == {(1, 0): Position(9, 4), (2, 1): Position(5, 6)}
    assert newest.sources == (replace(TOPIC, id=""), RETURNS, REFUNDS)
    assert known(scene).reached == {(0, 0): 50, (1, 0): 9, (2, 0): 3, (2, 1): 5}
    scene.rows(())
    scene.clean("target", scene.target.version())
    broker = tuple(TopicState(topic, {0: (0, 90), 1: (0, 90)}) for topic in (REFUNDS, RETURNS))
    assert decide(scene.start_state(*broker)) == Start({(1, 0): 9, (1, 1): 0, (2, 0): 3, (2, 1): 5})


def test_a_ledger_that_a_user_altered_still_has_its_table_id(scene: Scene) -> None:
    DeltaTable(scene.places.ledger).alter.set_table_properties({"delta.appendOnly": "false"})
    assert known(scene).table_id == scene.snapshots().table_id


def test_a_rebuild_has_read_what_all_its_epochs_have(scene: Scene) -> None:
    scene.swap(0, 50)
    scene.keep()
    state = known(scene)
    assert state.newest is not None and (state.newest.id, state.newest.ends) == (BatchId(5, 1), {(0, 0): 50})
    assert (state.reached, state.newest.sources) == ({(0, 0): 50}, (TOPIC,))


def test_without_lines_of_batches_the_start_goes_on_from_the_log(scene: Scene) -> None:
    """I7: the remaining lines cannot show that an epoch's last batches, or a whole epoch, are missing."""
    scene.ledger.delete("why = 'batch'")
    state = known(scene)
    assert state.newest is not None and (state.newest.ends, state.epoch) == ({(0, 0): 0}, 1)
    decision = decide(scene.start_state())
    assert isinstance(decision, Start) and decision.offsets == {(0, 0): 50}


def test_the_ledger_says_up_to_which_versions_of_both_tables_it_is_complete(scene: Scene) -> None:
    then = Snapshots(scene.snapshots(), scene.snapshots("quarantine"))
    assert complete(scene) == then
    scene.batch(50, 60, range(50, 59), (59,))
    assert complete(scene) == then, "a batch is not in it before the next append"
    version = scene.ledger.version()
    scene.keep()
    assert complete(scene) == Snapshots(scene.snapshots(), scene.snapshots("quarantine"))
    assert written(scene.log("ledger"), "shop.orders", version)[0] == then, "at an earlier version of the ledger"
    assert written(scene.log("ledger"), "shop.payments") == (None, "")
    scene.ledger.optimize.compact()
    assert complete(scene) is not None, "this changes no line"


def _restored(scene: Scene) -> None:
    scene.ledger.restore(1)


def _emptied(scene: Scene) -> None:
    scene.ledger.delete("epoch = 1 AND batch = 3")


def _replaced(scene: Scene) -> None:
    write_deltalake(scene.places.ledger, scene.ledger.to_pyarrow_table().slice(1), mode="overwrite")


def _merged(scene: Scene) -> None:
    lines = pa.table({"batch": pa.array([3], pa.int64())})
    scene.ledger.merge(lines, "t.batch = s.batch", source_alias="s", target_alias="t").when_matched_delete().execute()


def _emptied_with_our_metadata(scene: Scene) -> None:
    about = CommitProperties(custom_metadata={"userMetadata": scene.log("ledger").commit(scene.ledger.version()).user_metadata or ""})
    scene.ledger.delete("epoch = 1 AND batch = 3", commit_properties=about)


@pytest.mark.parametrize("harm", [_restored, _emptied, _replaced, _merged, _emptied_with_our_metadata])
def test_a_ledger_that_may_have_lost_lines_does_not_say_that_it_is_complete(scene: Scene, harm: Any) -> None:
    scene.batch(50, 60, range(50, 60))
    scene.keep()
    harm(scene)
    assert written(scene.log("ledger"), "shop.orders") == (None, scene.snapshots().table_id)
    scene.keep()
    assert complete(scene) is not None


def test_a_ledger_that_deltalake_cannot_read_is_read_through_spark(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark reads a ledger that uses a Delta feature that deltalake lacks."""
    session, ask, before = object(), DataFusion.ask, known(scene)

    class Session:
        """A substitute for Spark."""

        def __init__(self, given: object) -> None:
            assert given is session

        def ask(self, sql: str, **tables: At) -> list[dict[str, Any]]:
            return ask(DataFusion(), sql, **tables)

    def lacking(self: DataFusion, sql: str, **tables: At) -> list[dict[str, Any]]:
        raise Unreadable("typeWidening")

    monkeypatch.setattr(DataFusion, "ask", lacking)
    monkeypatch.setattr(Session, "ask", lambda self, sql, **tables: ask(DataFusion(), sql, **tables))
    monkeypatch.setattr(delta_sql, "Spark", Session)
    with pytest.raises(Unreadable):
        known(scene)
    given: Any = session
    assert read_ledger(given, scene.log("ledger"), "shop.orders") == before
