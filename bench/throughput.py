"""How fast is it, side by side: decode only, Delta's own sink, MERGE in foreachBatch as people write it, and ours with all promises.

    .venv/bin/python -m bench.throughput [--events 2000000] [--rounds 4] [--json docs/benchmarks/throughput.json]

One broker, one topic, one Spark application. The rivals take turns, each reading the whole topic into a new table; the first
round is cold (Java compiles as it goes), the others are warm. What counts is the median of the rounds' ratios, each of two runs
near to each other: a machine that others share may be half as fast a minute later, and the seconds are this machine's.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.events import COLUMNS, PARTITIONS, SCHEMA, TOPIC, produce
from bench.result import keep
from ingest import __version__, spark
from ingest.contract import Contract
from ingest.kafka_options import KafkaOptions
from ingest.local.broker import Broker
from ingest.places import Places
from ingest.stream.batch import BatchReport
from ingest.stream.query import TableQuery, Trigger
from ingest.stream.topic import describe

ROUNDS = 4


def contract(**more: str) -> Contract:
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


@dataclass
class Rival:
    """One way to move the topic; `run(folder)` returns the rows it left."""

    name: str
    run: Callable[[Path], int]
    seconds: list[float] = field(default_factory=list)
    rows: int = 0


class Bench:
    """The rivals on one topic."""

    def __init__(self, session: SparkSession, servers: str, cap: int) -> None:
        self.session = session
        self.servers = servers
        self.cap = cap
        self.reports: list[BatchReport] = []
        self.beside_s: list[float] = []  # of each run of ours, what its batches do not take: start, tables, the ledger's end

    def source(self) -> DataFrame:
        """The stream as everybody starts it."""
        stream = self.session.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers).option("subscribe", TOPIC)
        return stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", self.cap).load()

    def events(self) -> DataFrame:
        """Decoded as everybody does it."""
        return self.source().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("e")).select("e.*")

    def decode_only(self, folder: Path) -> int:
        """Read and decode; nothing is written."""
        query = self.events().writeStream.format("noop").option("checkpointLocation", str(folder / "c")).trigger(availableNow=True)
        query.start().awaitTermination()
        return 0

    def native(self, folder: Path) -> int:
        """Delta's own streaming sink: append, exactly once by offsets, no deduplication, no quarantine."""
        query = self.events().writeStream.format("delta").option("checkpointLocation", str(folder / "c")).trigger(availableNow=True)
        query.start(str(folder / "t")).awaitTermination()
        return self.count(folder / "t")

    def merge(self, folder: Path) -> int:
        """MERGE in foreachBatch, deduplicated in the batch, as tutorials show it."""
        target = str(folder / "t")
        DeltaTable.createIfNotExists(self.session).location(target).addColumns(self.session.createDataFrame([], SCHEMA).schema).execute()

        def write(batch: DataFrame, _: int) -> None:
            table = DeltaTable.forPath(batch.sparkSession, target).alias("t")
            source = batch.dropDuplicates(["order_id"]).alias("s")
            table.merge(source, "t.order_id = s.order_id").whenNotMatchedInsertAll().execute()

        writer = self.events().writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()
        return self.count(folder / "t")

    def watched(self, folder: Path) -> int:
        """Ours, with conflicts across batches looked for in the table too."""
        return self.ours(folder, conflicts="table")

    def ours(self, folder: Path, **more: str) -> int:
        """`ingest run --once` with its start, quarantine, MERGE, counts and ledger; `more` goes into the contract."""
        kafka = KafkaOptions(self.servers)
        places = Places(str(folder / "lake"), str(folder / "c"), "bench", "events")
        reports: list[BatchReport] = []
        began = time.monotonic()
        query = TableQuery(contract(**more), places, kafka, describe(kafka, TOPIC), reports.append)
        query.start(self.session, Trigger(once=True), self.cap)
        while not query.poll():
            time.sleep(0.01)
        if (error := query.finish()) is not None:
            raise error
        if not more:
            self.reports += reports
            self.beside_s.append(time.monotonic() - began - sum(each.seconds for each in reports))
        return self.count(Path(places.target))

    def count(self, table: Path) -> int:
        """Rows of a Delta table."""
        return self.session.read.format("delta").load(str(table)).count()


def measure(rivals: list[Rival], rounds: int, folder: Path) -> None:
    """Let the rivals take turns; the order turns too, so that none always follows the same one."""
    for number in range(rounds):
        for rival in rivals[number % len(rivals) :] + rivals[: number % len(rivals)]:
            own = folder / f"{number}-{uuid.uuid4().hex[:6]}"
            own.mkdir()
            began = time.monotonic()
            rival.rows = rival.run(own)
            rival.seconds.append(time.monotonic() - began)
            print(f"round {number}: {rival.name:27} {rival.seconds[-1]:6.1f} s, {rival.rows:,} rows", flush=True)
            shutil.rmtree(own)


