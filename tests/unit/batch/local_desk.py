"""A desk passes batches to `process_direct` in one process, without Spark and Kafka: the tables and epochs are real."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ingest.batch import direct, outputs, refused, staging
from ingest.batch.batch import BatchReport, Table
from ingest.batch.dedup import POSITION, TIME
from ingest.batch.direct import _Batch, process_direct
from ingest.batch.staged import Staged
from ingest.contract.definition import Contract
from ingest.decode.row_hash import row_hashes
from ingest.delta.delta_log import Logs
from ingest.delta.delta_sql import DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.id_index import IdIndex
from ingest.kafka.offsets import Partition
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.books import read_books
from ingest.recovery.epoch import open_epoch
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from ingest.verify.balance import Finding, check
from ingest.verify.count import account

# The partitions of two topics, in the order of positions: tests call them 0, 1 and 2.
PLACES: tuple[Partition, ...] = ((0, 0), (0, 1), (1, 0))
PARTITIONS = len(PLACES)
SECOND = "second"
KAFKA_TIME = datetime(2026, 1, 1, 0, 0, 0, 1, UTC)
PLANNED_MS = 1_767_225_600_123
RECORD = pa.schema(
    [
        *(("__key", pa.binary()), ("__value", pa.binary()), ("__headers", pa.string())),
        *(("_source", pa.int16()), ("_partition", pa.int32()), ("_offset", pa.int64()), ("_kafka_timestamp", pa.timestamp("us", "UTC"))),
    ]
)


@dataclass(frozen=True)
class Record:
    """A record of the topic, as Spark's Kafka source delivers it; `headers` as JSON."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: str | None = None


Tasks = Sequence[Sequence[Record]]
"""The records of each task of Spark's."""


def record_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """What a worker gets of these records."""
    rows = [(each.key, each.value, each.headers, *PLACES[each.partition], each.offset, KAFKA_TIME) for each in records]
    columns = zip(*rows, strict=True) if rows else [[]] * len(RECORD)
    return pa.RecordBatch.from_arrays([pa.array(values, kind) for values, kind in zip(columns, RECORD.types, strict=True)], schema=RECORD)


