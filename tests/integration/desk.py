"""A desk passes batches to process() directly, without Kafka or a stream. It writes the checkpoint as Spark does."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from ingest.batch.batch import BatchReport, Table, process
from ingest.batch.direct import process_direct
from ingest.contract.definition import Contract
from ingest.delta.batch_commit import Batch, BatchCommit, Snapshot, Snapshots
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.posting import Key, Posting
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.books import read_books
from ingest.recovery.epoch import open_epoch
from ingest.recovery.seek_offsets import Seeking
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from ingest.verify.verdict import Verified, verify
from tests.integration.lane import figures
from tests.integration.records import KAFKA_TIME, SCHEMA

TOPIC_ID = "topic-id"
# An end offset that no test reaches.
FAR = 1_000_000


class Desk:
    """The new, empty tables of one contract, and the batches that are written to them."""

    def __init__(self, session: SparkSession, contract: Contract, folder: Path, partitions: int = 1, *, direct: bool = False) -> None:
        self.session = session
        self.direct = DirectWriter(contract) if direct else None
        self.contract = contract
        self.topic = contract.source.topic
        self.places = Places(str(folder / "lake"), str(folder / "checkpoints"), contract.pipeline, contract.table)
        self.ends = dict.fromkeys(range(partitions), 0)
        self.far, self.topic_id = FAR, TOPIC_ID
        self.table = self.open()

    def open(self, seeking: Seeking | None = None) -> Table:
        """Open a new epoch, as the start of a run or a seek does. Spark numbers its batches from 0."""
        broker = TopicState(TopicId(self.topic, self.topic_id), dict.fromkeys(self.ends, (0, self.far)))
        if self.direct is not None:
            self.direct = DirectWriter(self.contract)  # as a new process has
        session = None if self.direct is not None else self.session
        epoch = open_epoch(session, self.contract, self.places, lambda: (broker,), seeking, writer=self.direct)
        self.number = 0
        self.ends = {**self.ends, **{partition: start for (_, partition), start in epoch.starts.items()}}
        return Table(self.contract, self.places, epoch, LocalFiles())

    def rival(self) -> Desk:
        """Another writer of the same tables, which takes a later epoch. Like another driver, it has its own session."""
        other = copy.copy(self)
        other.session = self.session.newSession()
        other.direct = DirectWriter(self.contract) if self.direct is not None else None
        other.table = other.open()
        return other

    def frame(self, *values: bytes | str | None, partition: int = 0, key: bytes | None = None) -> DataFrame:
        """Records with the next offsets, all in `partition`."""
        return self.frame_of([(partition, value, key) for value in values])

    def frame_of(self, records: Sequence[tuple[int, bytes | str | None, bytes | None]]) -> DataFrame:
        """Records (partition, value, key) with the next offsets of their partitions."""
        rows = []
        for partition, value, key in records:
            raw = value.encode() if isinstance(value, str) else value
            rows.append((key, raw, self.topic, max(self.table.epoch.topics), partition, self.ends[partition], KAFKA_TIME, None))
            self.ends[partition] += 1
        return self.session.createDataFrame(rows, SCHEMA)

    def batch(self, *values: bytes | str | None, partition: int = 0) -> BatchReport:
        """Plan the next batch with these records and process it."""
        return self.process(self.frame(*values, partition=partition))

    def process(self, records: DataFrame, *, gap: int = 0) -> BatchReport:
        """Plan and process the next batch. In partition 0, its range is `gap` offsets longer than its records."""
        self.ends[0] += gap
        self.plan(self.number, self.ends)
        self.number += 1
        if self.direct is not None:
            return process_direct(records, self.number - 1, self.table, self.direct)
        return process(records, self.number - 1, self.table)

    def plan(self, number: int, ends: dict[int, int]) -> None:
        """Write the file offsets/`number` of the checkpoint, as Spark does."""
        by_partition = {str(p): end for p, end in ends.items()}
        lines = ["v1", json.dumps({"batchTimestampMs": 1_735_787_100_123, "conf": {}}), json.dumps({self.topic: by_partition})]
        path = Path(self.table.epoch.checkpoint) / f"offsets/{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines), encoding="utf-8")

    def batch_commit(self, number: int, start: int = 0, end: int = 1, *, epoch: int | None = None) -> BatchCommit:
        """The BatchCommit of a batch of Spark's writer of partition 0, by this desk's writer, or by another writer in `epoch`."""
        writer = self.table.epoch.writer
        if epoch is not None:
            writer = replace(writer, epoch=epoch, id="another")
        states = [DeltaLog(LocalFiles(), path).state() for path in (self.places.target, self.places.quarantine)]
        snapshots = Snapshots(*(Snapshot("", 0, "") if state is None else state.snapshot for state in states))
        opened = Posting(Key(writer.epoch, number, 0, 0), "batch", OffsetRange(0, start, end), end - start, target=None, present=None)
        return writer.batch_commit(Batch(), number, snapshots, (opened,))

    def log(self, table: str = "target") -> DeltaLog:
        return DeltaLog(LocalFiles(), f"{self.places.root}/{table}")

    def target(self) -> DataFrame:
        return self.session.read.format("delta").load(self.places.target)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of the target's rows, ordered by position."""
        names = [f"`{name}`" for name in columns]
        return [tuple(row) for row in self.target().orderBy("_partition", "_offset").select(*names).collect()]

    def quarantine(self) -> list[Row]:
        return self.session.read.format("delta").load(self.places.quarantine).orderBy("partition", "offset").collect()

    def accounts(self) -> list[tuple[int, ...]]:
        """As `Lane.accounts`, after the ledger got what it lacked."""
        self.table.epoch.ledger.append()
        return figures(read_books(DataFusion(), self.places).batches)

    def balanced(self) -> Verified:
        """The result of `ingest verify`, which must have found nothing."""
        found = verify(DataFusion(), self.contract, self.places)
        assert not found.findings, "\n".join(map(str, found.findings))
        return found

    def forget_tables(self) -> None:
        """As `Lane.forget_tables`."""
        jvm: Any = self.session._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
