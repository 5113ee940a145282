"""What a start reads, decides and rolls back, on logs by deltalake. Nearly every test kills a mutant (docs/explanation/faults.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from ingest.delta import contract_change
from ingest.delta import writer as commits
from ingest.delta.batch_commit import SEEK, Batch, BatchCommit, BatchId, RollBack, Snapshots
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import At, DataFusion
from ingest.delta.posting import Key, Posting
from ingest.delta.reachable import deletes
from ingest.delta.table_writer import SparkWriter
from ingest.kafka.offsets import OffsetRange, Partition
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.ledger_reader import LedgerState
from ingest.recovery import epoch as opening
from ingest.recovery import roll_back as undoing
from ingest.recovery.decision import Refuse, Start, decide
from ingest.recovery.look_back import LookBack
from ingest.recovery.numbering import Numbered
from ingest.recovery.roll_back import roll_back
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.recovery.start_state import CheckpointState, QuarantineState, Replaced, StartState, TargetState
from ingest.runtime.errors import InvalidInput, RunStopped
from tests.unit.recovery.engine_scene import Scene
from tests.unit.recovery.test_decision import GOOD
from tests.unit.verify.proof_lake import TOPIC

pytestmark = pytest.mark.unit

BROKER = TopicState(TOPIC, {0: (0, 100)})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """One batch has read up to 5. The target: created 0, fence 1, seek 2, batch 3. The quarantine: created 0, fence 1, batch 2."""
    scene = Scene(tmp_path)
    scene.first()
    scene.batch(0, 5, range(4), (4,))
    return scene


def refused(scene: Scene, broker: TopicState = BROKER) -> str:
    """The code of a start's refusal, or an empty string."""
    decision = decide(scene.start_state(broker))
    return decision.error.code if isinstance(decision, Refuse) else ""


def test_the_end_offsets_come_from_the_highest_epoch_not_from_the_highest_version(scene: Scene) -> None:
    """I2: only delta-rs accepts an older transaction id after a newer one."""
    scene.start()
    scene.batch(5, 7, range(5, 7))
    scene.batch(7, 9, range(7, 9))
    assert decide(scene.start_state(BROKER)) == Start({(0, 0): 9})
    for late in (BatchId(1, 3), BatchId(2, 2)):
        posting = Posting(Key(late.epoch, late.number, 0, 0), "batch", OffsetRange(0, 5, 7))
        scene.rows((), batch_commit=replace(scene.batch_commit(Batch(), 3, posting), id=late))
        newest = scene.start_state().target.newest
        assert newest is not None and (newest.id, newest.ends) == (BatchId(2, 3), {(0, 0): 9})


@pytest.mark.parametrize(("table", "version", "code"), [("target", 4, "TABLE_REWOUND"), ("quarantine", 3, "QUARANTINE_REWOUND")])
def test_a_restore_before_a_start_is_refused_until_a_seek_and_no_fence_settles_it(
    scene: Scene, table: str, version: int, code: str
) -> None:
    """I1, I6: only the commit of a seek, whose snapshot includes the RESTORE, settles it. A seek that ends after its fence does not."""

    def found() -> tuple[Replaced | None, str]:
        state = scene.start_state()
        return (state.target if table == "target" else state.quarantine).replaced, refused(scene)

    assert found() == (None, "")
    DeltaTable(f"{scene.places.root}/{table}").restore(1)
    assert found() == (Replaced(version, "RESTORE"), code)
    scene.start()
    assert found() == (Replaced(version, "RESTORE"), code)
    scene.seek(0)
    assert found() == (None, "")


def test_recreated_topics_expired_records_and_expiring_transaction_ids_are_refused(scene: Scene) -> None:
    """I6"""
    assert refused(scene, replace(BROKER, topic=TopicId("orders", "another"))) == "TOPIC_RECREATED"
    assert refused(scene, replace(BROKER, bounds={0: (6, 100)})) == "RECORDS_EXPIRED"
    assert refused(scene, replace(BROKER, bounds={0: (5, 100)})) == ""
    scene.keep()
    for table in ("ledger", "target", "quarantine"):
        path = f"{scene.places.root}/{table}"
        DeltaTable(path).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 7 days"}, raise_if_not_exists=False)
        # The ledger has no transaction ids: any process may write the same rows.
        assert refused(scene) == ("" if table == "ledger" else "TXN_RETENTION")
    assert scene.start_state().retention == (scene.places.target, scene.places.quarantine)


