"""A lake that deltalake wrote, for `ingest verify` without Spark: batches, rebases, and what somebody does to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from ingest.contract import Contract
from ingest.delta_sql import DataFusion
from ingest.files import LocalFiles
from ingest.places import Places
from ingest.prove.balance import Finding
from ingest.prove.verify import verify
from ingest.stream.binding import Binding, FormerEpoch, Rebase
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_row import LedgerRow, count_rows, project_rebase
from ingest.stream.mark import Counts, Mark, Statement
from ingest.stream.offsets import BatchId, OffsetRange
from tests.unit.test_balance import row

CONTRACT = Contract.model_validate(
    {
        "pipeline": "shop",
        "table": "orders",
        "source": {"topic": "orders", "format": "json"},
        "columns": [{"name": "id", "type": "BIGINT", "nullable": False}],
        "event_id": ["id"],
    }
)
AT = row(0, 0, 1).committed_at
FIRST = BatchId("q1", 0)
SECOND = BatchId("q2", 1)


class Lake:
    """Target, quarantine and ledger; every offset holds a record whose id is its offset."""

    def __init__(self, folder: Path) -> None:
        self.places = Places(str(folder / "lake"), str(folder / "checkpoints"), "shop", "orders")
        self.ledger: list[LedgerRow] = []
        for write in (self.rows, self.records):
            write((), None)

    def batch(
        self, id: BatchId, epoch: int, start: int, end: int, rows: Sequence[int], poison: Sequence[int], losers: int = 0, gap: int = 0
    ) -> None:
        """A batch of [start, end) that adds these; what stands there already it counts as replayed."""
        read = end - start - gap
        counts = ((0, Counts(read, len(poison), losers, read - len(rows) - len(poison) - losers)),)
        mark = Mark("shop", "orders", id, epoch, "hash", "orders", "id", (OffsetRange(0, start, end),), counts)
        self.records(poison, mark)
        self.rows(rows, mark)
        log = DeltaLog(LocalFiles(), self.places.target)
        self.ledger += count_rows(None, self.places, log.commit(log.newest()), mark)

    def rebase(self, former: Sequence[tuple[str, int, int]], query: str, start: int) -> None:
        """A rebase to `start`; `former` are the query ids before it, the last batch of each and where that ended."""
        epochs = tuple(FormerEpoch(each, n, last, "orders", "id", ((0, end),) if end else ()) for n, (each, last, end) in enumerate(former))
        rebase = Rebase(epochs, ((0, start),), (), DeltaTable(self.places.target).version())
        binding = Binding("orders", "id", "", len(former), tuple(each for each, _, _ in former), rebase)
        self.ledger += project_rebase(binding, query, self.places, "hash", AT + timedelta(days=len(former)), {})

    def rows(self, offsets: Sequence[int], mark: Mark | None) -> None:
        columns = {"id": pa.array(offsets, pa.int64()), "_topic_id": pa.array(["id"] * len(offsets), pa.string())}
        self._write("target", {**columns, "_partition": pa.array([0] * len(offsets), pa.int32()), "_offset": columns["id"]}, mark)

    def records(self, offsets: Sequence[int], mark: Mark | None) -> None:
        batches = [-1 if mark is None else mark.id.number] * len(offsets)
        columns = {"topic_id": pa.array(["id"] * len(offsets), pa.string()), "partition": pa.array([0] * len(offsets), pa.int32())}
        columns |= {"offset": pa.array(offsets, pa.int64()), "state": pa.array(["open"] * len(offsets), pa.string())}
        columns |= {"query_id": pa.array([mark.id.query_id if mark else ""] * len(offsets), pa.string())}
        self._write("quarantine", {**columns, "batch_id": pa.array(batches, pa.int64())}, mark)

    def _write(self, table: Statement, columns: dict[str, pa.Array], mark: Mark | None) -> None:
        properties = None
        if mark is not None:
            pair = Transaction(mark.app_id(table), mark.id.number)
            properties = CommitProperties(custom_metadata={"userMetadata": mark.to_json()}, app_transactions=[pair])
        write_deltalake(f"{self.places.root}/{table}", pa.table(columns), mode="append", commit_properties=properties)

    def codes(self) -> list[str]:
        """What verify finds, with all that the ledger was told."""
        return [found.code for found in self.findings()]

    def findings(self) -> tuple[Finding, ...]:
        write_deltalake(self.places.ledger, pa.Table.from_pylist([asdict(each) for each in self.ledger]), mode="overwrite")
        return verify(DataFusion(), CONTRACT, self.places).findings

    def take(self, offset: int) -> None:
        """A row goes with an overwrite of a part, which is no DELETE."""
        rows = DeltaTable(self.places.target).to_pyarrow_table()
        kept = rows.filter(pa.compute.not_equal(rows["_offset"], offset))
        write_deltalake(self.places.target, kept, mode="overwrite", predicate="_offset >= 0")

    def vacuum(self) -> None:
        """Of the target, at once."""
        DeltaTable(self.places.target).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
