"""A lake that deltalake writes, for `ingest verify` without Spark: epochs, seeks and batches, and changes by other users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from ingest.contract.definition import Contract
from ingest.delta.batch_commit import FIRST_BATCH, SEEK, BatchCommit, BatchId, Counts, Kind, Snapshot, Snapshots
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import DataFusion
from ingest.delta.stored_rows import found
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.ledger.ledger_row import LedgerRow, count_rows, epoch_begin
from ingest.quality.quality_proof import quality_proof
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from ingest.verify.balance import Finding
from ingest.verify.coverage import Coverage, coverage
from ingest.verify.proof.proof_file import content
from ingest.verify.verdict import Verified, verify

CONTRACT = Contract.model_validate(
    {
        "pipeline": "shop",
        "table": "orders",
        "source": {"topic": "orders", "format": "json"},
        "columns": [{"name": "id", "type": "BIGINT", "nullable": False}],
        "event_id": ["id"],
    }
)
TOPIC = TopicId("orders", "id")
ENGINE = DataFusion()
KINDS = {"int": pa.int64(), "str": pa.string(), "datetime": pa.timestamp("us", "UTC")}
LEDGER = pa.schema([(each.name, KINDS[str(each.type).split(" ")[0]]) for each in fields(LedgerRow)])


class Lake:
    """Target, quarantine and ledger of one topic. Every record's event id is its offset. Epoch 1 is open from the start."""

    def __init__(self, folder: Path) -> None:
        self.places = Places(str(folder / "lake"), str(folder / "checkpoints"), "shop", "orders")
        self.ledger: list[LedgerRow] = []
        self.topic, self.epoch, self.number, self.sought = TOPIC, 1, FIRST_BATCH, False
        self.rows(())
        self.records(())

    @property
    def target(self) -> DeltaTable:
        return DeltaTable(self.places.target)

    @property
    def quarantine(self) -> DeltaTable:
        return DeltaTable(self.places.quarantine)

    @property
    def here(self) -> BatchId:
        """The id of the next batch."""
        return BatchId(self.epoch, self.number)

    def start(self) -> None:
        """Start the next epoch at the table's end offsets."""
        self.epoch, self.number, self.sought = self.epoch + 1, FIRST_BATCH, False

    def seek(self, start: int, gaps: Sequence[tuple[int, int]] = ()) -> None:
        """Start the next epoch at another offset. The ledger counts the existing rows of the batches that it re-reads from their start."""
        self.start()
        self.sought = True
        accepted = tuple(OffsetRange(0, *gap) for gap in gaps)
        batch_commit = replace(self.batch_commit("seek", SEEK), ranges=(OffsetRange(0, start, start),), gaps=accepted, why="seek")
        existing = found(ENGINE, self.places, None, None)
        again = min([start, *(gap for gap, _ in gaps)])
        for at, row in enumerate(self.ledger):
            if row.kind == "batch" and row.topic_id == self.topic.id and row.start_offset >= again:
                self.ledger[at] = replace(row, stood=sum(existing.get((row.epoch, row.batch, row.partition), (0, 0))))
        self.rows((), batch_commit=batch_commit)
        self._project(batch_commit)

    def batch(
        self,
        start: int,
        end: int,
        rows: Sequence[int],
        poison: Sequence[int] = (),
        *,
        duplicates: int = 0,
        gap: int = 0,
        partition: int = 0,
    ) -> None:
        """The next batch reads [start, end) and commits `rows` to the target and `poison` to the quarantine."""
        self.put(self.cut_off(start, end, poison, duplicates=duplicates, gap=gap, partition=partition), rows)

    def cut_off(
        self, start: int, end: int, poison: Sequence[int] = (), *, duplicates: int = 0, gap: int = 0, partition: int = 0
    ) -> BatchCommit:
        """The next batch commits its quarantined records, and is cut off before its commit to the target."""
        counts = Counts(end - start - gap, len(poison), duplicates)
        ranges = (OffsetRange(partition, start, end),)
        batch_commit = replace(self.batch_commit("batch", self.number), ranges=ranges, counts=((partition, counts),))
        if poison:
            self.records(poison, batch_commit=batch_commit, partition=partition)
        return batch_commit

    def put(self, batch_commit: BatchCommit, rows: Sequence[int]) -> None:
        """The target's commit of a batch."""
        self.rows(rows, batch_commit=batch_commit, partition=batch_commit.ranges[0].partition)
        self._project(batch_commit)
        self.number += 1

    def rows(
        self, offsets: Sequence[int], *, batch_commit: BatchCommit | None = None, of: BatchId | None = None, partition: int = 0
    ) -> None:
        """Add rows of a batch. Without a BatchCommit, another user adds them by hand."""
        id = of or (batch_commit.id if batch_commit else BatchId(1, FIRST_BATCH))
        columns = {"id": pa.array(offsets, pa.int64()), "_partition": pa.array([partition] * len(offsets), pa.int32())}
        columns |= {"_offset": columns["id"], "_epoch": pa.array([id.epoch] * len(offsets), pa.int32())}
        self._write("target", {**columns, "_batch": pa.array([id.number] * len(offsets), pa.int64())}, batch_commit)

    def records(
        self, offsets: Sequence[int], *, batch_commit: BatchCommit | None = None, of: BatchId | None = None, partition: int = 0
    ) -> None:
        """Add records of a batch to the quarantine."""
        id = of or (batch_commit.id if batch_commit else BatchId(1, FIRST_BATCH))
        columns = {"topic_id": pa.array([self.topic.id] * len(offsets), pa.string())}
        columns |= {"partition": pa.array([partition] * len(offsets), pa.int32()), "offset": pa.array(offsets, pa.int64())}
        columns |= {"state": pa.array(["open"] * len(offsets), pa.string()), "epoch": pa.array([id.epoch] * len(offsets), pa.int32())}
        self._write("quarantine", {**columns, "batch": pa.array([id.number] * len(offsets), pa.int64())}, batch_commit)

    def take(self, *offsets: int) -> None:
        """Remove rows with a partial overwrite, which is not a DELETE."""
        rows = self.target.to_pyarrow_table()
        kept = rows.filter(pc.invert(pc.is_in(rows["_offset"], pa.array(offsets, pa.int64()))))
        write_deltalake(self.places.target, kept, mode="overwrite", predicate="_offset >= 0")

    def vacuum(self, table: str = "target") -> None:
        """VACUUM without retention."""
        DeltaTable(f"{self.places.root}/{table}").vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def proof(self) -> dict[str, Any]:
        """What a proof of the newest versions says."""
        seen = self.verified()
        return content(CONTRACT, self.places, seen, quality_proof(ENGINE, CONTRACT, self.places, seen.tables["target"].version))

    def verified(self) -> Verified:
        """The result of verify, after writing the ledger. Its sums must add up, and without findings nothing may be missing."""
        self._keep_ledger()
        result = verify(ENGINE, CONTRACT, self.places)
        for rows in (result.target, result.quarantine):
            less, more = rows.removed + rows.retired + rows.replaced + rows.missing, rows.surplus + rows.uncommitted
            assert rows.found == rows.put - less + more and min(asdict(rows).values()) >= 0, rows
            assert result.findings or rows.missing == rows.surplus == 0, rows
        return result

    def findings(self) -> tuple[Finding, ...]:
        return self.verified().findings

    def codes(self) -> list[str]:
        return [each.code for each in self.findings()]

    def coverage(self) -> Coverage:
        self._keep_ledger()
        return coverage(ENGINE, self.places, self.topic.id)

    def _keep_ledger(self) -> None:
        rows = pa.Table.from_pylist([asdict(each) for each in self.ledger], LEDGER)
        write_deltalake(self.places.ledger, rows, mode="overwrite")

    def batch_commit(self, kind: Kind, number: int) -> BatchCommit:
        """The BatchCommit of a statement of this epoch."""
        target, quarantine = (Snapshot("id", table.version(), "") for table in (self.target, self.quarantine))
        id = BatchId(self.epoch, number)
        return BatchCommit(kind, "shop", "orders", id, "writer", Snapshots(target, quarantine), "hash", self.topic)

    def _project(self, batch_commit: BatchCommit) -> None:
        log = DeltaLog(LocalFiles(), self.places.target)
        commit = log.commit(log.newest())
        if batch_commit.id.number == FIRST_BATCH and not self.sought:
            self.ledger += epoch_begin(commit, batch_commit)
        self.ledger += count_rows(None, self.places, commit, batch_commit)

    def _write(self, table: str, columns: dict[str, pa.Array], batch_commit: BatchCommit | None) -> None:
        properties = None
        if batch_commit is not None:
            transaction = Transaction(batch_commit.app_id, batch_commit.id.txn_version)
            properties = CommitProperties(custom_metadata={"userMetadata": batch_commit.to_json()}, app_transactions=[transaction])
        write_deltalake(f"{self.places.root}/{table}", pa.table(columns), mode="append", commit_properties=properties)
