"""What a record costs, side by side: reading alone, Delta's own sink, what people write by hand, and ours with all promises.

    .venv/bin/python -m bench.throughput [--events 2000000] [--rounds 5] [--json docs/benchmarks/throughput.json]

One broker, one topic, one Spark application. The rivals take turns, each reading the whole topic into a new table. In the first round
Java compiles as it goes; the others are warm. What counts is the median of the rounds' ratios, each of two runs near to each other.
"""

from __future__ import annotations

import argparse
import gc
import platform
import shutil
import statistics
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark

from bench.events import DUPLICATES, PARTITIONS, RECORD_BYTES, produce, send
from bench.meter import Meter
from bench.result import about, keep
from bench.rivals import MERGE, NATIVE, SAME_COLUMNS, Rival, Rivals, contract
from ingest import __version__
from ingest.batch.batch import BatchReport
from ingest.contract.definition import load_contracts
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.samples.shop import Shop
from ingest.runtime import spark

PROJECT = Path(__file__).parents[1]
ROUNDS = 5
ORDER_BYTES = 393
# What a run's speed is set against.
AGAINST = (NATIVE, SAME_COLUMNS, MERGE)
LEGEND = """\
- **read and from_json**: reads and decodes; writes nothing.
- **native Delta sink**: Delta's own streaming sink. It appends; it neither deduplicates nor quarantines.
- **native, our columns and fetches**: the same, with Oncelake's provenance columns and Kafka fetch sizes.
- **append in foreachBatch**: an append that is idempotent by txnAppId and txnVersion; no deduplication.
- **dropDuplicatesWithinWatermark**: Spark's deduplication, which forgets an id after ten minutes, into Delta's own sink.
- **MERGE in foreachBatch**: deduplicates each batch, then a MERGE on the event id, as tutorials show it.
- **oncelake**: `ingest run --once`, with deduplication, quarantine, counts and ledger.
- **oncelake, conflicts: table**: the same, and compares the payloads of duplicates with the table.
- **oncelake, by Spark**: `ingest run --once --writer spark`, with the same promises: Delta in Spark writes.
"""


def measure(rivals: Sequence[Rival], rounds: int, folder: Path, meter: Meter) -> None:
    """Let the rivals take turns; the order turns too, so that none always follows the same one."""
    for number in range(rounds):
        turn = number % len(rivals)
        for rival in (*rivals[turn:], *rivals[:turn]):
            own = folder / f"{number}-{uuid.uuid4().hex[:6]}"
            own.mkdir()
            with meter.measured() as cost:
                rival.rows = rival.run(own)
            rival.costs.append(cost)
            seconds = f"{cost.wall_s:6.1f} s, {cost.processor_s:6.1f} processor s ({cost.python_s:.1f} of them Python)"
            print(f"round {number}: {rival.name:32} {seconds}", flush=True)
            shutil.rmtree(own)
            gc.collect()


def figures(rival: Rival, rivals: Sequence[Rival], records: int, record_bytes: int = RECORD_BYTES) -> dict[str, Any]:
    """What one rival's warm rounds say."""
    warm = rival.costs[1:] or rival.costs
    found: dict[str, Any] = {
        "rival": rival.name,
        "rows": rival.rows,
        "cold_s": round(rival.costs[0].wall_s, 1),
        "wall_s": [round(each.wall_s, 2) for each in warm],
        "processor_s": [round(each.processor_s, 2) for each in warm],
        "python_s": [round(each.python_s, 2) for each in warm],
        "memory_bytes": max(each.memory for each in rival.costs),
        "processor_us_a_record": round(statistics.median(each.processor_s for each in warm) / records * 1e6, 1),
        "records_per_s": round(records / statistics.median(each.wall_s for each in warm)),
    }
    found["records_per_processor_s"] = round(1e6 / found["processor_us_a_record"])
    found["mb_per_processor_s"] = round(record_bytes / found["processor_us_a_record"], 2)
    for other in rivals:
        if other.name in AGAINST:
            pairs = list(zip(other.costs[1:] or other.costs, warm, strict=True))
            found.setdefault("speed_of", {})[other.name] = _ratios([a.wall_s / b.wall_s for a, b in pairs])
            found.setdefault("processor_time_of", {})[other.name] = _ratios([b.processor_s / a.processor_s for a, b in pairs])
    return found


def _ratios(found: list[float]) -> list[float]:
    return [round(statistics.median(found), 2), round(min(found), 2), round(max(found), 2)]


