"""The start state, read from real logs that deltalake wrote (docs/reference/guarantees.md)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import write_deltalake

from ingest.delta.batch_commit import FENCE, Batch, BatchId, State
from ingest.delta.delta_log import Logs
from ingest.delta.posting import Key, Posting
from ingest.kafka.offsets import OffsetRange, Position
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.ledger_reader import LedgerState
from ingest.recovery.decision import refusals_of
from ingest.recovery.start_state import Replaced, StartState
from ingest.recovery.state_reader import read_checkpoint, read_start_state
from ingest.runtime.errors import Refused
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from tests.unit.recovery.engine_scene import Scene
from tests.unit.verify.proof_lake import TOPIC


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def read(scene: Scene) -> Scene:
    """Two batches. The target: created 0, fence 1, seek 2, batches 3 and 4. The quarantine: created 0, fence 1, batch 2."""
    scene.first()
    scene.batch(0, 10, range(10))
    scene.batch(10, 20, range(10, 18), (18, 19))
    scene.keep()
    return scene


def test_an_empty_lake_has_no_table_and_no_epoch(tmp_path: Path) -> None:
    places = Places(str(tmp_path), str(tmp_path), "shop", "orders")
    state = read_start_state(None, places, Logs.of(places), None)
    assert (state.target.snapshot, state.quarantine.snapshot, state.ledger_snapshot, state.next_epoch) == (
        None,
        None,
        None,
        1,
    )
    assert (state.ledger, state.retention, state.count) == (LedgerState(), (), None)


def test_the_broker_is_asked_for_the_log_behind_the_newest_offsets_of_this_topic_alone(scene: Scene) -> None:
    scene.first()
    read = [Posting(Key(1, 2, 0, at.partition), "batch", at, present=0) for at in (OffsetRange(0, 0, 10, 3), OffsetRange(1, 0, 4))]
    batch_commit = scene.batch_commit(Batch(), 2, *read)
    scene.rows((), batch_commit=batch_commit)
    asked: list[Mapping[int, Position]] = []

    def taken_back(read: Mapping[int, Position]) -> Mapping[int, tuple[int, int]]:
        asked.append(read)
        return {0: (7, 10)}

    topic = batch_commit.topic(0)
    state = scene.start_state(TopicState(topic, {0: (0, 12), 1: (0, 4)}, taken_back=taken_back))
    assert (asked, state.taken_back) == ([{0: Position(10, 3)}], {(0, 0): (7, 10)})
    scene.start_state(TopicState(replace(topic, id="another"), {0: (0, 12), 1: (0, 4)}, taken_back=taken_back))
    assert asked[1:] == [{}]


def test_the_broker_is_asked_about_each_topics_own_offsets(scene: Scene) -> None:
    scene.first()
    scene.topic = TopicId("returns", "another")
    read = [Posting(Key(1, 2, *at.of), "batch", at, present=0) for at in (OffsetRange(0, 0, 10, 3), OffsetRange(0, 0, 4, 2, 1))]
    scene.rows((), batch_commit=scene.batch_commit(Batch(), 2, *read))
    asked: dict[str, Mapping[int, Position]] = {}

    def state(topic: TopicId, lost: Mapping[int, tuple[int, int]]) -> TopicState:
        def taken_back(read: Mapping[int, Position]) -> Mapping[int, tuple[int, int]]:
            asked[topic.name] = read
            return lost

        return TopicState(topic, {0: (0, 12)}, taken_back=taken_back)

    found = scene.start_state(state(scene.topic, {0: (3, 4)}), state(TOPIC, {}))
    assert asked == {"orders": {0: Position(10, 3)}, "returns": {0: Position(4, 2)}}
    assert found.taken_back == {(1, 0): (3, 4)} and found.read_to == {(0, 0): Position(10, 3), (1, 0): Position(4, 2)}


def test_the_state_of_a_table_with_two_batches_is_read(read: Scene) -> None:
    """I2: the end offsets to continue at, and the snapshots that distinguish these tables from a copy."""
    state = read.start_state()
    newest, ledger = state.target.newest, state.ledger
    assert newest is not None and newest.snapshots is not None and ledger.newest is not None
    assert (newest.id, newest.ends, newest.version, newest.sources) == (BatchId(1, 3), {(0, 0): 20}, 4, (TOPIC,))
    assert (newest.snapshots.target.version, newest.snapshots.quarantine) == (3, read.snapshots("quarantine"))
    assert (state.target.snapshot, state.target.txn) == (read.snapshots(), BatchId(1, 3))
    assert (state.target.other, state.target.replaced, state.quarantine.replaced) == (None, None, None)
    assert (state.quarantine.epoch, state.quarantine.newest) == (1, BatchId(1, 3))
    assert state.quarantine.copy is None
    assert (ledger.newest.id, ledger.newest.ends, ledger.table_id) == (BatchId(1, 3), {(0, 0): 20}, read.snapshots().table_id)
    assert (state.next_epoch, state.needs_count, ledger.reached) == (2, False, {(0, 0): 20})


@pytest.mark.parametrize("fences", [(), ("target",), ("target", "quarantine")])
def test_created_tables_with_only_fences_are_blank(scene: Scene, fences: tuple[str, ...]) -> None:
    """A first start was cut off twice."""
    for _ in range(2):
        if fences:
            scene.start(quarantine="quarantine" in fences)
    state = scene.start_state()
    assert (state.target.blank, state.target.newest, state.target.whole_log) == (True, None, True)
    assert (state.target.epoch, state.quarantine.epoch) == (2 * len(fences[:1]), 2 * len(fences[1:]))
    scene.rows([1])
    assert not scene.start_state().target.blank, "a user's rows"


def test_a_table_that_another_user_created_is_not_blank(scene: Scene) -> None:
    shutil.rmtree(scene.places.target)
    write_deltalake(scene.places.target, scene.quarantine.to_pyarrow_table())
    state = scene.start_state()
    assert (state.target.blank, state.target.txn, state.target.newest) == (False, None, None)


def test_a_table_recreated_by_a_seek_is_blank_though_the_ledger_knows_its_predecessor(read: Scene) -> None:
    """After TABLE_REPLACED, `seek --to earliest` created the table and was cut off."""
    shutil.rmtree(read.places.target)
    read.create()
    state = read.start_state()
    assert state.target.blank and state.target.newest == state.ledger.newest
    assert state.ledger.table_id not in ("", read.snapshots().table_id)


def test_another_pipelines_commit_is_reported_even_if_newer_ones_are_ours(read: Scene) -> None:
    shutil.rmtree(read.places.ledger)
    other = replace(read.batch_commit(Batch(), 9), pipeline="lab")
    assert read.start_state().target.other is None
    read.rows([7], batch_commit=other)
    read.batch(20, 30, range(20, 30))
    assert read.start_state().target.other == "lab.orders"


def test_a_fence_changes_only_the_epoch(read: Scene) -> None:
    read.start(quarantine=False)
    state = read.start_state()
    assert (state.target.txn, state.quarantine.epoch, state.next_epoch) == (BatchId(2, FENCE), 1, 3)
    assert state.target.newest is not None and state.target.newest.id == BatchId(1, 3)


@pytest.mark.parametrize("ledger", [True, False])
def test_with_a_cleaned_log_the_newest_batch_comes_from_the_ledger(read: Scene, ledger: bool) -> None:
    """I2, and HISTORY_GONE without it."""
    read.target.optimize.compact()
    read.clean("target", 5)
    if not ledger:
        shutil.rmtree(read.places.ledger)
    state = read.start_state()
    assert (state.target.txn, state.target.whole_log, state.target.blank) == (BatchId(1, 3), False, False)
    if not ledger:
        assert (state.target.newest, state.count) == (None, None)
        assert [each.code for each in refusals_of(state)] == ["HISTORY_GONE"]
        return
    newest = state.target.newest
    assert newest is not None and (newest.id, newest.ends, newest.snapshots) == (BatchId(1, 3), {(0, 0): 20}, None)
    assert state.count is not None and (state.count.missing, state.count.unknown) == ((), ())


def test_missing_rows_are_counted_if_only_the_ledger_has_the_batches(read: Scene) -> None:
    read.take(3, 4)
    read.clean("target", 5)
    count = read.start_state().count
    assert count is not None and len(count.missing) == 1 and "2" in count.missing[0]


def test_a_restore_between_a_batchs_snapshot_and_its_commit_is_noticed(read: Scene) -> None:
    """I1: the batch started before the RESTORE, and Delta accepted its commit after it."""
    posting = read.closed(read.cut_off(20, 30), range(20, 30))
    batch_commit = read.batch_commit(Batch(), read.number, posting)
    read.target.restore(1)
    read.rows(range(20, 30), batch_commit=batch_commit)
    assert read.start_state().target.replaced == Replaced(5, "RESTORE")


def test_a_quarantine_restored_from_a_copy_has_another_stamp_or_too_low_a_version(read: Scene) -> None:
    then = read.snapshots("quarantine")
    files = Path(read.places.quarantine) / "_delta_log"
    commit = files / f"{then.version:020}.json"
    kept = commit.read_bytes()
    commit.write_bytes(kept + b"\n")  # another commit with this version
    assert f"its version {then.version} is missing, or differs" in (read.start_state().quarantine.copy or "")
    commit.unlink()
    assert f"its version {then.version} is missing, or differs" in (read.start_state().quarantine.copy or "")


def test_a_target_restored_from_a_copy_is_noticed_by_the_snapshots_of_later_commits(read: Scene) -> None:
    """I6: the copy agrees with its own log, and others may have written to it since."""
    copy = f"{read.places.target}-copy"
    shutil.copytree(read.places.target, copy)
    assert read.start_state().target.copy is None
    for start in (20, 30):
        read.batch(start, start + 10, range(start, start + 9), (start + 9,))
    assert read.start_state().target.copy is None
    shutil.rmtree(read.places.target)
    shutil.move(copy, read.places.target)
    assert "its version 5 is missing" in (read.start_state().target.copy or "")
    read.rows([77])
    assert "or differs from the one that was recorded" in (read.start_state().target.copy or "")
    shutil.rmtree(read.places.target)
    read.create()
    assert "its table id is" in (read.start_state().target.copy or "")
    read.start()
    assert read.start_state().target.copy is None, "a seek has seen this table"


def test_quarantined_batches_are_searched_only_back_to_the_targets_newest_batch(read: Scene) -> None:
    """I7: records older than the quarantine commit that the target's newest batch follows are committed or left on purpose."""

    def quarantine(state: StartState) -> tuple[BatchId | None, bool]:
        return state.quarantine.newest, state.quarantine.whole_log

    read.start()
    read.records([77], batch_commit=replace(read.batch_commit(Batch(), 9), pipeline="lab"))
    read.cut_off(20, 30, (20,))
    read.records([78], batch_commit=replace(read.batch_commit(Batch(), 9), pipeline="lab"))
    assert quarantine(read.start_state()) == (BatchId(2, 2), True)
    read.start()
    assert quarantine(read.start_state()) == (BatchId(2, 2), True), "not rolled back yet"
    read.batch(20, 30, range(20, 30))
    assert quarantine(read.start_state()) == (None, True)
    read.clean("quarantine", 6)
    assert quarantine(read.start_state()) == (None, True), "the fence of this epoch is still there"
    read.records([99])  # a user's own record
    read.clean("quarantine", 8)
    assert quarantine(read.start_state()) == (None, False), "the log cannot tell any more"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "{}"])
