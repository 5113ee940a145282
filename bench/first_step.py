"""What the first step of a batch is made of: the same records, each time with one thing more done to them.

    .venv/bin/python -m bench.first_step [--events 500000] [--rounds 8] [--json docs/benchmarks/first_step.json]

Batch reads of one topic into nothing. The rungs take turns; the first two rounds are left out, and the least time of the others is
taken, since other work on the machine only adds to it. What a rung costs is its difference to the one above it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.events import PARTITIONS, SCHEMA, TOPIC, produce
from bench.result import keep
from bench.rivals import contract
from ingest import spark
from ingest.local.broker import Broker
from ingest.stream.decode import Source, decode
from ingest.stream.mark import FIRST_BATCH, BatchId
from ingest.stream.tally import rank, tally_of

ROUNDS, COLD_ROUNDS = 8, 2


def main() -> None:
    """Measure and print; with --json keep the result, and the table beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "broker") as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        records = produce(broker.bootstrap_servers, chosen.events)
        session = spark.start("local[*]", Path(name) / "spark.log", name="bench", memory="6g")
        ours = contract()

        def read() -> DataFrame:
            source = session.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
            return source.option("subscribe", TOPIC).option("includeHeaders", "true").load()

        def decoded() -> DataFrame:
            return decode(read(), ours, Source("id", BatchId(1, FIRST_BATCH), datetime.now(UTC)))

        def plainly() -> DataFrame:
            return read().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("e")).select("e.*")

        def kept(events: DataFrame) -> None:
            events.persist()
            tally_of(events, ours)
            events.unpersist(blocking=True)

        rungs: dict[str, Callable[[], None]] = {
            "read": lambda: into_nothing(read()),
            "read, from_json": lambda: into_nothing(plainly()),
            "read, decode with all checks": lambda: into_nothing(decoded()),
            "the same, cached and counted": lambda: kept(decoded().withColumn("__rank", F.lit(1))),
            "the same, copies of an event id ranked": lambda: kept(rank(decoded(), ours)[0]),
        }
        seconds: dict[str, list[float]] = {name: [] for name in rungs}
        for _ in range(chosen.rounds):
            for rung, work in rungs.items():
                began = time.monotonic()
                work()
                seconds[rung].append(time.monotonic() - began)
        session.stop()
    least = {name: round(min(found[COLD_ROUNDS:] or found), 2) for name, found in seconds.items()}
    every = {name: [round(each, 2) for each in found] for name, found in seconds.items()}
    result = {"schema": "oncelake/bench-first-step/1", "cores": os.cpu_count(), "records": records, "least_s": least, "seconds": every}
    print(page(result))
    keep(chosen.json, result, page(result))


def into_nothing(frame: DataFrame) -> None:
    """Compute all of it and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/, with the command that measured: `make bench` takes the rounds that are the default."""
    rounds = max(map(len, result["seconds"].values()))
    command = f"`python -m bench.first_step --rounds {rounds} --json docs/benchmarks/first_step.json`"
    lines = [
        f"# The first step of a batch\n\n{command} (`make bench` runs it with {ROUNDS} rounds)\n",
        f"{result['records']:,} records, the least of {rounds - COLD_ROUNDS} warm rounds, {result['cores']} cores.",
        "",
        "| done | s |",
        "|---|---|",
    ]
    return "\n".join([*lines, *(f"| {name} | {seconds} |" for name, seconds in result["least_s"].items()), ""])


if __name__ == "__main__":
    main()
