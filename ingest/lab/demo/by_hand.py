"""The pipeline that a tutorial teaches, for `ingest demo` to compare with: from_json, append in foreachBatch, a Spark checkpoint.

It has no transaction id, no MERGE, no isolation level and no quarantine. A batch that runs twice is appended twice, a record of
an aborted transaction becomes a row, and a record that is not JSON becomes a row of NULLs. We add nothing but the kill.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from ingest.contract.definition import Contract, load_contracts
from ingest.delta.delta_log import DeltaLog
from ingest.runtime import spark
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places, spark_log


def start(session: SparkSession, contract: Contract, places: Places, servers: str, cap: int, kill: int | None) -> StreamingQuery:
    """Start one table's query; `cap` is maxOffsetsPerTrigger; `kill` is the batch after whose commit driver and JVM are killed."""
    schema = ", ".join(f"{column.name} {column.type}" for column in contract.columns)

    def append(batch: DataFrame, number: int) -> None:
        batch.write.format("delta").mode("append").save(places.target)
        if number == kill:
            for pid in (spark.jvm_pid(session), os.getpid()):
                os.kill(pid, signal.SIGKILL)
        commit = next(DeltaLog(LocalFiles(), places.target).newest_first())
        print(f"{contract.name} batch {number}: appended {sum(file.records or 0 for file in commit.added)}", flush=True)

    source = session.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", contract.source.topic)
    records = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", cap).load()
    events = records.select(F.from_json(F.col("value").cast("string"), schema).alias("event")).select("event.*")
    writer = events.writeStream.foreachBatch(append).option("checkpointLocation", places.checkpoint)
    return writer.trigger(availableNow=True).start()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as `python -m ingest.lab.demo.by_hand`: read the topics to their end, then exit."""
    parser = argparse.ArgumentParser(prog="python -m ingest.lab.demo.by_hand", description=__doc__)
    parser.add_argument("tables", nargs="+", help="tables of the project, for their topics and columns")
    for name in ("project", "lake", "checkpoints", "bootstrap-servers"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--max-records-per-batch", type=int, required=True)
    parser.add_argument("--kill", type=int, help="kill the driver and its JVM after the commit of this batch")
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
