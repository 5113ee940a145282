"""A lake as the engine writes it, without Spark: fences on both tables, real snapshots, a ledger with BatchCommits, checkpoints."""

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
        """A new log reader, without cached versions."""
        return DeltaLog(LocalFiles(), f"{self.places.root}/{table}")

    def start_state(self, broker: TopicState | None = None) -> StartState:
        """The state that a start reads."""
        return read_start_state(None, self.places, Logs.of(self.places), lambda: broker)

    def start(self, *, quarantine: bool = True) -> None:
        """Start the next epoch, with its fences."""
        super().start()
        self.rows((), batch_commit=self.batch_commit("epoch", FENCE))
        if quarantine:
            self.records((), batch_commit=self.batch_commit("epoch", FENCE))

    def first(self, start: int = 0) -> None:
        """Start the first epoch and commit its starting offsets."""
        self.start()
        self.sought = True
        batch_commit = replace(self.batch_commit("seek", SEEK), ranges=(OffsetRange(0, start, start),), why="first")
        self.rows((), batch_commit=batch_commit)
        self._project(batch_commit)

    def batch_commit(self, kind: Kind, number: int) -> BatchCommit:
        """As Lake.batch_commit, with snapshots of both tables."""
        return replace(super().batch_commit(kind, number), snapshots=Snapshots(self.snapshots(), self.snapshots("quarantine")))

    def put(self, batch_commit: BatchCommit, rows: Sequence[int]) -> None:
        """As Lake.put, but with new snapshots: the target's statement comes after the quarantine's commit."""
        super().put(replace(batch_commit, snapshots=self.batch_commit("batch", batch_commit.id.number).snapshots), rows)

    def keep(self, but: int = 0) -> None:
        """Write the ledger without its last `but` rows."""
        batch_commit = replace(self.batch_commit("ledger", FENCE), id=self.here)
        rows = pa.Table.from_pylist([asdict(each) for each in self.ledger[: len(self.ledger) - but]], LEDGER)
        properties = CommitProperties(custom_metadata={"userMetadata": batch_commit.to_json()})
        write_deltalake(self.places.ledger, rows, mode="overwrite", commit_properties=properties)

    def checkpoint(self, epoch: int, text: str | None = None, table_id: str | None = None) -> None:
        """Create the folder of an epoch's checkpoint."""
        file = Path(self.places.checkpoint_of(epoch)) / EPOCH_FILE
        file.parent.mkdir(parents=True)
        content = {"epoch": epoch, "table_id": table_id or self.snapshots().table_id, "topic": TOPIC.name, "topic_id": TOPIC.id}
        file.write_text(json.dumps(content) if text is None else text, encoding="utf-8")

    def snapshots(self, table: str = "target") -> Snapshot:
        """The table's current snapshot."""
        state = self.log(table).state()
        assert state is not None
        return state.snapshot

    def clean(self, table: str, version: int) -> None:
        """Clean up the log before `version`, as Delta does; a log checkpoint covers it."""
        delta = self.target if table == "target" else self.quarantine
        delta.create_checkpoint()
        for each in range(version):
            (Path(self.places.root) / table / "_delta_log" / f"{each:020}.json").unlink(missing_ok=True)

    def _write(self, table: str, columns: Mapping[str, pa.Array], batch_commit: BatchCommit | None) -> None:
        exists = self.log(table).exists()
        metadata = batch_commit.to_json() if batch_commit is not None else None if exists else json.dumps(CREATED)
        transactions = [Transaction(batch_commit.app_id, batch_commit.id.txn_version)] if batch_commit is not None else None
        properties = CommitProperties(custom_metadata={"userMetadata": metadata} if metadata else None, app_transactions=transactions)
        write_deltalake(f"{self.places.root}/{table}", pa.table(dict(columns)), mode="append", commit_properties=properties)