@pytest.mark.parametrize("at", range(4))
def test_a_new_epoch_is_greater_than_any_epoch_found_anywhere(at: int) -> None:
    """I8"""
    target, quarantine, ledger, checkpoint = (7 if each == at else 3 for each in range(4))
    state = StartState("shop.orders", TargetState("t", txn=BatchId(target, 0)), QuarantineState("q", epoch=quarantine))
    assert replace(state, ledger=LedgerState(statement=BatchId(ledger, 2)), checkpoint=CheckpointState(checkpoint)).next_epoch == 8


def test_another_writers_commit_of_the_same_batch_is_not_mistaken_for_our_own(scene: Scene) -> None:
    """I1"""
    batch_commit = scene.log().commit(3).batch_commit
    assert batch_commit is not None and commits._own(scene.log(), batch_commit, -1) is not None
    assert commits._own(scene.log(), replace(batch_commit, writer="another"), -1) is None


def test_a_statement_that_delta_skipped_is_reported_as_fenced(scene: Scene) -> None:
    """I8: nothing was committed, and the log contains a later epoch."""
    batch_commit = scene.batch_commit(Batch(), 3)
    scene.start()
    session: Any = SimpleNamespace(conf=SimpleNamespace(set=lambda *_: None, unset=lambda _: None))
    with pytest.raises(RunStopped) as stopped:
        commits.commit(session, scene.log(), lambda: batch_commit, lambda: None)
    assert stopped.value.code == "FENCED"


@pytest.mark.parametrize(("table", "code"), [("target", "TABLE_REWOUND"), ("quarantine", "QUARANTINE_REWOUND")])
def test_a_restore_during_a_run_stops_it_at_its_next_check(scene: Scene, table: str, code: str) -> None:
    """I1"""
    look_back = LookBack("shop.orders", scene.log(), scene.log("quarantine"), Snapshots(scene.snapshots(), scene.snapshots("quarantine")))
    DeltaTable(f"{scene.places.root}/{table}").restore(1)
    for _ in range(2):
        with pytest.raises(RunStopped) as stopped:
            look_back.again()
        assert stopped.value.code == code


def test_our_own_roll_back_does_not_count_as_a_delete(scene: Scene) -> None:
    """I4, I7: a DELETE by others explains missing rows. A roll-back does not, because its records were never counted."""
    scene.start()
    batch_commit = scene.batch_commit(RollBack(), SEEK)
    transaction = CommitProperties(
        {"userMetadata": batch_commit.to_json()}, app_transactions=[Transaction(batch_commit.app_id, batch_commit.id.txn_version)]
    )
    scene.quarantine.delete("offset = 4", commit_properties=transaction)
    log = scene.log("quarantine")
    assert list(deletes(log, log.newest())) == [] and scene.codes() == ["QUARANTINE_DIFFERS"]


EARLIEST = {(0, 0): 0, (0, 1): 3}  # the earliest offsets of GOOD's topic


def topics(state: StartState) -> Numbered:
    assert state.topics is not None
    return state.topics


RECORDS = list(product((1, 3, 4, 5), (2, 3, 4), (0, 1), (0, 1, 2), (0, 6, 7, 8)))


@pytest.fixture(scope="module")
def quarantine(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("quarantine"))
    columns = zip(("epoch", "batch", "source", "partition", "offset"), zip(*RECORDS, strict=True), strict=True)
    write_deltalake(path, pa.table({name: list(values) for name, values in columns}))
    return path


@pytest.mark.parametrize(
    "earliest", [{(0, 0): 7, (0, 1): 0}, {(0, 0): 7, (0, 1): 8, (0, 2): 9}, {(1, 0): 7, (1, 1): 0}, {(0, 0): 7, (1, 0): 6, (1, 2): 0}, {}]
)
@pytest.mark.parametrize("left", [frozenset(), frozenset({1})])
@pytest.mark.parametrize("newest", [BatchId(3, 3), BatchId(4, 1), BatchId(0, 0)])
def test_a_roll_back_removes_uncommitted_records_that_will_be_re_read(
    quarantine: str, newest: BatchId, left: frozenset[int], earliest: dict[Partition, int]
) -> None:
    """I7: records above (E, B), below this epoch, of the contract's topics, that Kafka still has, and of topics that were left out."""
    undone = undoing.RollBack(5, newest, earliest, left)
    found = DataFusion().ask(f"SELECT * FROM {{q}} WHERE {undone.condition}", q=At(quarantine))
    expected = {
        (epoch, batch, source, partition, offset)
        for epoch, batch, source, partition, offset in RECORDS
        if epoch < 5 and (epoch > newest.epoch or (epoch == newest.epoch and batch > newest.number))
        if source in left or offset >= earliest.get((source, partition), 9)
    }
    assert {tuple(row.values()) for row in found} == expected
    assert {each for each in RECORDS if undone.takes(BatchId(*each[:2]), each[2:4], each[4])} == expected


