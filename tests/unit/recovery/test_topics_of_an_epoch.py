"""What an epoch of a table with several topics commits: numbers, starts and roll-backs by topic, without Spark (I2, I6, I7)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.delta import contract_change
from ingest.delta.batch_commit import FENCE, SEEK, Batch, BatchCommit, BatchId, Fence, Replay, Seek, Start
from ingest.delta.commit import Commit
from ingest.delta.direct_writer import DirectWriter
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.recovery.epoch import Epoch, Statement, open_epoch
from ingest.recovery.idle import waiting
from ingest.recovery.look_back import LookBack
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.runtime.errors import Refused
from tests.unit.recovery.engine_scene import Scene, one_batch
from tests.unit.verify.proof_lake import CONTRACT, TOPIC

pytestmark = pytest.mark.unit

RETURNS = TopicId("returns", "another")
ORDERS_STATE, RETURNS_STATE = TopicState(TOPIC, {0: (0, 10)}), TopicState(RETURNS, {0: (3, 9)})
TO_TABLE = Seeking(Aim("table"), accept_gap=False, reason="--to table")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """One batch has read `orders` up to 10."""
    monkeypatch.setattr(contract_change, "changes", lambda *_: [])  # the scene's tables have fewer columns than a contract requires
    return one_batch(tmp_path)


def opened(scene: Scene, *broker: TopicState, seeking: Seeking | None = None, statement: Statement | None = None) -> Epoch:
    """The next epoch; the scene goes on with it."""
    epoch = open_epoch(None, CONTRACT, scene.places, lambda: broker, seeking, statement, writer=DirectWriter())
    epoch.finish()
    scene.epoch, scene.number, scene.sources = epoch.writer.epoch, 2, [*epoch.writer.sources]
    return epoch


def committed(scene: Scene) -> BatchCommit:
    """The newest commit on the target."""
    found = scene.log().commit(scene.target.version()).batch_commit
    assert found is not None
    return found


def said(found: BatchCommit) -> list[str]:
    return [f"{each.why} {each.range}" for each in found.postings]


def test_the_offsets_of_a_topic_that_joins_are_committed_with_those_of_all_others(scene: Scene) -> None:
    epoch = opened(scene, RETURNS_STATE, ORDERS_STATE)
    assert (epoch.writer.sources, epoch.topics) == ((TOPIC, RETURNS), {0: "orders", 1: "returns"})
    found = committed(scene)
    assert (found.case, found.sources) == (Start("topics join: returns"), (TOPIC, RETURNS))
    assert said(found) == ["start 0:[10,10)", "first 1/0:[3,3)"] and found.ends == epoch.starts == {(0, 0): 10, (1, 0): 3}
    assert scene.findings() == ()
    opened(scene, ORDERS_STATE, RETURNS_STATE)
    assert committed(scene).id == BatchId(3, FENCE), "it has joined"


def test_a_table_that_a_topic_joins_is_not_idle_even_if_there_is_nothing_to_read(scene: Scene) -> None:
    empty = replace(RETURNS_STATE, bounds={0: (0, 0)})
    assert not waiting(CONTRACT, scene.places, lambda: (ORDERS_STATE,)).epoch
    joins = waiting(CONTRACT, scene.places, lambda: (ORDERS_STATE, empty))
    assert (joins.offsets, joins.epoch) == (0, True)
    assert waiting(CONTRACT, scene.places, lambda: (ORDERS_STATE, RETURNS_STATE)).offsets == 6
    opened(scene, ORDERS_STATE, empty)
    assert not waiting(CONTRACT, scene.places, lambda: (ORDERS_STATE, empty)).epoch


def test_a_batch_of_both_topics_is_each_topics_own_in_books_and_next_start(scene: Scene) -> None:
    opened(scene, ORDERS_STATE, RETURNS_STATE)
    nothing = scene.closed(scene.cut_off(10, 10), ())
    scene.topic, scene.shift = RETURNS, 100
    rows = scene.closed(scene.cut_off(3, 9), range(3, 9))
    scene.rows(range(3, 9), batch_commit=scene.batch_commit(Batch(), scene.number, nothing, rows))
    assert scene.findings() == ()
    assert opened(scene, RETURNS_STATE, ORDERS_STATE).starts == {(0, 0): 10, (1, 0): 9}


def test_a_seek_goes_on_without_a_topic_and_no_later_start_asks_for_it(scene: Scene) -> None:
    opened(scene, ORDERS_STATE, RETURNS_STATE)
    with pytest.raises(Refused, match=r"TOPIC_CHANGED.*was read from topic orders"):
        opened(scene, RETURNS_STATE)
    epoch = opened(scene, RETURNS_STATE, seeking=TO_TABLE)
    assert (epoch.starts, epoch.topics, epoch.writer.sources) == ({(1, 0): 3}, {1: "returns"}, (TOPIC, RETURNS))
    assert committed(scene).case == Seek("--to table") and said(committed(scene)) == ["seek 1/0:[3,3)"]
    assert opened(scene, RETURNS_STATE).starts == {(1, 0): 3}
    with pytest.raises(Refused, match=r"TOPIC_CHANGED.*knows orders from before"):
        opened(scene, ORDERS_STATE, RETURNS_STATE)
    back = opened(scene, ORDERS_STATE, RETURNS_STATE, seeking=TO_TABLE)
    assert (back.starts, back.writer.sources, back.read_before) == ({(0, 0): 10, (1, 0): 3}, (TOPIC, RETURNS), {(0, 0): 10})
    assert scene.findings() == ()


def test_a_statement_of_an_epoch_that_a_topic_joins_commits_the_offsets_itself(scene: Scene) -> None:
    """Both would have the number of a seek, and Delta would refuse the second."""
    seen: list[BatchCommit] = []

    def statement(at_end: BatchCommit, look_back: LookBack) -> Commit | None:
        seen.append(replace(at_end, case=Replay("a test"), snapshots=look_back.again()))
        scene.rows((), batch_commit=seen[-1])
        return scene.log().commit(scene.target.version())

    opened(scene, ORDERS_STATE, RETURNS_STATE, statement=statement)
    assert committed(scene) == seen[0] and seen[0].id == BatchId(2, SEEK)
    assert seen[0].ends == {(0, 0): 10, (1, 0): 3} and said(seen[0]) == ["start 0:[10,10)", "first 1/0:[3,3)"]
    fence = [*scene.log().newest_first()][1].batch_commit
    assert fence is not None and (fence.case, fence.id) == (Fence(), BatchId(2, FENCE)), "nothing came between"
    assert opened(scene, ORDERS_STATE, RETURNS_STATE).starts == seen[0].ends


def test_a_number_that_only_the_quarantine_has_is_not_given_to_another_topic(scene: Scene) -> None:
    """A copy of the target from before `returns` joined was put back. Records of `returns` may be in the quarantine."""
    copy = f"{scene.places.target}-copy"
    shutil.copytree(scene.places.target, copy)
    opened(scene, ORDERS_STATE, RETURNS_STATE)
    shutil.rmtree(scene.places.target)
    shutil.move(copy, scene.places.target)
    shutil.rmtree(scene.places.ledger)
    refunds = TopicState(TopicId("refunds", "r"), {0: (0, 5)})
    epoch = opened(scene, ORDERS_STATE, refunds, seeking=TO_TABLE)
    assert epoch.writer.sources == (TOPIC, RETURNS, refunds.topic) and epoch.topics == {0: "orders", 2: "refunds"}


def quarantined(scene: Scene) -> list[tuple[int, int]]:
    table = scene.quarantine.to_pyarrow_table()
    return sorted(zip(table["source"].to_pylist(), table["offset"].to_pylist(), strict=True))


def test_records_of_a_batch_that_was_cut_off_are_rolled_back_in_each_topic(scene: Scene) -> None:
    """I7"""
    opened(scene, ORDERS_STATE, RETURNS_STATE)
    for topic, offsets in ((TOPIC, range(10, 12)), (RETURNS, range(3, 6))):
        scene.topic = topic
        scene.cut_off(offsets[0], offsets[-1] + 1, offsets)
    assert len(quarantined(scene)) == 7
    opened(scene, replace(ORDERS_STATE, bounds={0: (0, 12)}), RETURNS_STATE)
    assert quarantined(scene) == [(0, 8), (0, 9)]


def test_a_seek_rolls_back_what_a_batch_that_was_cut_off_left_of_a_topic_that_it_leaves_out(scene: Scene) -> None:
    """I5, I7: once the topic is back, a later batch is newest, and reads these offsets as new ones: it would add the records again."""
    opened(scene, ORDERS_STATE, RETURNS_STATE)
    scene.topic = RETURNS
    scene.cut_off(3, 6, (4,))
    opened(scene, ORDERS_STATE, seeking=TO_TABLE)
    assert quarantined(scene) == [(0, 8), (0, 9)]


def test_a_seek_to_table_rolls_back_what_the_topic_of_the_name_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers without topic ids in another cluster: the user says that it is the same topic, so it has the same number."""
    monkeypatch.setattr(contract_change, "changes", lambda *_: [])
    scene = Scene(tmp_path)
    scene.sources = [TopicId("orders", "", "one")]
    scene.first()
    scene.batch(0, 10, range(8), (8, 9))
    scene.cut_off(10, 12, (10,))
    scene.keep()
    elsewhere = TopicState(TopicId("orders", "", "another"), {0: (0, 12)})
    epoch = opened(scene, elsewhere, seeking=TO_TABLE)
    assert (epoch.starts, epoch.writer.sources, epoch.read_to) == ({(0, 0): 10}, (elsewhere.topic,), {})
    assert quarantined(scene) == [(0, 8), (0, 9)]