@dataclass
class Frame:
    """Stands for the DataFrame of a batch: `mapInArrow` runs the work of each task here. With `attempts`, only the last of each counts."""

    tasks: Sequence[Sequence[pa.RecordBatch]]
    attempts: int = 1

    def mapInArrow(self, work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> Frame:  # noqa: N802, as Spark's
        for _attempt in range(self.attempts - 1):
            for task in self.tasks:
                list(work(iter(task)))
        return Frame([list(work(iter(task))) for task in self.tasks])

    def toArrow(self) -> pa.Table:  # noqa: N802
        batches = [batch for task in self.tasks for batch in task]
        return pa.Table.from_batches(batches) if batches else pa.table({"table": []})


@dataclass(frozen=True)
class Sizes:
    """Limits of a task, so that small batches take every way. `batch_rows` are the records of a batch that a worker gets at once.

    `hashes` is how many different hashes event ids have: a few, and different ids have the same one.
    """

    roll_bytes: int = outputs.ROLL_BYTES
    small_rows: int = outputs.SMALL_ROWS
    small_bytes: int = outputs.SMALL_BYTES
    copies_bytes: int = outputs.SMALL_BYTES
    batch_rows: int = 1_000
    hashes: int = 2**64 - 1
    attempts: int = 1


MEMORY, FILES = Sizes(), Sizes(small_rows=0)
ROLLED = Sizes(roll_bytes=0, batch_rows=2)
TOO_MANY_COPIES, MIXED = Sizes(small_rows=0, copies_bytes=0), Sizes(small_rows=3, batch_rows=1)
SIZES = (MEMORY, FILES, ROLLED, TOO_MANY_COPIES, MIXED, Sizes(small_rows=0, hashes=3), Sizes(small_rows=2, hashes=2, attempts=2))


class LocalDesk:
    """The new, empty tables of one contract, and the batches that are written to them."""

    def __init__(self, contract: Contract, folder: Path) -> None:
        self.contract = contract
        self.places = Places(str(folder / "lake"), str(folder / "checkpoints"), contract.pipeline, contract.table)
        self.open()

    def open(self, *, again: bool = False) -> None:
        """Open a new epoch, as a new process does; `again` as a seek to the earliest offset."""
        self.writer = DirectWriter(self.contract, ids=IdIndex.of(self.places))
        broker = tuple(
            TopicState(TopicId(name, f"{name}-id"), {p: (0, 1_000_000) for of, p in PLACES if of == number})
            for number, name in enumerate((self.contract.source.topic, SECOND))
        )
        seeking = Seeking(Aim("earliest"), accept_gap=False, reason="--to earliest") if again else None
        epoch = open_epoch(None, self.contract, self.places, lambda: broker, seeking, writer=self.writer)
        self.table, self._number = Table(self.contract, self.places, epoch, LocalFiles()), 0

    @property
    def starts(self) -> Mapping[int, int]:
        """Where the next batch starts, by partition."""
        return {p: self.table.starts.get(of, 0) for p, of in enumerate(PLACES)}

    def process(self, tasks: Tasks, sizes: Sizes = MEMORY) -> BatchReport:
        """Plan and process the next batch."""
        self._plan(tasks)
        self._number += 1
        with staged_by(sizes):
            return process_direct(frame(tasks, sizes), self._number - 1, self.table, self.writer)  # type: ignore[arg-type]

    def staged(self, tasks: Tasks, sizes: Sizes = MEMORY) -> Staged:
        """The staged records of the next batch, which is not committed."""
        return self.batch(tasks, sizes)[1]

    def batch(self, tasks: Tasks, sizes: Sizes = MEMORY) -> tuple[_Batch, Staged]:
        """The next batch, staged and not committed."""
        self._plan(tasks)
        with staged_by(sizes):
            plan = self.table.planned(self._number)
            batch = _Batch(frame(tasks, sizes), self.table, self._number + 2, plan, self.writer)  # type: ignore[arg-type]
            return batch, batch.stage()

    def _plan(self, tasks: Tasks) -> None:
        """Write the offsets of the batch into the checkpoint, as Spark does."""
        ends = dict(self.starts)
        for each in (record for task in tasks for record in task):
            ends[each.partition] = max(ends[each.partition], each.offset + 1)
        offsets: dict[str, dict[str, int]] = {self.contract.source.topic: {}, SECOND: {}}
        for number, (source, partition) in enumerate(PLACES):
            offsets[(*offsets,)[source]][str(partition)] = ends[number]
        path = Path(self.table.epoch.checkpoint) / f"offsets/{self._number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["v1", json.dumps({"batchTimestampMs": PLANNED_MS}), json.dumps(offsets)]), encoding="utf-8")

    def rows(self) -> list[dict[str, Any]]:
        """The target's rows by position, as deltalake reads them."""
        found: list[dict[str, Any]] = DeltaTable(self.places.target).to_pyarrow_table().to_pylist()
        found = [{**row, "_partition": _number_of(row["_source"], row["_partition"])} for row in found]
        return sorted(found, key=lambda row: (row["_partition"], row["_offset"]))

    def quarantine(self) -> list[dict[str, Any]]:
        """The quarantine's records by position."""
        found: list[dict[str, Any]] = DeltaTable(self.places.quarantine).to_pyarrow_table().to_pylist()
        topics = (self.contract.source.topic, SECOND)
        assert {(topics[row["source"]], f"{topics[row['source']]}-id") for row in found} == {
            (row["topic"], row["topic_id"]) for row in found
        }
        found = [{**row, "partition": _number_of(row["source"], row["partition"])} for row in found]
        return sorted(found, key=lambda row: (row["partition"], row["offset"]))

    def outcomes(self) -> dict[int, tuple[int, int, int, int, int]]:
        """Read, inserted, present, duplicate and quarantined records of the newest batch by partition, as its commit says."""
        log = Logs.of(self.places).target
        found = log.commit(log.newest()).batch_commit
        assert found is not None and found.opened == (), "the newest commit is a batch"
        rows = {PLACES.index(each.key.of): each for each in found.postings if each.why == "batch"}
        return {p: (each.read, each.inserted, each.present or 0, each.duplicate, each.quarantine.rows) for p, each in rows.items()}

    def findings(self) -> list[Finding]:
        """What verify finds in tables and books: in the sums of all rows, and in the books alone."""
        books = read_books(DataFusion(), self.places)
        return [*check(books), *account(DataFusion(), self.places, books).findings(DataFusion())]

    def unreferenced(self) -> set[str]:
        """Data files that no version of the tables names."""
        found = set()
        for path in (self.places.target, self.places.quarantine):
            named: set[str] = set()
            for commit in Path(path, "_delta_log").glob("*.json"):
                actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
                added = [unquote(action["add"]["path"]) for action in actions if "add" in action]
                assert not named.intersection(added), "a file is added once"
                named.update(added)
            there = {str(file.relative_to(path)) for file in Path(path).rglob("*.parquet") if "_delta_log" not in file.parts}
            assert named <= there, "a file that a commit names is there"
            found |= {f"{path}/{name}" for name in there - named}
        return found


def _number_of(*of: int) -> int:
    """What tests call a partition; rows of others keep theirs."""
    return PLACES.index((of[0], of[1])) if of in PLACES else of[1]


def frame(tasks: Tasks, sizes: Sizes) -> Frame:
    """The records of a batch."""
    step = sizes.batch_rows
    return Frame([[record_batch(task[at : at + step]) for at in range(0, len(task), step)] for task in tasks], sizes.attempts)


@contextmanager
def staged_by(sizes: Sizes) -> Iterator[None]:
    """Workers have these limits, and the second read of conflicting copies needs no Spark."""

    def read_again(batch: Any, wanted: pa.Table) -> Frame:
        found = {(*(row[name] for name in POSITION), row[TIME]): row for row in wanted.to_pylist()}
        time = round(KAFKA_TIME.timestamp() * 1_000_000)
        tasks = []
        for task in batch._records.tasks:
            rows = [(row, found.get((*(row[name] for name in POSITION), time))) for each in task for row in each.to_pylist()]
            columns = [{**row, **{name: same[name] for name in wanted.column_names[4:]}} for row, same in rows if same is not None]
            schema = pa.schema([*RECORD, *(wanted.schema.field(name) for name in wanted.column_names[4:])])
            tasks.append([pa.RecordBatch.from_pylist(columns, schema)])
        return Frame(tasks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "for_workers", lambda records: records)
        patch.setattr(_Batch, "_read_again", read_again)
        for module in (staging, refused):
            patch.setattr(module, "ROLL_BYTES", sizes.roll_bytes)
        patch.setattr(outputs, "SMALL_ROWS", sizes.small_rows)
        patch.setattr(outputs, "SMALL_BYTES", sizes.small_bytes)
        patch.setattr(staging, "SMALL_BYTES", sizes.copies_bytes)
        patch.setattr(staging, "row_hashes", lambda columns: row_hashes(columns) % sizes.hashes)
        yield