def steps(runs: Sequence[Sequence[BatchReport]]) -> dict[str, float]:
    """Wall seconds of a warm batch of ours by step, the median; batches that were not full are left out."""
    batches = [batch for run in runs[1:] or runs for batch in run]
    full = [batch for batch in batches if batch.records_read == max(each.records_read for each in batches)]
    return {step: round(statistics.median(batch.steps.get(step, 0.0) for batch in full), 2) for step in (full[0].steps if full else ())}


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/, with the command that measured: `make bench` takes the rounds that are the default."""
    rounds, there = result["rounds"], {row["rival"] for row in result["rivals"]}
    legend = "\n".join(line for line in LEGEND.splitlines() if _name(line) in there)
    if result.get("orders"):
        title, json = "# Throughput of nested orders", f'--orders --only "{result["only"]}" --json docs/benchmarks/throughput-orders.json'
        what = f"{result['records']:,} orders of the demo, of about {ORDER_BYTES} bytes (a STRUCT, an ARRAY of STRUCT and five row rules),"
    else:
        title, json = "# Throughput", "--json docs/benchmarks/throughput.json"
        what = f"{result['records']:,} records of about {RECORD_BYTES} bytes"
    lines = [
        f"{title}\n\n`python -m bench.throughput --rounds {rounds} {json}` (`make bench` runs it with {ROUNDS} rounds)\n",
        f"These pipelines move the same {what} from one topic into a new table, in turn:\n\n{legend}\n",
        f"Batches of {result['batch']:,}; {rounds} rounds, of which the first is cold and counts only in its own column; {result['cores']} "
        f"cores, Spark {result['spark']}, commit {result['commit']}.\nCPU seconds are those of the JVM and Python together, without the "
        "broker. What they mean: [cost of a batch](../decisions/cost-of-a-batch.md#compared-with-deltas-own-sink).\n",
        "| pipeline | wall, s (range) | cold, s | CPU, s | of that Python | CPU µs per record | records/s | records per CPU s | "
        "MB per CPU s | memory, GB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rivals"]:
        wall, own, python = row["wall_s"], row["processor_s"], row["python_s"]
        lines.append(
            f"| {row['rival']} | {statistics.median(wall):.1f} ({min(wall):.1f} to {max(wall):.1f}) | {row['cold_s']} | "
            f"{statistics.median(own):.1f} | {statistics.median(python):.1f} | {row['processor_us_a_record']} | {row['records_per_s']:,} | "
            f"{row['records_per_processor_s']:,} | {row['mb_per_processor_s']} | {row['memory_bytes'] / 1e9:.1f} |"
        )
    titles = {
        "speed_of": "Speed (by wall time) relative to the pipeline at the top of the column. Higher is faster",
        "processor_time_of": "CPU time relative to the pipeline at the top of the column. Lower is cheaper",
    }
    for field, title in titles.items():
        heads = list(result["rivals"][0][field])
        lines += [f"\n{title}. Median and range of the rounds.\n", f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for row in result["rivals"]:
            cells = " | ".join("{:.2f} ({:.2f} to {:.2f})".format(*row[field][head]) for head in heads)
            lines.append(f"| {row['rival']} | {cells} |")
    parts = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in result["steps_s"].items())
    return "\n".join([*lines, f"\nWall time of the steps of a full warm Oncelake batch: {parts}.\n"])


def _name(line: str) -> str:
    return line.removeprefix("- **").partition("**")[0]


def produce_orders(servers: str, number: int) -> int:
    """Send the demo's orders, 5 % of them at once again, as `produce` does."""

    def orders() -> Iterator[tuple[int, bytes, bytes | None]]:
        for at, event in enumerate(Shop(seed=1).orders(number)):
            again = int((at + 1) * DUPLICATES) > int(at * DUPLICATES)
            yield from [(at % PARTITIONS, event.value, event.key)] * (1 + again)

    return send(servers, "orders", orders())


def main() -> None:
    """Measure and print; with --json keep the result, and the page beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--batch", type=int, default=500_000)
    parser.add_argument("--orders", action="store_true", help="the demo's nested orders with their row rules, instead of flat events")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", help="rivals whose names begin with one of these, separated by commas, for profiling")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "broker") as broker:
        folder = Path(name)
        ours = load_contracts(PROJECT, ["orders"])[0] if chosen.orders else contract()
        broker.create_topic(ours.source.topic, PARTITIONS)
        records = (
            produce_orders(broker.bootstrap_servers, chosen.events) if chosen.orders else produce(broker.bootstrap_servers, chosen.events)
        )
        session = spark.start("local[*]", folder / "spark.log", name="bench", memory="6g")
        field = Rivals(session, broker.bootstrap_servers, chosen.batch, ours)
        rivals = [rival for rival in field.all if chosen.only is None or rival.name.startswith(tuple(chosen.only.split(",")))]
        measure(rivals, chosen.rounds, folder, Meter(broker.pid))
        session.stop()
    result = {
        **about("throughput/2"),
        "version": __version__,
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "records": records,
        **({"orders": True, "only": chosen.only} if chosen.orders else {}),
        "batch": chosen.batch,
        "rounds": chosen.rounds,
        "rivals": [figures(rival, rivals, records, ORDER_BYTES if chosen.orders else RECORD_BYTES) for rival in rivals],
        "steps_s": steps(field.reports),
    }
    keep(chosen.json, result, page if any(rival.name in AGAINST for rival in rivals) else str)


if __name__ == "__main__":
    main()
