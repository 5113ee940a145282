"""The ways to move one topic into one Delta table that bench.throughput lets run against each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.events import COLUMNS, TOPIC
from bench.meter import Cost
from ingest.batch.batch import BatchReport
from ingest.contract.definition import Contract
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import topics_of
from ingest.run.table_query import LARGE, PROMPT, TableQuery, Trigger
from ingest.run.writer_setting import Writer
from ingest.runtime.places import Places

READ, NATIVE, SAME_COLUMNS, MERGE, OURS, BY_SPARK = (
    "read and from_json",
    "native Delta sink",
    "native, our columns and fetches",
    "MERGE in foreachBatch",
    "oncelake",
    "oncelake, by Spark",
)


def contract(**more: Any) -> Contract:
    """Ours for the events of `bench.events`; `more` goes into it."""
    document = {
        "pipeline": "bench",
        "table": "events",
        "source": {"topic": TOPIC, "format": "json"},
        "columns": [{"name": n, "type": t, "nullable": n != "order_id"} for n, t in COLUMNS.items()],
        "event_id": ["order_id"],
        "rules": [{"name": "amount_not_negative", "check": "amount >= 0"}],
        **more,
    }
    return Contract.model_validate(document)


def ingest(
    session: SparkSession,
    servers: str,
    folder: Path,
    contracts: Sequence[Contract],
    cap: int,
    on_batch: Callable[[BatchReport], None],
    *,
    writer: Writer = Writer.AUTO,
) -> None:
    """What `ingest run --once` does with these tables, `cap` records a batch, in a session that is there."""
    kafka = KafkaOptions(servers)
    queries = []
    for each in contracts:
        places = Places(str(folder / "lake"), str(folder / "c"), each.pipeline, each.table)
        query = TableQuery(each, places, kafka, topics_of(kafka, each.source), on_batch, writer=writer)
        query.start(session, Trigger(once=True), cap)
        queries.append(query)
    for query in queries:
        while not query.poll():
            time.sleep(0.01)
        if (error := query.finish()) is not None:
            raise error


@dataclass
class Rival:
    """One way to move the topic; `run(folder)` returns the rows it left, None if it keeps none."""

    name: str
    run: Callable[[Path], int | None]
    rows: int | None = None
    costs: list[Cost] = field(default_factory=list)


class Rivals:
    """All of them on one topic, `cap` records a batch. `ours` is its contract, `schema` what the others decode.

    `reports` are of the batches of ours, run by run.
    """

    def __init__(self, session: SparkSession, servers: str, cap: int, ours: Contract | None = None) -> None:
        self._session, self._servers, self._cap, self._contract = session, servers, cap, ours or contract()
        self._topic = self._contract.source.topic
        self._schema = T.StructType([T.StructField(column.name, column.data_type) for column in self._contract.columns])
        self.reports: list[list[BatchReport]] = []
        self.all = [
            Rival(READ, self._read),
            Rival(NATIVE, self._native),
            Rival(SAME_COLUMNS, self._native_with_our_columns),
            Rival("append in foreachBatch", self._append),
            Rival("dropDuplicatesWithinWatermark", self._within_watermark),
            Rival(MERGE, self._merge),
            Rival(OURS, self._ours),
            Rival("oncelake, conflicts: table", self._with_conflicts),
            Rival(BY_SPARK, self._by_spark),
        ]

    def _source(self, **more: str) -> DataFrame:
        """The stream as everybody starts it."""
        stream = self._session.readStream.format("kafka").option("kafka.bootstrap.servers", self._servers).option("subscribe", self._topic)
        return stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", self._cap).options(**more).load()

    def _events(self, *more: Column, **options: str) -> DataFrame:
        """Decoded as everybody does it, with more columns of the record."""
        return self._source(**options).withColumn("e", F.from_json(F.col("value").cast("string"), self._schema)).select("e.*", *more)

    def _read(self, folder: Path) -> None:
        """Read and decode; nothing is written."""
        _to_the_end(self._events().writeStream.format("noop"), folder)

    def _native(self, folder: Path) -> int:
        """Delta's own streaming sink: append, exactly once by offsets, no deduplication, no quarantine."""
        return self._sink(self._events(), folder)

    def _native_with_our_columns(self, folder: Path) -> int:
        """The same with the fetches and the columns of ours, which say where a row came from."""
        constants = {"_source": F.lit(0).cast("smallint"), "_epoch": F.lit(1), "_batch": F.lit(1).cast("bigint")}
        ours = {"_partition": F.col("partition"), "_offset": F.col("offset"), "_kafka_timestamp": F.col("timestamp")}
        ours |= {"_ingested_at": F.current_timestamp(), **constants}
        return self._sink(self._events(*(column.alias(name) for name, column in ours.items()), **PROMPT, **LARGE), folder)

    def _append(self, folder: Path) -> int:
        """An append of each batch that is idempotent by txnAppId and txnVersion; no deduplication."""
        target = str(folder / "t")

        def write(batch: DataFrame, number: int) -> None:
            once = batch.write.format("delta").mode("append").option("txnAppId", "bench").option("txnVersion", number)
            once.save(target)

        _to_the_end(self._events().writeStream.foreachBatch(write), folder)
        return self._count(target)

    def _within_watermark(self, folder: Path) -> int:
        """Spark's own deduplication, which forgets an id after ten minutes of the records' time, into Delta's own sink."""
        stamped = self._events(F.col("timestamp").alias("_kafka_timestamp"))
        return self._sink(stamped.withWatermark("_kafka_timestamp", "10 minutes").dropDuplicatesWithinWatermark(["order_id"]), folder)

    def _merge(self, folder: Path) -> int:
        """MERGE in foreachBatch, deduplicated in the batch, as tutorials show it."""
        target = str(folder / "t")
        DeltaTable.createIfNotExists(self._session).location(target).addColumns(self._schema).execute()

        def write(batch: DataFrame, _: int) -> None:
            table = DeltaTable.forPath(batch.sparkSession, target).alias("t")
            source = batch.dropDuplicates(["order_id"]).alias("s")
            table.merge(source, "t.order_id = s.order_id").whenNotMatchedInsertAll().execute()

        _to_the_end(self._events().writeStream.foreachBatch(write), folder)
        return self._count(target)

    def _ours(self, folder: Path) -> int:
        """`ingest run --once` with its start, deduplication, quarantine, counts and ledger."""
        reports: list[BatchReport] = []
        self.reports.append(reports)
        return self._ingest(folder, self._contract, reports)

    def _with_conflicts(self, folder: Path) -> int:
        """Ours, with conflicts across batches looked for in the table too."""
        return self._ingest(folder, self._contract.model_copy(update={"conflicts": "table"}), [])

    def _by_spark(self, folder: Path) -> int:
        """`ingest run --once --writer spark`, with the same promises."""
        return self._ingest(folder, self._contract, [], writer=Writer.SPARK)

    def _ingest(self, folder: Path, ours: Contract, reports: list[BatchReport], *, writer: Writer = Writer.AUTO) -> int:
        ingest(self._session, self._servers, folder, [ours], self._cap, reports.append, writer=writer)
        return self._count(Places(str(folder / "lake"), str(folder / "c"), ours.pipeline, ours.table).target)

    def _sink(self, events: DataFrame, folder: Path) -> int:
        _to_the_end(events.writeStream.format("delta").option("path", str(folder / "t")), folder)
        return self._count(str(folder / "t"))

    def _count(self, table: str) -> int:
        return self._session.read.format("delta").load(table).count()


def _to_the_end(writer: DataStreamWriter, folder: Path) -> None:
    writer.option("checkpointLocation", str(folder / "c")).trigger(availableNow=True).start().awaitTermination()
