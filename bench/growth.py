"""Whether a batch takes longer as the table grows, where event ids rise with time: the same batches into 1 and 100 million rows.

    .venv/bin/python -m bench.growth [--rows 100000000] [--rounds 3] [--json docs/benchmarks/growth.json]

Two tables that `ingest run` has made, filled up by deltalake with rows of earlier ids, a million in a file. Then each gets records of
its own topic in batches of 50,000, in turn, in one session that is warm by the first round, which does not count. Needs 8 GB of disk for
100 million.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from bench.events import PARTITIONS, produce
from bench.meter import Cost, Meter
from bench.result import about, keep
from bench.rivals import contract, ingest
from bench.verify import AT_ONCE, uuids
from ingest.batch.batch import BatchReport
from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime import spark
from ingest.runtime.places import Places

FEW, MANY, BATCH, BATCHES = 1_000_000, 100_000_000, 50_000, 8


def earlier_rows(rows: int) -> Iterator[pa.RecordBatch]:
    """Rows with ids that rise: UUIDs whose first digits count, all before those of today."""
    random = np.random.default_rng(1)
    for first in range(0, rows, AT_ONCE):
        tails = uuids(random, min(AT_ONCE, rows - first)).to_numpy(zero_copy_only=False)
        heads = (f"{number >> 16:08x}-{number & 0xFFFF:04x}-7" for number in range(first, rows))
        ids = pa.array([head + tail[15:] for head, tail in zip(heads, tails, strict=False)])
        count = len(ids)
        values = {
            "order_id": ids,
            "_partition": pa.array(np.zeros(count, np.int32)),
            "_offset": pa.array(np.arange(first, first + count)),
            "_kafka_timestamp": pa.array(np.zeros(count, np.int64), pa.timestamp("us", "UTC")),
            "_ingested_at": pa.array(np.zeros(count, np.int64), pa.timestamp("us", "UTC")),
            "_epoch": pa.array(np.ones(count, np.int32)),
            "_batch": pa.array(np.ones(count, np.int64)),
        }
        yield pa.record_batch(values)


def measure(rows: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Fill both, then the same batches in turn."""
    with Broker(folder / "broker") as broker:
        session = spark.start("local[*]", folder / "spark.log", name="bench", memory="6g")
        tables = {FEW: folder / "few", rows: folder / "many"}
        for number, own in tables.items():
            broker.create_topic(own.name, PARTITIONS)
            produce(broker.bootstrap_servers, 1, topic=own.name)
            _read(session, broker, own)
            schema = pa.schema(DeltaTable(_target(own)).schema())
            for each in earlier_rows(number):
                rows_of = {name: each[name] for name in each.schema.names}
                columns = [rows_of.get(field.name, pa.nulls(len(each), field.type)) for field in schema]
                write_deltalake(_target(own), pa.table(columns, schema), mode="append")
        found: dict[int, list[tuple[Cost, list[BatchReport]]]] = {number: [] for number in tables}
        meter = Meter(broker.pid)
        for number in range(1, rounds + 2):
            for size, own in tables.items():
                produce(broker.bootstrap_servers, BATCH * BATCHES, topic=own.name)
                with meter.measured() as cost:
                    reports = _read(session, broker, own)
                found[size].append((cost, reports))
                print(f"round {number}: {size:,} rows: {cost.wall_s:.1f} s, {cost.processor_s:.1f} processor s", flush=True)
        session.stop()
    return {str(size): _figures(each[1:]) for size, each in found.items()}


def _target(own: Path) -> str:
    return Places(str(own / "lake"), str(own / "c"), "bench", "events").target


def _read(session: SparkSession, broker: Broker, own: Path) -> list[BatchReport]:
    """`ingest run --once` of the table that is named like its topic's folder."""
    reports: list[BatchReport] = []
    ours = contract(source={"topic": own.name, "format": "json"})
    ingest(session, broker.bootstrap_servers, own, [ours], BATCH, reports.append)
    return reports


def _figures(found: list[tuple[Cost, list[BatchReport]]]) -> dict[str, Any]:
    seconds = [report.seconds for _, reports in found for report in reports if report.records_read >= BATCH - PARTITIONS]
    steps = [report.steps for _, reports in found for report in reports if report.records_read >= BATCH - PARTITIONS]
    return {
        "batches": len(seconds),
        "batch_s": round(statistics.median(seconds), 3),
        "merge_s": round(statistics.median(each["merge"] for each in steps), 3),
        "processor_s_a_round": round(statistics.median(cost.processor_s for cost, _ in found), 1),
    }


def ratio(result: dict[str, Any]) -> float:
    """A batch into the large table, of one into the small table."""
    few, many = result["tables"].values()
    return float(many["batch_s"] / few["batch_s"])


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/, with the command that measured."""
    lines = [
        f"# Growth\n\n`python -m bench.growth --rounds {result['rounds']} --json docs/benchmarks/growth.json`\n",
        f"Batches of {BATCH:,} records with event ids that rise with time, written to a small and a large table in turn. "
        f"{result['rounds']} warm rounds, {result['cores']} cores, commit {result['commit']}.\n",
        "| rows in the table | batches | one batch, s (median) | of that the MERGE, s | CPU s per round |\n|---|---|---|---|---|",
    ]
    for rows, each in result["tables"].items():
        lines.append(f"| {int(rows):,} | {each['batches']} | {each['batch_s']} | {each['merge_s']} | {each['processor_s_a_round']} |")
    few, many = map(int, result["tables"])
    lines.append(f"\nA batch takes {ratio(result):.2f} times as long at {many:,} rows as at {few:,}.")
    return "\n".join([*lines, "With random event ids, each MERGE would read the id column of the whole table.\n"])


def main() -> None:
    """Measure and print; with --json keep the result, and the page beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=MANY)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        tables = measure(chosen.rows, chosen.rounds, Path(name))
    result = {**about("growth/1"), "rounds": chosen.rounds, "tables": tables}
    keep(chosen.json, result, page)


if __name__ == "__main__":
    main()
