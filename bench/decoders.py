"""The decoder on Arrow beside the one by column expressions that it replaced, which is taken out of the repository's history.

    .venv/bin/python -m bench.decoders [--events 500000] [--rounds 4] [--json docs/benchmarks/decoders.json]

Batch reads of one topic into nothing, in one session: reading alone, with Spark's own `from_json` (which is not exact), then with each
decoder, in turn. What a decoder costs is its difference to the reading.
Once on the benchmarks' flat records, once on the demo's nested orders.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bench.events import PARTITIONS, TOPIC, produce, send
from bench.meter import Cost, Meter
from bench.result import about, keep
from bench.rivals import contract
from ingest.contract.definition import Contract, load_contracts
from ingest.decode.decoder import decode, with_source
from ingest.decode.event_plan import BatchSource
from ingest.delta.batch_commit import FIRST_BATCH, BatchId
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.samples.shop import Shop
from ingest.runtime import spark

PROJECT = Path(__file__).parents[1]
BEFORE = "2435ec3"
GONE = ("json_value", "json_shape")
# Where the modules that it imports are today.
MOVED = {
    "ingest.contract": "ingest.contract.definition",
    "ingest.stream": "ingest.decode",
    "ingest.stream.columns": "ingest.contract.columns",
    "ingest.stream.mark": "ingest.delta.batch_commit",
    "ingest.stream.payload": "ingest.decode.payload",
}
CONFS = {"spark.sql.json.enablePartialResults": "true", "spark.sql.variant.allowDuplicateKeys": "true"}
READ, PLAIN, OLD, NEW = "reading", "from_json", "column expressions", "Arrow"
ORDERS = "orders"


def before(folder: Path) -> Any:
    """The module `decode` of BEFORE; those that it needs and that are gone take their old names."""
    for name in GONE:
        setattr(sys.modules["ingest.decode"], name, _load(folder, name, f"ingest.decode.{name}"))
    return _load(folder, "decode", "decode_before")


def _load(folder: Path, name: str, own: str) -> Any:
    command = ("git", "show", f"{BEFORE}:ingest/stream/{name}.py")
    text = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for old, new in MOVED.items():
        text = text.replace(f"from {old} import", f"from {new} import")
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(own, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    sys.modules[own] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(session: SparkSession, servers: str, topic: str, ours: Contract, old: Any, rounds: int, meter: Meter) -> dict[str, list[Cost]]:
    """Reading and the decoders in turn; the first round is left out."""

    def read() -> DataFrame:
        source = session.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return source.option("includeHeaders", "true").load()

    now = datetime.now(UTC)
    old_source = old.Source("id", BatchId(1, FIRST_BATCH), now)
    decoder = old.Decoder(ours)
    schema = T.StructType([T.StructField(column.name, column.data_type) for column in ours.columns])
    ways: dict[str, Callable[[], DataFrame]] = {
        READ: read,
        PLAIN: lambda: read().select(F.from_json(F.col("value").cast("string"), schema).alias("e")).select("e.*"),
        OLD: lambda: decoder.decode(read(), old_source),
        NEW: lambda: decode(with_source(read(), {0: topic}), ours, BatchSource(("id",), 1, FIRST_BATCH, now)),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            with meter.measured() as cost:
                way().write.format("noop").mode("overwrite").save()
            print(f"{topic} round {number}: {name}: {cost.wall_s:.1f} s, {cost.processor_s:.1f} processor s", flush=True)
            costs[name].append(cost)
    return {name: each[1:] for name, each in costs.items()}


def figures(costs: dict[str, list[Cost]], records: int) -> dict[str, Any]:
    """Medians by way, and what each decoder adds to the reading."""
    found = {name: round(statistics.median(cost.processor_s for cost in each), 2) for name, each in costs.items()}
    gain = (found[OLD] - found[READ]) / (found[NEW] - found[READ])
    return {"records": records, "processor_s": found, "times": round(gain, 2), "with_reading": round(found[OLD] / found[NEW], 2)}


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/, with the command that measured."""
    lines = [
        f"# Decoders\n\n`python -m bench.decoders --rounds {result['rounds']} --json docs/benchmarks/decoders.json`\n",
        f"CPU seconds to read a topic and decode it: median of {result['rounds']} warm rounds in one Spark session on {result['cores']} "
        f"cores, commit {result['commit']}.\n*{NEW}* is the current decoder, *{OLD}* its predecessor (commit {BEFORE}). *{PLAIN}* is "
        "Spark's own function,\nwhich is [not exact](../decisions/decoding-json.md). All columns of seconds include reading from Kafka. "
        f"The ratios divide {OLD} by {NEW}.\n",
        f"| records | {READ} only | {PLAIN} | {OLD} | {NEW} | ratio without reading | ratio with reading |",
        "|---|---|---|---|---|---|---|",
    ]
    for topic, found in result["topics"].items():
        seconds = " | ".join(str(found["processor_s"][name]) for name in (READ, PLAIN, OLD, NEW))
        lines.append(f"| {found['records']:,} {topic} | {seconds} | {found['times']} | {found['with_reading']} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure and print; with --json keep the result, and the page beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    topics: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "broker") as broker:
        servers = broker.bootstrap_servers
        broker.create_topic(TOPIC, PARTITIONS)
        broker.create_topic(ORDERS, PARTITIONS)
        orders = enumerate(Shop(seed=1).orders(chosen.events))
        sent = {TOPIC: produce(servers, chosen.events)}
        sent[ORDERS] = send(servers, ORDERS, ((number % PARTITIONS, event.value, event.key) for number, event in orders))
        session = spark.start("local[*]", Path(name) / "spark.log", name="bench", memory="6g")
        for key, value in CONFS.items():
            session.conf.set(key, value)
        old, meter = before(Path(name)), Meter(broker.pid)
        (nested,) = (each for each in load_contracts(PROJECT) if each.table == ORDERS)
        for topic, ours in ((TOPIC, contract()), (ORDERS, nested)):
            topics[topic] = figures(measure(session, servers, topic, ours, old, chosen.rounds, meter), sent[topic])
        session.stop()
    result = {**about("decoders/1"), "rounds": chosen.rounds, "topics": topics}
    keep(chosen.json, result, page)


if __name__ == "__main__":
    main()
