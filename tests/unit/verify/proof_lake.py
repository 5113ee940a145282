"""A lake that deltalake writes, for `ingest verify` without Spark: epochs, seeks and batches, and changes by other users.

The ledger is the product's own: `keep` completes it as a run does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import types as T

from ingest.contract.definition import Contract
from ingest.delta.batch_commit import FENCED, FIRST_BATCH, SEEK, Batch, BatchCommit, BatchId, Case, Create, Seek, Snapshot, Snapshots, Swap
from ingest.delta.contract_change import EVENT_ID_PROPERTY
from ingest.delta.creation import create_operation, creation
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.posting import NOTHING, Key, Posting, Sums, by_key
from ingest.delta.put import put
from ingest.delta.row_sums import sums_of
from ingest.delta.stored_rows import QUARANTINE, TARGET
from ingest.delta.table_definitions import TableDefinition, definitions
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.ledger.books import Books, read_books
from ingest.ledger.projection import append
from ingest.quality.quality_proof import quality_proof
from ingest.repair.retention import POSITIONS, remove
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
# Anybody may add rows to these without saying whose they are.
_KINDS = {"id": T.LongType(), "_offset": T.LongType(), "_source": T.ShortType(), "_partition": T.IntegerType(), "_epoch": T.IntegerType()}
TARGET_FIELDS = tuple(T.StructField(name, kind) for name, kind in {**_KINDS, "_batch": T.LongType()}.items())
QUARANTINE_FIELDS = (
    *(T.StructField(name, T.StringType()) for name in ("topic_id", "state")),
    *(T.StructField(each.name.removeprefix("_"), each.dataType) for each in TARGET_FIELDS[1:]),
)


def sums(id: BatchId, partition: int, offsets: Sequence[int], ids: Sequence[int] | None = None, source: int = 0) -> Sums:
    """The sums of the rows, or else without `ids` the quarantined records, that one batch has put there."""
    key = Key(id.epoch, id.number, source, partition)
    of_key = [np.full(len(offsets), value) for value in (id.epoch, id.number, source, partition)]
    columns = [pa.array(each, pa.int64()) for each in (*of_key, [*offsets], *([] if ids is None else [[*ids]]))]
    found = by_key(sums_of([pa.RecordBatch.from_arrays(columns, [str(number) for number in range(len(columns))])]))
    return found.get(key, NOTHING)


class Lake:
    """Target, quarantine and ledger. Every record's event id is its offset and `shift`. Epoch 1 is open from the start.

    All is about `topic`; another one that is put there gets the next number.
    """

    def __init__(self, folder: Path) -> None:
        self.places = Places(str(folder / "lake"), str(folder / "checkpoints"), "shop", "orders")
        self.sources, self.source = [TOPIC], 0
        self.epoch, self.number, self.shift = 1, FIRST_BATCH, 0
        self.create()
        self._create(TableDefinition(self.places.quarantine, QUARANTINE_FIELDS))

    def create(self) -> None:
        """Create the target."""
        self._create(TableDefinition(self.places.target, TARGET_FIELDS, {EVENT_ID_PROPERTY: '["id"]'}))

    @property
    def topic(self) -> TopicId:
        return self.sources[self.source]

    @topic.setter
    def topic(self, topic: TopicId) -> None:
        if topic not in self.sources:
            self.sources.append(topic)
        self.source = self.sources.index(topic)

    @property
    def target(self) -> DeltaTable:
        return DeltaTable(self.places.target)

    @property
    def quarantine(self) -> DeltaTable:
        return DeltaTable(self.places.quarantine)

    @property
    def ledger(self) -> DeltaTable:
        return DeltaTable(self.places.ledger)

    @property
    def here(self) -> BatchId:
        """The id of the next batch."""
        return BatchId(self.epoch, self.number)

    def log(self, table: str = "target") -> DeltaLog:
        """A new log reader, without cached versions."""
        return DeltaLog(LocalFiles(), f"{self.places.root}/{table}")

    def snapshots(self, table: str = "target") -> Snapshot:
        """The table's current snapshot."""
        state = self.log(table).state()
        assert state is not None
        return state.snapshot

    def clean(self, table: str, version: int) -> None:
        """Clean up the log before `version`, as Delta does; a log checkpoint covers it."""
        DeltaTable(f"{self.places.root}/{table}").create_checkpoint()
        for each in range(version):
            (Path(self.places.root) / table / "_delta_log" / f"{each:020}.json").unlink(missing_ok=True)

    def start(self) -> None:
        """Start the next epoch at the table's end offsets."""
        self.epoch, self.number = self.epoch + 1, FIRST_BATCH

    def seek(self, start: int, gaps: Sequence[tuple[int, int]] = (), case: Case | None = None) -> None:
        """Start the next epoch at another offset, and write off what is missing."""
        self.start()
        key = Key(self.epoch, SEEK, self.source, 0)
        postings = [Posting(key, "seek", self._range(0, start, start)), *(Posting(key, "gap", self._range(0, *gap)) for gap in gaps)]
        postings += self.coverage().written_off
        self.rows((), batch_commit=self.batch_commit(case or Seek("a test"), SEEK, *postings))

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
        opened: bool = False,
    ) -> None:
        """The next batch reads [start, end) and commits `rows` to the target and `poison` to the quarantine.

        `opened`: the commit does not say how many rows it inserted.
        """
        posting = self.cut_off(start, end, poison, duplicates=duplicates, gap=gap, partition=partition)
        if not opened:
            posting = self.closed(posting, rows)
        self.put(posting, rows)

    def cut_off(
        self, start: int, end: int, poison: Sequence[int] = (), *, duplicates: int = 0, gap: int = 0, partition: int = 0
    ) -> Posting:
        """The next batch commits its quarantined records, and is cut off before its commit to the target. Returns its open posting."""
        if poison:
            self.records(poison, batch_commit=self.batch_commit(Batch(), self.number), partition=partition)
        key, read = Key(self.epoch, self.number, self.source, partition), end - start - gap
        quarantine = sums(self.here, partition, poison, source=self.source)
        return Posting(key, "batch", self._range(partition, start, end), read, None, quarantine, None, duplicates)

    def closed(self, posting: Posting, rows: Sequence[int]) -> Posting:
        """The posting of a batch that inserts these rows. All other records are there already."""
        present = posting.read - posting.quarantine.rows - posting.duplicate - len(rows)
        target = sums(self.here, posting.key.partition, rows, [each + self.shift for each in rows], self.source)
        return replace(posting, target=target, present=present)

    def put(self, posting: Posting, rows: Sequence[int]) -> None:
        """The target's commit of a batch."""
        self.rows(rows, batch_commit=self.batch_commit(Batch(), self.number, posting), partition=posting.key.partition)
        self.number += 1

    def swap(self, start: int, end: int, carried: Sequence[int] = ()) -> None:
        """Replace all rows by those of a rebuild, whose two epochs have read [start, end) without a fault, and which carried rows over."""
        self.start()
        first = self.epoch
        self.start()
        rows, middle = range(start, end), (start + end) // 2
        parts: list[tuple[BatchId, Sequence[int]]] = [(BatchId(first, FIRST_BATCH), rows[: middle - start])]
        parts += [(BatchId(first, FIRST_BATCH + 1), rows[middle - start :]), *([(BatchId(first, SEEK), carried)] if carried else [])]
        found = [sums(id, 0, part, [each + self.shift for each in part], self.source) for id, part in parts]
        key, of_rebuild = Key(self.epoch, SEEK, self.source, 0), Key(first, 0, self.source, 0)
        postings = (
            Posting(key, "start", self._range(0, end, end)),
            Posting(of_rebuild, "rebuild", self._range(0, start, end), end - start, found[0] + found[1]),
            *(Posting(of_rebuild, "replay", None, len(carried), each) for each in found[2:]),
        )
        about = self.batch_commit(Swap(first, "a test"), SEEK, *postings)
        columns = [self._rows(part, id, 0) for id, part in parts]
        self._write("target", {name: pa.concat_arrays([each[name] for each in columns]) for name in columns[0]}, about, "overwrite")

    def erase(self, *offsets: int, of: BatchId | None = None) -> None:
        """Remove rows as an erasure does."""
        of = of or BatchId(1, FIRST_BATCH)
        found = [{"e": of.epoch, "b": of.number, "s": self.source, "p": 0, "o": each} for each in offsets]
        remove(DirectWriter(), self.places, pa.Table.from_pylist(found, POSITIONS), self.places.target, TARGET, "erasure")

    def retire(self, *offsets: int, of: BatchId | None = None) -> None:
        """Remove records from the quarantine as its retention does."""
        of = of or BatchId(1, FIRST_BATCH)
        found = [{"e": of.epoch, "b": of.number, "s": self.source, "p": 0, "o": each} for each in offsets]
        remove(DirectWriter(), self.places, pa.Table.from_pylist(found, POSITIONS), self.places.quarantine, QUARANTINE, "retention")

    def rows(
        self, offsets: Sequence[int], *, batch_commit: BatchCommit | None = None, of: BatchId | None = None, partition: int = 0
    ) -> None:
        """Add rows of a batch. Without a BatchCommit, another user adds them by hand."""
        id = of or (batch_commit.id if batch_commit else BatchId(1, FIRST_BATCH))
        self._write("target", self._rows(offsets, id, partition), batch_commit)

    def _rows(self, offsets: Sequence[int], id: BatchId, partition: int) -> dict[str, pa.Array]:
        columns = {"id": pa.array([each + self.shift for each in offsets], pa.int64()), "_offset": pa.array(offsets, pa.int64())}
        columns |= {"_source": pa.array([self.source] * len(offsets), pa.int16())}
        columns |= {"_partition": pa.array([partition] * len(offsets), pa.int32())}
        columns |= {"_epoch": pa.array([id.epoch] * len(offsets), pa.int32()), "_batch": pa.array([id.number] * len(offsets), pa.int64())}
        return columns

    def records(
        self, offsets: Sequence[int], *, batch_commit: BatchCommit | None = None, of: BatchId | None = None, partition: int = 0
    ) -> None:
        """Add records of a batch to the quarantine."""
        id = of or (batch_commit.id if batch_commit else BatchId(1, FIRST_BATCH))
        columns = {"topic_id": pa.array([self.topic.id] * len(offsets), pa.string())}
        columns |= {"source": pa.array([self.source] * len(offsets), pa.int16())}
        columns |= {"partition": pa.array([partition] * len(offsets), pa.int32()), "offset": pa.array(offsets, pa.int64())}
        columns |= {"state": pa.array(["open"] * len(offsets), pa.string()), "epoch": pa.array([id.epoch] * len(offsets), pa.int32())}
        self._write("quarantine", {**columns, "batch": pa.array([id.number] * len(offsets), pa.int64())}, batch_commit)

    def take(self, *offsets: int) -> None:
        """Remove rows with a partial overwrite, which is not a DELETE."""
        self._take("target", "_offset", offsets)

    def take_records(self, *offsets: int) -> None:
        """Remove records from the quarantine with a partial overwrite, which is not a DELETE."""
        self._take("quarantine", "offset", offsets)

    def _take(self, table: str, column: str, offsets: Sequence[int]) -> None:
        path = f"{self.places.root}/{table}"
        rows = DeltaTable(path).to_pyarrow_table()
        kept = rows.filter(pc.invert(pc.is_in(rows[column], pa.array(offsets, pa.int64()))))
        write_deltalake(path, kept, mode="overwrite", predicate=f"{column} >= 0")

    def vacuum(self, table: str = "target") -> None:
        """VACUUM without retention."""
        DeltaTable(f"{self.places.root}/{table}").vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def proof(self) -> dict[str, Any]:
        """What a proof of the newest versions says."""
        seen = self.verified()
        return content(CONTRACT, self.places, seen, quality_proof(ENGINE, CONTRACT, self.places, seen.tables["target"].version))

    def verified(self, *, keep: bool = True) -> Verified:
        """The result of verify, after completing the ledger. Its sums must add up, and without findings nothing may be missing."""
        if keep:
            self.keep()
        result = verify(ENGINE, CONTRACT, self.places)
        for rows in (result.target, result.quarantine):
            assert rows.found == rows.put - sum(rows.less.values()) + sum(rows.more.values()) and min(asdict(rows).values()) >= 0, rows
            assert result.findings or rows.missing == rows.surplus == 0, rows
        return result

    def findings(self, *, keep: bool = True) -> tuple[Finding, ...]:
        return self.verified(keep=keep).findings

    def codes(self, *, keep: bool = True) -> list[str]:
        return [each.code for each in self.findings(keep=keep)]

    def books(self) -> Books:
        """The books, from the ledger as it is and the logs."""
        return read_books(ENGINE, self.places)

    def coverage(self) -> Coverage:
        return coverage(ENGINE, self.places, {self.source})

    def keep(self) -> None:
        """Complete the ledger, as a run does."""
        if not self.log("ledger").exists():
            self._create(definitions(CONTRACT, self.places)[2])
        append(DirectWriter(), self.places, Logs.of(self.places))

    def batch_commit(self, case: Case, number: int, *postings: Posting) -> BatchCommit:
        """The BatchCommit of a statement of this epoch."""
        snapshots = Snapshots(self.snapshots(), self.snapshots("quarantine"))
        return BatchCommit(case, "shop", "orders", BatchId(self.epoch, number), "writer", snapshots, "hash", tuple(self.sources), postings)

    def _range(self, partition: int, start: int, end: int) -> OffsetRange:
        return OffsetRange(partition, start, end, source=self.source)

    def _create(self, table: TableDefinition) -> None:
        Path(table.path, "_delta_log").mkdir(parents=True)
        about = BatchCommit(Create(), "shop", "orders")
        put(LocalFiles(), LiveTable(LocalFiles(), table.path), about, create_operation(table), creation(table))

    def _write(
        self, table: str, columns: dict[str, pa.Array], about: BatchCommit | None, mode: Literal["append", "overwrite"] = "append"
    ) -> None:
        properties = None
        if about is not None:
            transactions = [Transaction(about.app_id, about.id.txn_version)] if isinstance(about.case, FENCED) else None
            properties = CommitProperties(custom_metadata={"userMetadata": about.to_json()}, app_transactions=transactions)
        write_deltalake(f"{self.places.root}/{table}", pa.table(columns), mode=mode, commit_properties=properties)