def test_a_checkpoint_with_a_torn_file_gives_its_epoch_and_no_table_id(scene: Scene, text: str) -> None:
    """I2: it does not block a start, but the next epoch must not reuse an existing checkpoint folder."""
    scene.checkpoint(3)
    scene.checkpoint(12, text)
    for name in ("x", "13.tmp", "²", "99999999999", "-14"):
        (Path(scene.places.checkpoint) / name).mkdir()
    state = scene.start_state()
    assert (state.checkpoint.epoch, state.checkpoint.table_id, state.next_epoch) == (12, "", 13)


def test_the_table_id_comes_from_the_newest_checkpoint(scene: Scene) -> None:
    scene.checkpoint(9, table_id="a")
    scene.checkpoint(10, table_id="b")
    found = read_checkpoint(LocalFiles(), scene.places.checkpoint)
    assert (found.epoch, found.table_id) == (10, "b")


@pytest.mark.parametrize("table", ["target", "quarantine", "ledger"])
def test_a_torn_log_and_a_ledger_without_its_files_are_refused_by_name(read: Scene, table: str) -> None:
    """I6: deltalake's own error would not name the problem."""
    if table == "ledger":
        for path in Path(read.places.ledger).glob("*.parquet"):
            path.unlink()
        with pytest.raises(Refused, match="LEDGER_UNREADABLE"):
            read.start_state()
        read.keep()
    (Path(read.places.root) / table / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(Refused, match=rf"LOG_TORN: the log of {read.places.root}/{table} lacks the commit of version 0"):
        read.start_state()


def test_commits_of_a_run_while_the_state_is_read_are_never_mistaken_for_a_loss(read: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ingest status` during a run once reported TABLE_REWOUND: it read the target before a batch and the ledger after it."""
    from ingest.recovery import state_reader as module
    from ingest.recovery.decision import Start, decide

    for name in ("read_checkpoint", "read_ledger", "read_target", "read_quarantine"):
        real = getattr(module, name)

        def read_after_a_batch(*arguments: object, real: object = real) -> object:
            before = read.number * 10 - 20
            read.batch(before, before + 10, range(before, before + 9), (before + 9,))
            read.keep()
            return real(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(module, name, read_after_a_batch)
    assert isinstance(decide(read.start_state()), Start)


def test_what_the_newest_batch_did_not_say_and_no_later_commit_says_is_still_open(read: Scene) -> None:
    """Delta in Spark tells only after a MERGE what it has inserted: the next statement on the target has to say it."""
    assert read.start_state().target.opened == ()
    read.batch(20, 30, range(20, 28), opened=True)
    (opened,) = read.start_state().target.opened
    assert (opened.is_open, opened.key.batch, opened.read) == (True, 4, 10)
    read.start()
    assert read.start_state().target.opened == (opened,), "a fence says nothing"
    target, rows = replace(opened, range=None, target=read.closed(opened, range(20, 28)).target, present=2), read.number
    read.rows((), batch_commit=read.batch_commit(State(), rows, target))
    state = read.start_state().target
    assert (state.opened, state.posted) == ((), BatchId(2, rows))
    assert [*refusals_of(read.start_state())] == [], "a statement with postings alone is no batch that is missing"


def test_a_batch_that_says_what_the_one_before_it_inserted_leaves_nothing_open(read: Scene) -> None:
    opened = read.cut_off(20, 30)
    read.put(opened, range(20, 30))
    said = replace(opened, range=None, target=read.closed(opened, range(20, 30)).target, present=0)
    batch = read.closed(read.cut_off(30, 40), range(30, 40))
    read.rows(range(30, 40), batch_commit=read.batch_commit(Batch(), read.number, said, batch))
    state = read.start_state().target
    assert state.opened == () and state.newest is not None and state.newest.ends == {(0, 0): 40}
    assert [each.posting.inserted for each in read.books().batches] == [10, 8, 10, 10]