def report(rivals: list[Rival], records: int, steps: dict[str, float], beside: float, load: tuple[float, ...]) -> dict[str, Any]:
    """What was measured, with ratios to Delta's own sink, warm."""
    warm = {rival.name: statistics.median(rival.seconds[1:] or rival.seconds) for rival in rivals}
    native = next(rival for rival in rivals if rival.name == "native Delta sink")
    ratios = {
        rival.name: [n / own for n, own in zip(native.seconds[1:] or native.seconds, rival.seconds[1:] or rival.seconds, strict=True)]
        for rival in rivals
    }
    rows = [
        {
            "rival": rival.name,
            "cold_s": round(rival.seconds[0], 1),
            "warm_median_s": round(warm[rival.name], 1),
            "warm_min_s": round(min(rival.seconds[1:] or rival.seconds), 1),
            "warm_max_s": round(max(rival.seconds[1:] or rival.seconds), 1),
            "warm_records_per_s": round(records / warm[rival.name]),
            "of_native": round(statistics.median(ratios[rival.name]), 2),
            "of_native_min": round(min(ratios[rival.name]), 2),
            "of_native_max": round(max(ratios[rival.name]), 2),
            "rows": rival.rows,
        }
        for rival in rivals
    ]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "schema": "oncelake/bench-throughput/1",
        "version": __version__,
        "commit": commit,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "records": records,
        "rounds": len(rivals[0].seconds),
        "load_before_and_after": [round(each, 1) for each in load],
        "rivals": rows,
        "ours_steps_warm_s_per_batch": steps,
        "ours_beside_its_batches_warm_s_per_run": beside,
    }


def markdown(result: dict[str, Any]) -> str:
    """The table for docs/benchmarks/."""
    before, after = result["load_before_and_after"]
    lines = [
        f"{result['records']:,} records, {result['rounds']} rounds (the first is cold), {result['cores']} cores, "
        f"commit {result['commit']}, load average {before} before and {after} after.",
        "",
        "| rival | cold s | warm s (median) | warm min–max | records/s warm | of the native sink, by round: median (min–max) |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rivals"]:
        span = f"{row['warm_min_s']}–{row['warm_max_s']}"
        lines.append(
            f"| {row['rival']} | {row['cold_s']} | {row['warm_median_s']} | {span} | {row['warm_records_per_s']:,} | "
            f"{row['of_native']} ({row['of_native_min']}–{row['of_native_max']}) |"
        )
    steps = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in result["ours_steps_warm_s_per_batch"].items())
    beside = f"a run takes {result['ours_beside_its_batches_warm_s_per_run']} s beside its batches (start, tables, ledger)"
    return "\n".join([*lines, "", f"A warm batch of ours, by step: {steps}; {beside}.", ""])


def page(result: dict[str, Any]) -> str:
    """The whole page, with the command that measured: `make bench` takes the rounds that are the default."""
    command = f"`python -m bench.throughput --rounds {result['rounds']} --json docs/benchmarks/throughput.json`"
    rivals = "rivals side by side in one Spark application on one broker"
    head = f"# Throughput\n\n{command} (`make bench` runs it with {ROUNDS} rounds): {rivals}."
    return f"{head}\n\n{markdown(result)}"


def main() -> None:
    """Measure and print; with --json keep the result, and the table beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--batch", type=int, default=500_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", help="rivals whose names begin with one of these, separated by commas, for profiling")
    chosen = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "broker") as broker:
        folder = Path(name)
        broker.create_topic(TOPIC, PARTITIONS)
        records = produce(broker.bootstrap_servers, chosen.events)
        session = spark.start("local[*]", folder / "spark.log", name="bench", memory="6g")
        bench = Bench(session, broker.bootstrap_servers, chosen.batch)
        rivals = [
            Rival("decode only", bench.decode_only),
            Rival("native Delta sink", bench.native),
            Rival("MERGE in foreachBatch", bench.merge),
            Rival("oncelake", bench.ours),
            Rival("oncelake, conflicts: table", bench.watched),
        ]
        rivals = [rival for rival in rivals if chosen.only is None or rival.name.startswith(tuple(chosen.only.split(",")))]
        measure(rivals, chosen.rounds, folder)
        session.stop()
    warm = bench.reports[len(bench.reports) // chosen.rounds :]
    names = list(warm[0].steps) if warm else []
    steps = {step: round(statistics.median(each.steps.get(step, 0.0) for each in warm), 2) for step in names}
    beside = round(statistics.median(bench.beside_s[1:] or bench.beside_s or [0.0]), 1)
    if chosen.only is not None:
        print(steps, beside)
        return
    result = report(rivals, records, steps, beside, (before, os.getloadavg()[0]))
    print(markdown(result))
    keep(chosen.json, result, page(result))


if __name__ == "__main__":
    main()
