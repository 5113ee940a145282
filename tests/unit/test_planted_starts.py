"""What a start looks at, decides and undoes, on logs that are written by hand: each test is what finds a planted bug (docs/faults.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.errors import InvalidInput, RunStopped
from ingest.files import LocalFiles
from ingest.places import Places
from ingest.recovery import epoch as opening
from ingest.recovery.decide import Refuse, Start, decide
from ingest.recovery.facts import BrokerFacts, CheckpointFacts, Facts, LedgerFacts, QuarantineFacts, TargetFacts
from ingest.recovery.look import look
from ingest.recovery.look_back import LookBack
from ingest.recovery.seek import Aim
from ingest.stream import commit as commits
from ingest.stream import contract_change
from ingest.stream.delta_log import DeltaLog, Logs
from ingest.stream.in_force import deletes
from ingest.stream.mark import FENCE, SEEK, BatchId, Kind, Look, Looked, Mark, TopicId
from ingest.stream.offsets import OffsetRange
from tests.unit.engine_scene import Scene

pytestmark = pytest.mark.unit

TOPIC = TopicId("orders", "topic-id")
BROKER = BrokerFacts(TOPIC, {0: (0, 100)})


@dataclass
class Lake:
    """Target and quarantine of shop.orders, as far as their logs go."""

    places: Places

    def log(self, table: str) -> DeltaLog:
        return DeltaLog(LocalFiles(), f"{self.places.root}/{table}")

    def put(self, table: str, operation: str = "MERGE", mark: Mark | None = None, **parameters: Any) -> int:
        """Add a commit; its version."""
        folder = Path(self.places.root) / table / "_delta_log"
        folder.mkdir(parents=True, exist_ok=True)
        version = len(list(folder.iterdir()))
        info = {"operation": operation, "operationParameters": parameters, "userMetadata": mark and mark.to_json()}
        lines: list[dict[str, Any]] = [{"commitInfo": {**info, "txnId": f"{table}-{version}", "timestamp": version}}]
        lines += [{"metaData": {"id": table, "schemaString": "", "configuration": {}}}] if version == 0 else []
        lines += [{"txn": {"appId": mark.app_id, "version": mark.id.txn_version}}] if mark is not None else []
        (folder / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        return version

    def looked(self) -> Looked:
        looks = [self.log(table).look() for table in ("target", "quarantine")]
        return Looked(*(each or Look("", 0, "") for each in looks))

    def mark(self, kind: Kind, epoch: int, number: int, end: int = 0) -> Mark:
        return Mark(kind, "shop", "orders", BatchId(epoch, number), f"w{epoch}", self.looked(), "", TOPIC, (OffsetRange(0, 0, end),))

    def batch(self, epoch: int, number: int, end: int) -> int:
        """A batch that has read up to `end`."""
        return self.put("target", mark=self.mark("batch", epoch, number, end))

    def fence(self, epoch: int, *tables: str) -> None:
        for table in tables or ("target", "quarantine"):
            self.put(table, "WRITE", self.mark("epoch", epoch, FENCE), mode="Append")

    def facts(self, broker: BrokerFacts = BROKER) -> Facts:
        return look(None, self.places, Logs.of(self.places), lambda: broker)

    def refused(self, broker: BrokerFacts = BROKER) -> str:
        """The code of a start's refusal; empty if there is none."""
        decision = decide(self.facts(broker))
        return decision.error.code if isinstance(decision, Refuse) else ""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """One batch of epoch 1 has read up to 5."""
    made = Lake(Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders"))
    for table in ("target", "quarantine"):
        made.put(table, "CREATE TABLE")
    made.fence(1)
    made.batch(1, 2, 5)
    return made


def test_the_ends_are_those_of_the_highest_epoch_wherever_its_commit_stands(lake: Lake) -> None:
    """I2"""
    lake.fence(2)
    lake.batch(2, 2, 9)
    assert decide(lake.facts()) == Start({0: 9})
    lake.batch(1, 3, 7)
    newest = lake.facts().target.newest
    assert newest is not None and newest.ends == {0: 9}


@pytest.mark.parametrize("table", ["target", "quarantine"])
def test_a_restore_before_a_start_is_refused_and_no_fence_settles_it(lake: Lake, table: str) -> None:
    """I1, I6: also where a seek was cut off behind its fence."""
    code = {"target": "TABLE_REWOUND", "quarantine": "QUARANTINE_REWOUND"}[table]
    assert lake.refused() == ""
    lake.put(table, "RESTORE", version=0)
    assert lake.refused() == code
    lake.fence(2)
    assert lake.refused() == code


def test_what_a_person_must_decide_is_refused(lake: Lake, tmp_path: Path) -> None:
    """I6"""
    assert lake.refused(replace(BROKER, topic=TopicId("orders", "another"))) == "TOPIC_RECREATED"
    assert lake.refused(replace(BROKER, bounds={0: (6, 100)})) == "RECORDS_EXPIRED"
    assert lake.refused(replace(BROKER, bounds={0: (5, 100)})) == ""
    first = Path(lake.places.target) / f"_delta_log/{0:020}.json"
    first.write_text(first.read_text().replace('"configuration": {}', '"configuration": {"delta.setTransactionRetentionDuration": "x"}'))
    assert lake.refused() == "TXN_RETENTION"


@pytest.mark.parametrize("at", range(4))
def test_an_epoch_is_greater_than_any_that_anybody_knows(at: int) -> None:
    """I8"""
    target, quarantine, ledger, checkpoint = (7 if each == at else 3 for each in range(4))
    facts = Facts("shop.orders", TargetFacts("t", txn=BatchId(target, 0)), QuarantineFacts("q", epoch=quarantine))
    assert replace(facts, ledger=LedgerFacts(epoch=ledger), checkpoint=CheckpointFacts(checkpoint)).next_epoch == 8


def test_another_writers_commit_of_the_same_batch_is_not_ones_own(lake: Lake) -> None:
    """I1"""
    mark = lake.mark("batch", 1, 2, 5)
    assert commits._own(lake.log("target"), mark, -1) is not None
    assert commits._own(lake.log("target"), replace(mark, writer="another"), -1) is None


def test_a_statement_that_delta_skipped_is_fenced(lake: Lake) -> None:
    """I8: nothing was committed, and a later epoch stands in the log."""
    mark = lake.mark("batch", 1, 3, 9)
    lake.fence(2)
    session: Any = SimpleNamespace(conf=SimpleNamespace(set=lambda *_: None, unset=lambda _: None))
    with pytest.raises(RunStopped) as stopped:
        commits._commit(session, lake.log("target"), lambda: mark, lambda: None)
    assert stopped.value.code == "FENCED"


@pytest.mark.parametrize(("table", "code"), [("target", "TABLE_REWOUND"), ("quarantine", "QUARANTINE_REWOUND")])
def test_a_restore_beneath_a_run_is_seen_at_its_next_look(lake: Lake, table: str, code: str) -> None:
    """I1"""
    looking = LookBack("shop.orders", lake.log("target"), lake.log("quarantine"), lake.looked())
    lake.put(table, "OPTIMIZE")
    assert looking.again() == lake.looked()
    lake.put(table, "RESTORE", version=0)
    with pytest.raises(RunStopped) as stopped:
        looking.again()
    assert stopped.value.code == code


def test_our_own_roll_back_removes_nothing_of_a_batch(lake: Lake) -> None:
    """I4: what others delete excuses a loss, what we roll back was never counted."""
    lake.put("quarantine", "DELETE", lake.mark("rollback", 2, SEEK))
    theirs = lake.put("quarantine", "DELETE")
    log = lake.log("quarantine")
    assert [each.version for each in deletes(log, log.newest())] == [theirs]


def opened(lake: Lake, monkeypatch: pytest.MonkeyPatch, before: str, meanwhile: Callable[[], object]) -> opening.Epoch | None:
    """Open an epoch; `meanwhile` comes between its look and its fence of this table."""

    def fence(_: object, log: DeltaLog, mark: Mark) -> object:
        if log.table.endswith(before):
            meanwhile()
        return lake.put(Path(log.table).name, "WRITE", mark, mode="Append")

    monkeypatch.setattr(commits, "fence", fence)
    monkeypatch.setattr(contract_change, "changes", lambda *_: ())
    monkeypatch.setattr(commits, "create_tables", lambda *_: None)
    monkeypatch.setattr("ingest.recovery.epoch.unfinished", lambda *_: None)  # reads the tables' rows, and there are none
    contract: Any = SimpleNamespace(hash="", source=SimpleNamespace(starting_offsets="earliest"))
    session: Any = None
    return opening._Opening(session, contract, lake.places, lambda: BROKER, None, Logs.of(lake.places)).once()


def test_what_counts_is_what_is_seen_behind_the_fences(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """I8: a batch of the former writer is committed between the first look and the fence."""
    epoch = opened(lake, monkeypatch, "target", lambda: lake.batch(1, 3, 8))
    assert epoch is not None and (epoch.writer.epoch, dict(epoch.starts)) == (2, {0: 8})


def test_an_epoch_that_another_start_has_passed_is_given_up(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """I8: a later one fences the target in the moment in which this one is about to fence the quarantine."""
    assert opened(lake, monkeypatch, "quarantine", lambda: lake.fence(3, "target")) is None


def test_a_seek_that_is_refused_has_made_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blank table in the place of one that was moved away keeps it from being put back."""
    made: list[object] = []
    monkeypatch.setattr(commits, "create_tables", lambda *places: made.append(places))
    scene = Scene(tmp_path)
    scene.first()
    scene.batch(0, 10, range(10))
    scene.keep()
    Path(scene.places.target).rename(tmp_path / "aside")
    session, contract = None, SimpleNamespace(hash="", source=SimpleNamespace(starting_offsets="earliest"))
    seeking = opening.Seeking(Aim("offsets", ((0, 999),)), accept_gap=False, reason="--to 0:999")
    start: Any = opening._Opening(session, contract, scene.places, lambda: BROKER, seeking, Logs.of(scene.places))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="OFFSETS_INVALID"):
        start.once()
    assert not made
