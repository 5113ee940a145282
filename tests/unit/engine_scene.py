"""A lake as the engine leaves it, for its looks without Spark: fences on both tables, real looks, a marked ledger, checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from ingest.delta.batch_commit import FENCE, SEEK, Kind, Look, Looked, Mark
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import BrokerFacts
from ingest.recovery.inspect import EPOCH_FILE, look
from ingest.recovery.start_state import Facts
from ingest.runtime.files import LocalFiles
from tests.unit.proof_lake import LEDGER, TOPIC, Lake

CREATED = {"oncelake": 1, "kind": "created", "pipeline": "shop", "table": "orders", "contract_hash": "hash"}


class Scene(Lake):
    """One partition; every record's event id is its offset. No epoch is open yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.epoch = 0

    def log(self, table: str = "target") -> DeltaLog:
        """Looked at anew."""
        return DeltaLog(LocalFiles(), f"{self.places.root}/{table}")

    def facts(self, broker: BrokerFacts | None = None) -> Facts:
        """What a start sees."""
        return look(None, self.places, Logs.of(self.places), lambda: broker)

    def start(self, *, quarantine: bool = True) -> None:
        """The next epoch begins, with its fences."""
        super().start()
        self.rows((), mark=self.mark("epoch", FENCE))
        if quarantine:
            self.records((), mark=self.mark("epoch", FENCE))

    def first(self, start: int = 0) -> None:
        """The first epoch, with its offsets."""
        self.start()
        self.sought = True
        mark = replace(self.mark("seek", SEEK), ranges=(OffsetRange(0, start, start),), why="first")
        self.rows((), mark=mark)
        self._project(mark)

    def mark(self, kind: Kind, number: int) -> Mark:
        """With what the statement looked at."""
        return replace(super().mark(kind, number), looked=Looked(self.looked(), self.looked("quarantine")))

    def put(self, mark: Mark, rows: Sequence[int]) -> None:
        """As Lake.put: the target's statement looks again, behind the quarantine's commit."""
        super().put(replace(mark, looked=self.mark("batch", mark.id.number).looked), rows)

    def keep(self, but: int = 0) -> None:
        """Write the ledger, without its last rows."""
        told = replace(self.mark("ledger", FENCE), id=self.here)
        rows = pa.Table.from_pylist([asdict(each) for each in self.ledger[: len(self.ledger) - but]], LEDGER)
        said = CommitProperties(custom_metadata={"userMetadata": told.to_json()})
        write_deltalake(self.places.ledger, rows, mode="overwrite", commit_properties=said)

    def checkpoint(self, epoch: int, text: str | None = None, table_id: str | None = None) -> None:
        """The folder of an epoch's checkpoint."""
        file = Path(self.places.checkpoint_of(epoch)) / EPOCH_FILE
        file.parent.mkdir(parents=True)
        about = {"epoch": epoch, "table_id": table_id or self.looked().table_id, "topic": TOPIC.name, "topic_id": TOPIC.id}
        file.write_text(json.dumps(about) if text is None else text, encoding="utf-8")

    def looked(self, table: str = "target") -> Look:
        """The table now."""
        state = self.log(table).state()
        assert state is not None
        return state.look

    def clean(self, table: str, version: int) -> None:
        """Delta cleans up the log before `version`, which a checkpoint holds."""
        delta = self.target if table == "target" else self.quarantine
        delta.create_checkpoint()
        for each in range(version):
            (Path(self.places.root) / table / "_delta_log" / f"{each:020}.json").unlink(missing_ok=True)

    def _write(self, table: str, columns: Mapping[str, pa.Array], mark: Mark | None) -> None:
        there = self.log(table).exists()
        metadata = mark.to_json() if mark is not None else None if there else json.dumps(CREATED)
        transactions = [Transaction(mark.app_id, mark.id.txn_version)] if mark is not None else None
        said = CommitProperties(custom_metadata={"userMetadata": metadata} if metadata else None, app_transactions=transactions)
        write_deltalake(f"{self.places.root}/{table}", pa.table(dict(columns)), mode="append", commit_properties=said)
