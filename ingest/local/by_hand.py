"""The pipeline that people write by hand, for `ingest demo` to compare with: what a tutorial shows, and nothing is added.

foreachBatch appends, from_json decodes, the checkpoint remembers. There is no pair (txnAppId, txnVersion), no MERGE, no
isolation level and no quarantine: a batch that runs twice is appended twice, a record of an aborted transaction is a row,
and what is no JSON becomes a row of NULLs. Only the two ways to die are ours; they are those of `ingest.faults`.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from ingest import spark
from ingest.contract import Contract, load_contracts
from ingest.files import LocalFiles
from ingest.places import Places, spark_log
from ingest.stream.delta_log import DeltaLog

Point = Literal["during_target", "after_target"]


@dataclass(frozen=True)
class Kill:
    """Where to die: while batch `batch` of whichever table comes first is written, or right after its commit."""

    point: Point
    batch: int

    @staticmethod
    def parse(text: str) -> Kill:
        """`after_target@3`. Raises ValueError."""
        point, _, batch = text.partition("@")
        if point not in ("during_target", "after_target"):
            raise ValueError(f"{text!r}: expected during_target@<batch> or after_target@<batch>")
        return Kill(cast(Point, point), int(batch))

    def strike(self, victims: Sequence[int]) -> None:
        """SIGKILL to all, the JVM first, this process last."""
        for pid in victims:
            os.kill(pid, signal.SIGKILL)

    def strike_when_written(self, target: Path, victims: Sequence[int]) -> None:
        """Strike from another thread as soon as a new data file appears in the table's folder."""
        known = set(target.glob("*.parquet"))

        def watch() -> None:
            while set(target.glob("*.parquet")) <= known:
                time.sleep(0.0005)
            self.strike(victims)

        threading.Thread(target=watch, daemon=True).start()


def start(session: SparkSession, contract: Contract, places: Places, servers: str, cap: int, kill: Kill | None) -> StreamingQuery:
    """Start one table's query; `cap` is maxOffsetsPerTrigger."""
    schema = ", ".join(f"{column.name} {column.type}" for column in contract.columns)
    victims = (spark.jvm_pid(session), os.getpid())

    def append(batch: DataFrame, number: int) -> None:
        if kill == Kill("during_target", number):
            kill.strike_when_written(Path(places.target), victims)
        batch.write.format("delta").mode("append").save(places.target)
        if kill == Kill("after_target", number):
            kill.strike(victims)
        commit = next(DeltaLog(LocalFiles(), places.target).newest_first())
        print(f"{contract.name} batch {number}: appended {sum(file.records or 0 for file in commit.added)}", flush=True)

    source = session.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", contract.source.topic)
    records = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", cap).load()
    events = records.select(F.from_json(F.col("value").cast("string"), schema).alias("event")).select("event.*")
    writer = events.writeStream.foreachBatch(append).option("checkpointLocation", places.checkpoint)
    return writer.trigger(availableNow=True).start()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as `python -m ingest.local.by_hand`: reads what is in the topics, then ends."""
    parser = argparse.ArgumentParser(prog="python -m ingest.local.by_hand", description=__doc__)
    parser.add_argument("tables", nargs="+", help="tables of the project's contracts, for their topics and columns")
    for name in ("project", "lake", "checkpoints", "bootstrap-servers"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--max-records-per-batch", type=int, required=True)
    parser.add_argument("--kill", type=Kill.parse, help="during_target@<batch> or after_target@<batch>")
    chosen = parser.parse_args(arguments)
    session = spark.start(chosen.master, spark_log(chosen.lake, "by-hand"), name="by hand")
    print("running: Spark is up", flush=True)
    queries = []
    for contract in load_contracts(Path(chosen.project), chosen.tables):
        places = Places(chosen.lake, chosen.checkpoints, contract.pipeline, contract.table)
        queries.append(start(session, contract, places, chosen.bootstrap_servers, chosen.max_records_per_batch, chosen.kill))
    for query in queries:
        query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    main()
