"""A lake as the engine leaves it, for its looks without Spark: fences on both tables, real looks, a marked ledger, checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from ingest.delta.batch_commit import FENCE, SEEK, BatchCommit, Kind, Snapshot, Snapshots
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicState
from ingest.recovery.start_state import StartState
from ingest.recovery.state_reader import EPOCH_FILE, read_start_state
from ingest.runtime.files import LocalFiles
from tests.unit.verify.proof_lake import LEDGER, TOPIC, Lake

CREATED = {"oncelake": 1, "kind": "created", "pipeline": "shop", "table": "orders", "contract_hash": "hash"}


class Scene(Lake):
    """One partition; every record's event id is its offset. No epoch is open yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.epoch = 0

    def log(self, table: str = "target") -> DeltaLog:
        """Looked at anew."""
        return DeltaLog(LocalFiles(), f"{self.places.root}/{table}")

    def start_state(self, broker: TopicState | None = None) -> StartState:
        """What a start sees."""
        return read_start_state(None, self.places, Logs.of(self.places), lambda: broker)

    def start(self, *, quarantine: bool = True) -> None:
        """The next epoch begins, with its fences."""
        super().start()
        self.rows((), batch_commit=self.batch_commit("epoch", FENCE))
        if quarantine:
            self.records((), batch_commit=self.batch_commit("epoch", FENCE))

    def first(self, start: int = 0) -> None:
        """The first epoch, with its offsets."""
        self.start()
        self.sought = True
        batch_commit = replace(self.batch_commit("seek", SEEK), ranges=(OffsetRange(0, start, start),), why="first")
        self.rows((), batch_commit=batch_commit)
        self._project(batch_commit)

    def batch_commit(self, kind: Kind, number: int) -> BatchCommit:
        """With what the statement looked at."""
        return replace(super().batch_commit(kind, number), snapshots=Snapshots(self.snapshots(), self.snapshots("quarantine")))

    def put(self, batch_commit: BatchCommit, rows: Sequence[int]) -> None:
        """As Lake.put: the target's statement looks again, behind the quarantine's commit."""
        super().put(replace(batch_commit, snapshots=self.batch_commit("batch", batch_commit.id.number).snapshots), rows)

    def keep(self, but: int = 0) -> None:
        """Write the ledger, without its last rows."""
        told = replace(self.batch_commit("ledger", FENCE), id=self.here)
        rows = pa.Table.from_pylist([asdict(each) for each in self.ledger[: len(self.ledger) - but]], LEDGER)
        said = CommitProperties(custom_metadata={"userMetadata": told.to_json()})
        write_deltalake(self.places.ledger, rows, mode="overwrite", commit_properties=said)

    def checkpoint(self, epoch: int, text: str | None = None, table_id: str | None = None) -> None:
        """The folder of an epoch's checkpoint."""
        file = Path(self.places.checkpoint_of(epoch)) / EPOCH_FILE
        file.parent.mkdir(parents=True)
        about = {"epoch": epoch, "table_id": table_id or self.snapshots().table_id, "topic": TOPIC.name, "topic_id": TOPIC.id}
        file.write_text(json.dumps(about) if text is None else text, encoding="utf-8")

    def snapshots(self, table: str = "target") -> Snapshot:
        """The table now."""
        state = self.log(table).state()
        assert state is not None
        return state.snapshot

    def clean(self, table: str, version: int) -> None:
        """Delta cleans up the log before `version`, which a checkpoint holds."""
        delta = self.target if table == "target" else self.quarantine
        delta.create_checkpoint()
        for each in range(version):
            (Path(self.places.root) / table / "_delta_log" / f"{each:020}.json").unlink(missing_ok=True)

    def _write(self, table: str, columns: Mapping[str, pa.Array], batch_commit: BatchCommit | None) -> None:
        there = self.log(table).exists()
        metadata = batch_commit.to_json() if batch_commit is not None else None if there else json.dumps(CREATED)
        transactions = [Transaction(batch_commit.app_id, batch_commit.id.txn_version)] if batch_commit is not None else None
        said = CommitProperties(custom_metadata={"userMetadata": metadata} if metadata else None, app_transactions=transactions)
        write_deltalake(f"{self.places.root}/{table}", pa.table(dict(columns)), mode="append", commit_properties=said)
