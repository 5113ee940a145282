"""A desk: batches given to process() by hand, with a checkpoint written as Spark writes it; no Kafka, no stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from ingest.contract import Contract
from ingest.files import LocalFiles
from ingest.places import Places
from ingest.stream import commit
from ingest.stream.assessment import assess
from ingest.stream.batch import BatchReport, Table, process
from ingest.stream.ledger import Ledger
from ingest.stream.ledger_reader import summarise
from ingest.stream.mark import Counts, Mark
from ingest.stream.offsets import BatchId, CheckpointFiles, OffsetRange
from ingest.stream.topic import Topic
from tests.integration.records import KAFKA_TIME, SCHEMA

QUERY = "11111111-2222-3333-4444-555555555555"
TOPIC_ID = "topic-id"


class Desk:
    """The tables of one contract, made anew, and the batches that come in."""

    def __init__(self, session: SparkSession, contract: Contract, folder: Path, partitions: int = 1) -> None:
        self.session = session
        self.contract = contract
        self.topic = contract.source.topic
        self.places = Places(str(folder / "lake"), str(folder / "checkpoints"), contract.pipeline, contract.table)
        self.ends = dict.fromkeys(range(partitions), 0)
        self.number = 0
        self._write("metadata", json.dumps({"id": QUERY}))
        self._write("sources/0/0", "v1\n" + json.dumps({self.topic: {str(p): 0 for p in self.ends}}), before="\0")
        commit.create_tables(session, contract, self.places)
        self.table = self.open()

    def open(self) -> Table:
        """As the start of a run does: the ledger is completed from the target's log."""
        ledger = Ledger.of(self.places, LocalFiles())
        summary = summarise(self.session, self.places)
        known = assess(LocalFiles(), LocalFiles(), self.places, summary, None)
        ledger.complete(self.session, QUERY, known.table.last, summary)
        checkpoint = CheckpointFiles(LocalFiles(), self.places.checkpoint)
        return Table(self.contract, self.places, Topic(self.topic, TOPIC_ID, tuple(self.ends)), 0, checkpoint, ledger)

    def frame(self, *values: bytes | str | None, partition: int = 0, key: bytes | None = None) -> DataFrame:
        """Records behind those that came before; `partition` holds them all."""
        return self.frame_of([(partition, value, key) for value in values])

    def frame_of(self, records: Sequence[tuple[int, bytes | str | None, bytes | None]]) -> DataFrame:
        """Records (partition, value, key) behind those that came before."""
        rows = []
        for partition, value, key in records:
            raw = value.encode() if isinstance(value, str) else value
            rows.append((key, raw, self.topic, partition, self.ends[partition], KAFKA_TIME, None))
            self.ends[partition] += 1
        return self.session.createDataFrame(rows, SCHEMA)

    def batch(self, *values: bytes | str | None, partition: int = 0) -> BatchReport:
        """Plan the next batch with these records and process it."""
        return self.process(self.frame(*values, partition=partition))

    def process(self, records: DataFrame, *, gap: int = 0) -> BatchReport:
        """Plan the next batch, `gap` offsets longer than its records in partition 0, and process it."""
        self.ends[0] += gap
        self.plan(self.number, self.ends)
        self.number += 1
        return process(records, self.number - 1, self.table)

    def again(self, records: DataFrame) -> BatchReport:
        """Process the last batch once more, as after a crash."""
        return process(records, self.number - 1, self.table)

    def plan(self, number: int, ends: dict[int, int]) -> None:
        """Write offsets/`number`."""
        by_partition = {str(p): end for p, end in ends.items()}
        lines = ["v1", json.dumps({"batchTimestampMs": 1_735_787_100_123, "conf": {}}), json.dumps({self.topic: by_partition})]
        self._write(f"offsets/{number}", "\n".join(lines))

    def mark(self, number: int, start: int = 0, end: int = 1, **counts: int) -> Mark:
        """The mark of a batch of this query, partition 0 only."""
        ranges = (OffsetRange(0, start, end),)
        hash_, id = self.contract.hash, BatchId(QUERY, number)
        return Mark("t", "events", id, 0, hash_, self.topic, TOPIC_ID, ranges, ((0, Counts(**counts)),))

    def target(self) -> DataFrame:
        return self.session.read.format("delta").load(self.places.target)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The target's rows in order of their position; columns by name."""
        names = [f"`{name}`" for name in columns]
        return [tuple(row) for row in self.target().orderBy("_partition", "_offset").select(*names).collect()]

    def quarantine(self) -> list[Row]:
        return self.session.read.format("delta").load(self.places.quarantine).orderBy("partition", "offset").collect()

    def ledger(self) -> list[Row]:
        """The ledger's rows, after what is pending was appended."""
        self.table.ledger.append(self.session)
        return self.session.read.format("delta").load(self.places.ledger).orderBy("batch_id", "partition").collect()

    def _write(self, name: str, text: str, before: str = "") -> None:
        path = Path(self.places.checkpoint) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(before + text, encoding="utf-8")
