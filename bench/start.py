"""How long a start takes: `ingest run --once` for the first time, and where the table's log is short or long.

    .venv/bin/python -m bench.start [--commits 260000] [--rounds 5] [--json docs/benchmarks/start.json]

First starts have a lake of their own each, and a topic that is empty or holds 50,000 records. Then two tables of one contract, with
nothing to read and with a hundred records to read. The log of one of them is filled up with commits that change
nothing, as OPTIMIZE leaves them, behind a checkpoint of the log; 260,000 are a batch every ten seconds for the thirty days that Delta keeps
them. Each run is a process of its own with all that it starts; they take turns.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from bench.events import PARTITIONS, TOPIC, produce
from bench.result import about, keep
from bench.verify import contract, ingest
from ingest.lab.broker.embedded_broker import Broker

SHORT, LONG, RECORDS, FIRST = 100, 260_000, 100, 50_000
IDLE, READS = "nothing to read", f"{RECORDS} records to read"
HELP = "`ingest --help`"
ROUNDS = 5
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


def timed(places: dict[str, str], *words: str) -> tuple[float, float]:
    """Wall and processor seconds of a verb."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    ingest(places, *words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_starts(rounds: int, folder: Path) -> dict[str, list[tuple[float, float]]]:
    """`run --once` with a lake that is new each time, and the help text."""
    found: dict[str, list[tuple[float, float]]] = {}
    with Broker(folder / "broker") as broker:
        project(folder)
        broker.create_topic(TOPIC, PARTITIONS)
        for records in (0, FIRST):
            produce(broker.bootstrap_servers, records)
            for number in range(rounds + 1):
                places = {
                    "INGEST_LAKE": f"{folder}/{records}-{number}/lake",
                    "INGEST_CHECKPOINTS": f"{folder}/{records}-{number}/checkpoints",
                }
                places |= {"INGEST_PROJECT": str(folder), "INGEST_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
                found.setdefault(f"first start, {records:,} events", []).append(timed(places, "run", "--once"))
    found[HELP] = [timed({}, "--help") for _ in range(rounds + 1)]
    return found


def project(folder: Path) -> None:
    """A project folder with the benchmark's table."""
    (folder / "tables").mkdir(parents=True)
    (folder / "tables" / "events.yml").write_text(contract(), encoding="utf-8")


def behind_logs(commits: int, rounds: int, folder: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """`run --once` of tables whose logs have 100 and so many commits."""
    seconds: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with Broker(folder / "broker") as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        project(folder)
        produce(broker.bootstrap_servers, RECORDS)
        lakes: dict[int, dict[str, str]] = {}
        for each in (SHORT, commits):
            folders = {"INGEST_LAKE": f"{folder}/{each}/lake", "INGEST_CHECKPOINTS": f"{folder}/{each}/checkpoints"}
            lakes[each] = {**folders, "INGEST_PROJECT": str(folder), "INGEST_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
            ingest(lakes[each], "run", "--once")
            fill(folder / f"{each}/lake/bench/events/target", each)
        for _ in range(rounds + 1):  # in the first the long log is walked once, to the newest batch
            produce(broker.bootstrap_servers, RECORDS)
            for each, places in lakes.items():
                found = seconds.setdefault(str(each), {IDLE: [], READS: []})
                found[READS].append(timed(places, "run", "--once"))
                found[IDLE].append(timed(places, "run", "--once"))
    return seconds


def main() -> None:
    """Measure and print; with --json keep the result, and the table beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=LONG)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        first = first_starts(chosen.rounds, Path(name) / "first")
        seconds = behind_logs(chosen.commits, chosen.rounds, Path(name) / "later")
    result = {**about("start/2"), "rounds": chosen.rounds, "first": first, "seconds": seconds}
    keep(chosen.json, result, page)


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/, with the command that measured."""
    lines = [
        f"# Starts\n\n`python -m bench.start --rounds {result['rounds']} --json docs/benchmarks/start.json`\n",
        f"Time of the whole command `ingest run --once`, from its start to its exit: median and range of {result['rounds']} rounds on "
        f"{result['cores']} cores, commit {result['commit']}.\nA first start also creates the tables; 5 % of its events are sent twice. "
        "The last four rows are later starts, by the number of commits\nin the target's log. Where the time goes: [the cost of a start]"
        "(../decisions/cost-of-a-batch.md#the-cost-of-a-start).\n",
        "| commits | start | wall, s | CPU, s |\n|---|---|---|---|",
    ]
    for commits, found in ({"": result["first"]} | result["seconds"]).items():
        for what, every in found.items():
            walls, cpus = zip(*every[1:], strict=True)
            lines.append(f"| {f'{int(commits):,}' if commits else '–'} | {what} | {_median(walls)} | {_median(cpus)} |")
    return "\n".join([*lines, ""])


def _median(found: tuple[float, ...]) -> str:
    return f"{statistics.median(found):.1f} ({min(found):.1f} to {max(found):.1f})"


if __name__ == "__main__":
    main()
