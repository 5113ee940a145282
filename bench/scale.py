"""What a record costs as one thing changes at a time: partitions, cores, batch, size of a record, duplicates, tables.

    .venv/bin/python -m bench.scale [--rounds 3] [--json docs/benchmarks/scale.json]

Each point is `ingest run --once` over a topic of its own, in a session of its own number of cores that is warm by the first round, which
does not count. All points but one have what BASE says.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.events import RECORD_BYTES, produce
from bench.meter import Cost, Meter
from bench.result import about, keep
from bench.rivals import contract, ingest
from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime import spark


@dataclass(frozen=True)
class Point:
    """What is measured: `events` in each table's topic, of `size` bytes about."""

    factor: str = ""
    partitions: int = 4
    cores: int = 2
    batch: int = 500_000
    size: int = RECORD_BYTES
    duplicates: float = 0.05
    tables: int = 1
    events: int = 500_000

    @property
    def value(self) -> str:
        """Of the factor."""
        found = getattr(self, self.factor)
        return f"{found:.0%}" if self.factor == "duplicates" else f"{found:,}"


BASE = Point()
SMALL = 100_000
POINTS = [
    *(replace(BASE, factor="partitions", partitions=number) for number in (1, 2, 4)),
    *(replace(BASE, factor="cores", cores=number) for number in (1, 2)),
    *(replace(BASE, factor="batch", batch=number, events=max(SMALL, number)) for number in (10_000, 100_000, 500_000, 2_000_000)),
    *(replace(BASE, factor="size", size=size, events=100_000_000 // size) for size in (RECORD_BYTES, 2_000, 20_000, 100_000)),
    *(replace(BASE, factor="duplicates", duplicates=share) for share in (0, 0.05, 1)),
    *(replace(BASE, factor="tables", tables=number, events=BASE.events // number) for number in (1, 5, 20)),
]


@dataclass
class Measured:
    """A point, the topics that it reads, and what each round of it cost."""

    point: Point
    topics: list[str]
    records: int
    costs: list[Cost] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Of the rounds but the first."""
        warm = self.costs[1:] or self.costs
        wall, processor = (statistics.median(getattr(cost, name) for cost in warm) for name in ("wall_s", "processor_s"))
        return {
            "factor": self.point.factor,
            "value": self.point.value,
            "records": self.records,
            "wall_s": round(wall, 1),
            "processor_s": round(processor, 1),
            "processor_us_a_record": round(processor / self.records * 1e6, 1),
            "records_per_s": round(self.records / wall),
            "mb_per_processor_s": round(self.records * self.point.size / processor / 1e6, 1),
            "memory_gb": round(max(cost.memory for cost in self.costs) / 1e9, 1),
        }


def fill(broker: Broker, point: Point, made: dict[Any, tuple[list[str], int]]) -> Measured:
    """The point with its topics, which points of the same events share."""
    key = (point.partitions, point.size, point.duplicates, point.tables, point.events)
    if key not in made:
        topics = [f"t-{uuid.uuid4().hex[:8]}" for _ in range(point.tables)]
        records = 0
        for topic in topics:
            broker.create_topic(topic, point.partitions, {"max.message.bytes": "2000000"})
            padding = "x" * (point.size - RECORD_BYTES)
            records += produce(
                broker.bootstrap_servers,
                point.events,
                topic=topic,
                partitions=point.partitions,
                duplicates=point.duplicates,
                padding=padding,
            )
        made[key] = topics, records
    return Measured(point, *made[key])


def measure(rounds: int, chosen: list[Point], folder: Path) -> list[dict[str, Any]]:
    """All points in turn, for each number of cores."""
    with Broker(folder / "broker") as broker:
        made: dict[Any, tuple[list[str], int]] = {}
        found = [fill(broker, point, made) for point in chosen]
        meter = Meter(broker.pid)
        for cores in sorted({each.point.cores for each in found}):
            session = spark.start(f"local[{cores}]", folder / "spark.log", name="bench", memory="6g")
            for number in range(rounds):
                for each in (one for one in found if one.point.cores == cores):
                    own = folder / uuid.uuid4().hex[:8]
                    tables = [
                        contract(table=f"t{index}", source={"topic": topic, "format": "json"}) for index, topic in enumerate(each.topics)
                    ]
                    with meter.measured() as cost:
                        ingest(session, broker.bootstrap_servers, own, tables, each.point.batch, lambda _: None)
                    each.costs.append(cost)
                    shutil.rmtree(own)
                    print(
                        f"round {number}: {each.point.factor} {each.point.value}: {cost.wall_s:.1f} s, {cost.processor_s:.1f} processor s",
                        flush=True,
                    )
            session.stop()
    return [each.figures() for each in found]


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/, with the command that measured."""
    base = f"{BASE.partitions} partitions, {BASE.cores} cores, batches of {BASE.batch:,}, records of {BASE.size} bytes, "
    base += f"{BASE.duplicates:.0%} duplicates, one table"
    lines = [
        f"# Scale\n\n`python -m bench.scale --rounds {result['rounds']} --json docs/benchmarks/scale.json`\n",
        f"Each row changes one factor of the base case: {base}.\nMedian of {result['rounds'] - 1} warm rounds on a machine with "
        f"{result['cores']} cores, which the broker shares; commit {result['commit']}. "
        "[What this means](../decisions/cost-of-a-batch.md#scale).\n",
        "| factor | value | records | wall, s | CPU, s | CPU µs per record | records/s | MB per CPU s | memory, GB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    names = {"size": "bytes per record", "batch": "records per batch"}
    for row in result["points"]:
        first = (
            f"| {names.get(row['factor'], row['factor'])} | {row['value']} | {row['records']:,} | {row['wall_s']} | {row['processor_s']} "
        )
        rest = f"| {row['processor_us_a_record']} | {row['records_per_s']:,} | {row['mb_per_processor_s']} | {row['memory_gb']} |"
        lines.append(first + rest)
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure and print; with --json keep the result, and the page beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="one factor")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        points = measure(chosen.rounds, [point for point in POINTS if chosen.only in (None, point.factor)], Path(name))
    result = {**about("scale/1"), "rounds": chosen.rounds, "points": points}
    keep(chosen.json, result, page)


if __name__ == "__main__":
    main()
