"""How long the proofs take: `ingest status`, `verify` and `verify --against-kafka` as a user starts them, over a million records.

    .venv/bin/python -m bench.verify [--events 1000000] [--rounds 3] [--json docs/benchmarks/verify.json]

A real broker, a table that `ingest run --once` has read from it, and each verb as a process of its own, with all that it starts.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.events import COLUMNS, PARTITIONS, TOPIC, produce
from bench.result import keep
from ingest import __version__
from ingest.local.broker import Broker

# What a machine needs today to load what `status` is made of, before any line of ours: half a second is much or little against it.
YARDSTICK = "import kafka, deltalake, pydantic, typer, yaml"
VERBS = {"status": ("status",), "verify": ("verify",), "verify --against-kafka": ("verify", "--against-kafka")}


def contract() -> str:
    """The table of the benchmark's events, as a file of `tables/`."""
    columns = [f'  - {{name: {name}, type: "{kind}", nullable: {str(name != "order_id").lower()}}}' for name, kind in COLUMNS.items()]
    head = ["pipeline: bench", "table: events", f"source: {{topic: {TOPIC}, format: json}}", "event_id: [order_id]", "columns:"]
    return "\n".join([*head, *columns, "rules:", "  - {name: amount_not_negative, check: amount >= 0}", ""])


def ingest(places: dict[str, str], *words: str) -> float:
    """Run a verb to its end; its seconds. Raises CalledProcessError unless it exits 0."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "ingest", *words], env={**os.environ, **places}, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def load_libraries() -> float:
    """Run Python for the libraries alone; its seconds."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", YARDSTICK], check=True)
    return time.monotonic() - began


def measure(events: int, rounds: int) -> dict[str, Any]:
    """Fill the table, then time each verb and the yardstick in turn; the first round of each counts like the others."""
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "broker") as broker:
        folder = Path(name)
        (folder / "tables").mkdir()
        (folder / "tables" / "events.yml").write_text(contract(), encoding="utf-8")
        broker.create_topic(TOPIC, PARTITIONS)
        records = produce(broker.bootstrap_servers, events)
        places = {
            "INGEST_PROJECT": str(folder),
            "INGEST_LAKE": str(folder / "lake"),
            "INGEST_CHECKPOINTS": str(folder / "checkpoints"),
            "INGEST_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        }
        ingest(places, "run", "--once")
        libraries: list[float] = []
        seconds: dict[str, list[float]] = {verb: [] for verb in VERBS}
        for _ in range(rounds):
            for verb, words in VERBS.items():
                libraries.append(load_libraries())
                seconds[verb].append(ingest(places, *words))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "schema": "oncelake/bench-verify/2",
        "version": __version__,
        "commit": commit,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "records": records,
        "load_before_and_after": [round(before, 1), round(os.getloadavg()[0], 1)],
        "libraries_median_s": round(statistics.median(libraries), 2),
        "verbs": [
            {
                "verb": verb,
                "median_s": round(statistics.median(each), 2),
                "min_s": round(min(each), 2),
                "max_s": round(max(each), 2),
                "yardsticks": round(statistics.median(each) / statistics.median(libraries), 1),
            }
            for verb, each in seconds.items()
        ],
    }


def markdown(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/."""
    lines = [
        "# The proofs",
        "",
        "`make bench` runs `bench/verify.py`: each verb as a process of its own, with all that it starts.",
        "",
        f"{result['records']:,} records, {result['cores']} cores, commit {result['commit']}. The yardstick is a Python that does nothing",
        f"but `{YARDSTICK}`, run between the verbs: {result['libraries_median_s']} s.",
        "",
        "| verb | s (median) | min–max | yardsticks |",
        "|---|---|---|---|",
        *(
            f"| `ingest {row['verb']}` | {row['median_s']} | {row['min_s']}–{row['max_s']} | {row['yardsticks']} |"
            for row in result["verbs"]
        ),
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure and print; with --json keep the result, and the page beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    result = measure(chosen.events, chosen.rounds)
    print(markdown(result))
    keep(chosen.json, result, markdown(result))


if __name__ == "__main__":
    main()
