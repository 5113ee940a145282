"""Whether a batch takes longer as the table grows: the same batches into tables of 1, 20 and 100 million rows.

    .venv/bin/python -m bench.growth [--rows 1000000,20000000,100000000] [--rounds 7] [--batch 500000] [--json docs/benchmarks/growth.json]

For event ids that rise with time, and for random ones, a table of each size that `ingest run` has made, filled up by deltalake with a
million rows in a file. In each round every table gets one batch from a topic of its own, in turn, in one session; the first round does not
count. A twentieth of the records are copies: of rising ids, of records just before; of random ids, of rows drawn evenly over the table's
age. Beside them MERGE by hand writes the random batches into a table of the middle size. At last the largest random table reads all of its
batches again. Needs 25 GB of disk, and 2 GB of memory for the index's pages.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.events import COLUMNS, DUPLICATES, PARTITIONS, SCHEMA, order, produce, send
from bench.meter import Cost, Meter
from bench.result import about, keep
from bench.rivals import contract, ingest
from bench.verify import AT_ONCE, uuids
from ingest.batch.batch import BatchReport
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.index_state import state_of
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import current_states
from ingest.lab.broker.embedded_broker import Broker
from ingest.recovery.epoch import open_epoch
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.runtime import spark
from ingest.runtime.places import Places

SIZES, ROUNDS, BATCH = (1_000_000, 20_000_000, 100_000_000), 7, 500_000
RISING, RANDOM, MERGE = "rising", "random", "MERGE by hand"


@dataclass
class Grown:
    """A table of a size, the ids of rows that are drawn evenly from it, and what each round cost: its batches in seconds."""

    kind: str
    rows: int
    folder: Path
    drawn: list[str] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    reports: list[list[BatchReport]] = field(default_factory=list)

    @property
    def places(self) -> Places:
        return Places(str(self.folder / "lake"), str(self.folder / "c"), "bench", "events")

    def figures(self) -> dict[str, Any]:
        """Medians of the rounds that count."""
        reports = [report for each in self.reports[1:] for report in each]
        return _medians(reports, self.costs[1:])


def _medians(reports: Sequence[BatchReport], costs: Sequence[Cost]) -> dict[str, Any]:
    return {
        "batches": len(reports),
        "batch_s": round(statistics.median(report.seconds for report in reports), 3),
        "target_s": round(statistics.median(report.steps["target"] for report in reports), 3),
        "processor_s_a_round": round(statistics.median(cost.processor_s for cost in costs), 1),
    }


def earlier_ids(kind: str, rows: int) -> Iterator[pa.Array]:
    """Ids of rows of earlier times, AT_ONCE each: random UUIDs, or UUIDs whose first digits count, all before those of today."""
    random = np.random.default_rng(1)
    for first in range(0, rows, AT_ONCE):
        ids = uuids(random, min(AT_ONCE, rows - first))
        if kind == RISING:
            heads = (f"{number >> 16:08x}-{number & 0xFFFF:04x}-7" for number in range(first, rows))
            ids = pa.array([head + tail[15:] for head, tail in zip(heads, ids.to_numpy(zero_copy_only=False), strict=False)])
        yield ids


def fill(path: str, kind: str, rows: int, draws: int) -> list[str]:
    """Append so many rows to a table; returns the ids of `draws` of them, evenly drawn."""
    schema, drawn, first = pa.schema(DeltaTable(path).schema()), [], 0
    for ids in earlier_ids(kind, rows):
        count = len(ids)
        values = {name: pa.array(np.zeros(count, np.int64)) for name in ("_source", "_partition", "_kafka_timestamp", "_ingested_at")}
        values |= {name: pa.array(np.ones(count, np.int64)) for name in ("_epoch", "_batch")}
        values |= {"order_id": ids, "_offset": pa.array(np.arange(first, first + count))}
        columns = [values[field.name].cast(field.type) if field.name in values else pa.nulls(count, field.type) for field in schema]
        write_deltalake(path, pa.table(columns, schema), mode="append")
        drawn += ids.take(pa.array(np.linspace(0, count - 1, draws * count // rows, dtype=np.int64))).to_pylist()
        first += count
    Random(1).shuffle(drawn)
    return drawn


def send_random(servers: str, table: Grown, batch: int) -> None:
    """Send a batch of random ids, of which the twentieth part is from the table's rows."""
    old = [table.drawn.pop() for _ in range(min(len(table.drawn), int(batch * DUPLICATES)))]
    ids = [*uuids(np.random.default_rng(), batch - len(old)).to_pylist(), *old]
    Random(0).shuffle(ids)
    events = ((number % PARTITIONS, order(number, customers=100_000, order_id=id), None) for number, id in enumerate(ids))
    send(servers, table.folder.name, events)


