"""How long a start takes when the table's log is long: `ingest run --once`, with nothing to read and with a hundred records to read.

    .venv/bin/python -m bench.start [--commits 260000] [--rounds 5] [--json docs/benchmarks/start.json]

Two tables of one contract, read by `ingest run --once` from a real broker. The log of one of them is filled up with commits that change
nothing, as OPTIMIZE leaves them, behind a checkpoint of the log; 260,000 are a batch every ten seconds for the thirty days that Delta keeps
them. Both verbs are processes of their own with all that they start; the tables take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from bench.events import PARTITIONS, TOPIC, produce
from bench.result import keep
from bench.verify import contract, ingest
from ingest.local.broker import Broker

SHORT, LONG, RECORDS = 100, 260_000, 100
IDLE, READS = "nothing to read", f"{RECORDS} records to read"
NOTHING = {"commitInfo": {"timestamp": 0, "operation": "OPTIMIZE", "operationParameters": {}, "isBlindAppend": False}}


def fill(target: Path, commits: int) -> None:
    """Let the table's log go on to so many commits, of which the last is in a checkpoint of the log."""
    table = DeltaTable(target)
    newest, log = table.version(), target / "_delta_log"
    table.create_checkpoint()
    for version in range(newest + 1, commits + 1):
        (log / f"{version:020}.json").write_text(json.dumps(NOTHING) + "\n", encoding="utf-8")
    # None of them changes anything: what the checkpoint says holds for the last as well.
    shutil.copy(log / f"{newest:020}.checkpoint.parquet", log / f"{commits:020}.checkpoint.parquet")
    told = json.loads((log / "_last_checkpoint").read_text(encoding="utf-8"))
    (log / "_last_checkpoint").write_text(json.dumps({"version": commits, "size": told["size"]}), encoding="utf-8")


def timed(places: dict[str, str]) -> tuple[float, float]:
    """Wall and processor seconds of a run."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    ingest(places, "run", "--once")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print; with --json keep the result, and the table beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=LONG)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    seconds: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "broker") as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        (Path(name) / "tables").mkdir()
        (Path(name) / "tables" / "events.yml").write_text(contract(), encoding="utf-8")
        produce(broker.bootstrap_servers, RECORDS)
        lakes: dict[int, dict[str, str]] = {}
        for commits in (SHORT, chosen.commits):
            folders = {"INGEST_LAKE": f"{name}/{commits}/lake", "INGEST_CHECKPOINTS": f"{name}/{commits}/checkpoints"}
            lakes[commits] = {**folders, "INGEST_PROJECT": name, "INGEST_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
            ingest(lakes[commits], "run", "--once")
            fill(Path(name) / f"{commits}/lake/bench/events/target", commits)
        for _ in range(chosen.rounds + 1):  # in the first the long log is walked once, to the newest batch
            produce(broker.bootstrap_servers, RECORDS)
            for commits, places in lakes.items():
                found = seconds.setdefault(str(commits), {IDLE: [], READS: []})
                found[READS].append(timed(places))
                found[IDLE].append(timed(places))
    result: dict[str, Any] = {"schema": "oncelake/bench-start/1", "cores": os.cpu_count(), "rounds": chosen.rounds, "seconds": seconds}
    print(page(result))
    keep(chosen.json, result, page(result))


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/, with the command that measured."""
    lines = [
        "# A start behind a long log\n\n`python -m bench.start --json docs/benchmarks/start.json`\n",
        f"`ingest run --once` as a user starts it, by the commits in the target's log: the median of {result['rounds']} rounds on "
        f"{result['cores']} cores, and in brackets the spread.\n",
        "| commits | start | wall, s | processor, s |\n|---|---|---|---|",
    ]
    for commits, found in result["seconds"].items():
        for what, every in found.items():
            walls, cpus = zip(*every[1:], strict=True)
            lines.append(f"| {int(commits):,} | {what} | {_median(walls)} | {_median(cpus)} |")
    return "\n".join([*lines, ""])


def _median(found: tuple[float, ...]) -> str:
    return f"{statistics.median(found):.1f} ({min(found):.1f} to {max(found):.1f})"


if __name__ == "__main__":
    main()