@pytest.mark.parametrize(
    ("newest", "whole_log", "due"),
    [
        (BatchId(3, 6), True, True),
        (BatchId(4, 2), True, True),
        (BatchId(3, 5), True, False),
        (BatchId(1, 9), True, False),
        (None, True, False),
        (None, False, True),  # the log cannot tell: the DELETE itself checks
        (BatchId(3, 5), False, False),
    ],
)
def test_a_roll_back_is_due_if_the_quarantine_is_ahead_of_the_target(newest: BatchId | None, whole_log: bool, due: bool) -> None:
    state = replace(GOOD, quarantine=replace(GOOD.quarantine, newest=newest, whole_log=whole_log))
    undone = roll_back(state, 5, topics(state))
    assert undone == (undoing.RollBack(5, BatchId(3, 5), EARLIEST) if due else None)


def test_without_a_committed_batch_a_roll_back_removes_everything() -> None:
    state = replace(GOOD, target=replace(GOOD.target, newest=None), quarantine=QuarantineState("/q", newest=BatchId(1, 2)))
    assert roll_back(state, 2, topics(state)) == undoing.RollBack(2, BatchId(0, 0), EARLIEST)


def opening_of(scene: Scene, seeking: Seeking | None = None) -> Any:
    session, contract = None, SimpleNamespace(hash="", source=SimpleNamespace(starting_offsets="earliest"))
    statements, logs = SparkWriter(session), Logs.of(scene.places)  # type: ignore[arg-type]
    return opening._Opening(session, contract, scene.places, lambda: (BROKER,), seeking, None, 1, logs, statements)  # type: ignore[arg-type]


def opened(scene: Scene, monkeypatch: pytest.MonkeyPatch, before: str, meanwhile: Callable[[], object]) -> opening.Epoch | None:
    """Open an epoch; `meanwhile` runs between its first read and its fence on this table."""

    def fence(_: object, log: DeltaLog, batch_commit: BatchCommit) -> Commit:
        if log.table.endswith(before):
            meanwhile()
        (scene.rows if log.table == scene.places.target else scene.records)((), batch_commit=batch_commit)
        return log.commit(log.newest())

    monkeypatch.setattr(commits, "fence", fence)
    monkeypatch.setattr(contract_change, "changes", lambda *_: ())
    monkeypatch.setattr(commits, "create_tables", lambda *_: None)
    epoch: opening.Epoch | None = opening_of(scene).once()
    return epoch


def test_a_start_decides_from_the_state_that_it_reads_after_its_fences(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """I8: an earlier writer commits a batch between the first read and the fence."""
    epoch = opened(scene, monkeypatch, "target", lambda: scene.batch(5, 8, range(5, 8)))
    assert epoch is not None and (epoch.writer.epoch, dict(epoch.starts)) == (2, {(0, 0): 8})


def test_an_epoch_is_given_up_if_another_start_has_opened_a_later_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """I8: a later start fences the target just before this one fences the quarantine."""
    scene.epoch = 2
    assert opened(scene, monkeypatch, "quarantine", lambda: scene.start(quarantine=False)) is None


def test_a_refused_seek_creates_no_table(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blank table at this path would prevent moving the original table back."""
    created: list[object] = []
    monkeypatch.setattr(commits, "create_tables", lambda *places: created.append(places))
    scene.keep()
    Path(scene.places.target).rename(tmp_path / "aside")
    with pytest.raises(InvalidInput, match="OFFSETS_INVALID"):
        opening_of(scene, Seeking(Aim("offsets", ((("", 0), 999),)), accept_gap=False, reason="--to 0:999")).once()
    assert not created