@dataclass
class ByHand:
    """MERGE in foreachBatch into a table of the same rows, as tutorials show it, from the topic of `of`."""

    session: SparkSession
    servers: str
    of: Grown
    folder: Path
    seconds: list[float] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    def make(self) -> None:
        schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        self.session.createDataFrame([], schema).write.format("delta").save(str(self.folder / "t"))
        fill(str(self.folder / "t"), RANDOM, self.of.rows, 0)

    def read(self, batch: int) -> None:
        stream = self.session.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers)
        stream = stream.option("subscribe", self.of.folder.name).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", batch)
        events = stream.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("e")).select("e.*")
        writer = events.writeStream.foreachBatch(self._merge).option("checkpointLocation", str(self.folder / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def _merge(self, batch: DataFrame, _: int) -> None:
        began = time.monotonic()
        table = SparkTable.forPath(batch.sparkSession, str(self.folder / "t")).alias("t")
        source = batch.dropDuplicates(["order_id"]).alias("s")
        table.merge(source, "t.order_id = s.order_id").whenNotMatchedInsertAll().execute()
        self.seconds.append(time.monotonic() - began)


def measure(sizes: Sequence[int], rounds: int, batch: int, folder: Path) -> dict[str, Any]:
    """Fill all tables, then the same batches in turn."""
    with Broker(folder / "broker") as broker:
        servers, session = broker.bootstrap_servers, spark.start("local[*]", folder / "spark.log", name="bench", memory="6g")
        tables = [Grown(kind, rows, folder / f"{kind}-{rows}") for kind in (RISING, RANDOM) for rows in sizes]
        for table in tables:
            broker.create_topic(table.folder.name, PARTITIONS)
            produce(servers, 100, topic=table.folder.name)
            _read(session, servers, table, batch)
            table.drawn = fill(table.places.target, table.kind, table.rows, int(batch * DUPLICATES) * (rounds + 1))
            print(f"{table.folder.name} is filled", flush=True)
        middle = next(each for each in tables if each.kind == RANDOM and each.rows == sizes[len(sizes) // 2])
        by_hand = ByHand(session, servers, middle, folder / "by-hand")
        by_hand.make()
        by_hand.read(batch)
        meter = Meter(broker.pid)
        for number in range(rounds + 1):
            for table in tables:
                if table.kind == RISING:
                    produce(servers, int(batch / (1 + DUPLICATES)), topic=table.folder.name)
                else:
                    send_random(servers, table, batch)
                with meter.measured() as cost:
                    table.reports.append(_read(session, servers, table, batch))
                table.costs.append(cost)
                print(f"round {number}: {table.folder.name}: {cost.wall_s:.1f} s, {cost.processor_s:.1f} processor s", flush=True)
            with meter.measured() as cost:
                by_hand.read(batch)
            by_hand.costs.append(cost)
            print(f"round {number}: {MERGE}: {cost.wall_s:.1f} s, {cost.processor_s:.1f} processor s", flush=True)
        with meter.measured() as cost:
            again = _read_again(session, servers, tables[-1], batch)
        session.stop()
    merges = by_hand.seconds[-rounds:]
    of_kinds = {kind: {str(each.rows): each.figures() for each in tables if each.kind == kind} for kind in (RISING, RANDOM)}
    for each in (each for each in tables if each.kind == RANDOM):
        state = state_of(each.places)
        assert state is not None, "random ids need an index"
        of_kinds[RANDOM][str(each.rows)] |= {"index_bytes": state.bytes, "levels": state.levels}
    hand = {"rows": middle.rows, "batches": len(merges), "batch_s": round(statistics.median(merges), 3)}
    hand["processor_s_a_round"] = round(statistics.median(cost.processor_s for cost in by_hand.costs[1:]), 1)
    cost.jvm_s, cost.python_s = cost.jvm_s / len(again), cost.python_s / len(again)
    return {**of_kinds, "merge": hand, "again": {"rows": tables[-1].rows, **_medians(again, [cost])}}


def _read(session: SparkSession, servers: str, table: Grown, batch: int) -> list[BatchReport]:
    """`ingest run --once` of the table that is named like its topic's folder; its full batches."""
    reports: list[BatchReport] = []
    ours = contract(source={"topic": table.folder.name, "format": "json"})
    ingest(session, servers, table.folder, [ours], batch, reports.append)
    return [report for report in reports if report.records_read >= batch * 0.95 - PARTITIONS]


def _read_again(session: SparkSession, servers: str, table: Grown, batch: int) -> list[BatchReport]:
    """Seek to the earliest offset, and read all batches again: every id of them is in the table."""
    kafka, ours = KafkaOptions(servers), contract(source={"topic": table.folder.name, "format": "json"})
    seeking = Seeking(Aim("earliest"), accept_gap=False, reason="--to earliest")
    open_epoch(None, ours, table.places, partial(current_states, kafka, ours.source), seeking, writer=DirectWriter(ours))
    found = _read(session, servers, table, batch)
    assert sum(report.inserted for report in found) == 0, "all of it is there"
    return found


def ratio(result: dict[str, Any], kind: str = RISING) -> float:
    """A batch into the largest table, of one into the smallest."""
    seconds = [each["batch_s"] for each in result[kind].values()]
    return float(seconds[-1] / seconds[0])


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/, with the command that measured."""
    lines = [
        f"# Growth\n\n`python -m bench.growth --rounds {result['rounds']} --json docs/benchmarks/growth.json`\n",
        f"Batches of {result['batch']:,} records, written to tables of different sizes in turn. {result['rounds']} warm rounds, "
        f"{result['cores']} cores, commit {result['commit']}.",
    ]
    head = "| rows in the table | batches | one batch, s (median) | of that the target, s | CPU s per round |\n|---|---|---|---|---|"
    for kind, what in ((RISING, "rise with time"), (RANDOM, "are random")):
        if kind in result:
            lines.append(f"\n## Event ids that {what}\n\n{head}")
            for rows, each in result[kind].items():
                lines.append(
                    f"| {int(rows):,} | {each['batches']} | {each['batch_s']} | {each['target_s']} | {each['processor_s_a_round']} |"
                )
            few, *_, many = map(int, result[kind])
            lines.append(f"\nA batch takes {ratio(result, kind):.2f} times as long at {many:,} rows as at {few:,}.")
    if RANDOM not in result:
        return "\n".join([*lines, "Random event ids were not measured yet.\n"])
    hand, again, largest = result["merge"], result["again"], [*result[RANDOM].values()][-1]
    faster = hand["batch_s"] / result[RANDOM][str(hand["rows"])]["batch_s"]
    lines += [
        f"5 % of the ids are of rows drawn evenly over the table's age. The [index](../decisions/id-index.md) of the largest table has "
        f"{largest['index_bytes'] / 1e6:,.0f} MB in {largest['levels']} levels.\n",
        f"MERGE by hand takes {hand['batch_s']} s (CPU {hand['processor_s_a_round']} s) for such a batch at {hand['rows']:,} rows, "
        f"{faster:.1f} times as long.\n",
        f"The worst case is a batch that is read again: {again['rows']:,} rows with all of its ids. It takes {again['batch_s']} s, of that "
        f"the target {again['target_s']} s (CPU {again['processor_s_a_round']} s).\n",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print; with --json keep the result, and the page beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default=",".join(map(str, SIZES)))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = measure([*map(int, chosen.rows.split(","))], chosen.rounds, chosen.batch, Path(name))
    keep(chosen.json, {**about("growth/2"), "rounds": chosen.rounds, "batch": chosen.batch, **found}, page)


if __name__ == "__main__":
    main()
