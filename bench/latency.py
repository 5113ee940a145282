"""How long a record takes from its producer's commit to the target's: `ingest run` as users start it, at a steady rate.

    .venv/bin/python -m bench.latency [--rate 5000] [--minutes 10] [--json docs/benchmarks/latency.json]

One producer sends a transaction every tenth of a second; first with event ids that rise with time, then into another table with random
ones. A record counts from the moment in which its transaction's commit returned, and
until the time of the file in the table's log that says it is there. The first minute is left out: Java compiles as it goes. The run merges
small files beside its batches, as it does by default. Afterwards the same question in SQL is put to the table as it is and to a copy that
was compacted as a whole.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Message, Producer
from deltalake import DeltaTable

from bench.events import PARTITIONS, TOPIC, order
from bench.result import about, keep
from bench.verify import contract
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import At, DataFusion
from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime.places import Places

TRANSACTION_S = 0.1
WARM_UP_MIN = 1
ENDS_WITHIN_S = 120
WATCH_EVERY_S = 10
QUESTION = "SELECT status, count(*), sum(amount), max(ordered_at) FROM {t} GROUP BY status"
QUESTIONS = 7
ROW = "{p50_s} | {p95_s} | {p99_s} | {max_s} | {batches} | {processor_s} |"
SHOWN = ("p50_s", "p95_s", "p99_s", "max_s", "batches", "processor_s")


@dataclass
class Feed:
    """A producer of transactions; `sent` has one line a transaction and partition: when its commit returned, partition, end, records."""

    servers: str
    random_ids: bool = False
    sent: list[tuple[float, int, int, int]] = field(default_factory=list)
    number: int = 0

    def run(self, rate: int, seconds: float) -> None:
        """Send so many records a second for so long."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": "latency", "linger.ms": 5})
        producer.init_transactions()
        began = time.time()
        while (due := time.time() - began) < seconds:
            self._transaction(producer, round(rate * (due + TRANSACTION_S)) - self.number)
            time.sleep(max(0.0, TRANSACTION_S - (time.time() - began - due)))

    def _transaction(self, producer: Producer, records: int) -> None:
        ends: dict[int, list[int]] = {}

        def delivered(_: object, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None, "it was delivered"
            ends.setdefault(partition, []).append(offset)

        producer.begin_transaction()
        for _ in range(records):
            self.number += 1
            event = order(self.number, customers=100_000, order_id=str(uuid.uuid4()) if self.random_ids else None)
            producer.produce(TOPIC, event, partition=self.number % PARTITIONS, on_delivery=delivered)
        producer.commit_transaction()
        now = time.time()
        self.sent += [(now, partition, max(offsets) + 1, len(offsets)) for partition, offsets in ends.items()]


class Watch(threading.Thread):
    """Looks every ten seconds what a process and all below it hold in memory, and a folder on the disk: `held` has bytes of both."""

    def __init__(self, pid: int, scratch: Path) -> None:
        super().__init__(daemon=True)
        self._pid, self._scratch, self._done = pid, scratch, threading.Event()
        self.held: list[tuple[int, int]] = []

    def run(self) -> None:
        """Until `stop`."""
        while not self._done.wait(WATCH_EVERY_S):
            with suppress(psutil.NoSuchProcess, FileNotFoundError):
                process = psutil.Process(self._pid)
                memory = sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))
                self.held.append((memory, sum(each.stat().st_size for each in self._scratch.rglob("*") if each.is_file())))

    def stop(self) -> dict[str, list[int]]:
        """Median megabytes of memory and scratch disk, by third of the time."""
        self._done.set()
        self.join()
        size = len(self.held) // 3
        thirds = [self.held[number * size : (number + 1) * size] for number in range(3)]
        return {
            name: [round(statistics.median(each[which] for each in third) / 1e6) for third in thirds]
            for which, name in enumerate(("memory_mb", "scratch_mb"))
        }


def visible(log: DeltaLog, path: Path) -> list[tuple[float, Commit]]:
    """The batches of the target with the time of each commit, the first one first."""
    batches = [commit for commit in log.newest_first() if commit.batch_commit is not None and commit.batch_commit.kind == "batch"]
    return [((path / "_delta_log" / f"{each.version:020}.json").stat().st_mtime, each) for each in reversed(batches)]


def delays(sent: list[tuple[float, int, int, int]], batches: list[tuple[float, Commit]]) -> np.ndarray[Any, Any]:
    """One line a transaction and partition: when it was committed, the seconds until it was in the table, its records."""
    times = np.array([at for at, _ in batches])
    ends = {
        p: np.array([commit.batch_commit.ends.get((0, p), 0) for _, commit in batches if commit.batch_commit is not None])
        for p in range(PARTITIONS)
    }
    return np.array([(at, times[np.searchsorted(ends[p], end)] - at, records) for at, p, end, records in sent])


def quantile(found: np.ndarray[Any, Any], share: float) -> float:
    """The delay below which this share of the records lies."""
    ordered = found[np.argsort(found[:, 1])]
    reached = np.cumsum(ordered[:, 2])
    return round(float(ordered[np.searchsorted(reached, share * reached[-1]), 1]), 2)


def asked(path: str) -> float:
    """Processor seconds of the question, the median of several."""
    found = []
    for _ in range(QUESTIONS):
        began = time.process_time()
        DataFusion().ask(QUESTION, t=At(path))
        found.append(time.process_time() - began)
    return statistics.median(found)


def measure(rate: int, minutes: int, folder: Path, *, random_ids: bool) -> dict[str, Any]:
    """Feed, wait until all is in the table, and look."""
    (folder / "tables").mkdir(parents=True)
    (folder / "tables" / "events.yml").write_text(contract(), encoding="utf-8")
    places = Places(str(folder / "lake"), str(folder / "checkpoints"), "bench", "events")
    with Broker(folder / "broker") as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        feed = Feed(broker.bootstrap_servers, random_ids)
        words = ["--project", str(folder), "--lake", places.lake, "--checkpoints", str(folder / "checkpoints")]
        words += ["--bootstrap-servers", broker.bootstrap_servers]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.Popen([sys.executable, "-m", "ingest", "run", *words], stdout=subprocess.DEVNULL)
        try:
            watch = Watch(run.pid, folder / "lake" / "logs" / "tmp")
            watch.start()
            feed.run(rate, 60 * (minutes + WARM_UP_MIN))
            log, target = Logs.of(places).target, Path(places.target)
            deadline = time.monotonic() + ENDS_WITHIN_S
            while not _reached(feed, visible(log, target)[-1][1]):
                if time.monotonic() > deadline:
                    raise SystemExit(f"the run has not read everything within {ENDS_WITHIN_S} s")
                time.sleep(0.5)
            held = watch.stop()
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(ENDS_WITHIN_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    batches = visible(log, target)
    cost = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = delays(feed.sent, batches)
    found = found[found[:, 0] >= found[0, 0] + 60 * WARM_UP_MIN]
    return {"records": feed.number, **_figures(found, minutes, batches, cost), **held, **_merged(log, target), **_files(target)}


def _reached(feed: Feed, newest: Commit) -> bool:
    ends = {partition: end for _, partition, end, _ in feed.sent}
    return newest.batch_commit is not None and all(
        newest.batch_commit.ends.get((0, partition), 0) >= end for partition, end in ends.items()
    )


def _figures(found: np.ndarray[Any, Any], minutes: int, batches: list[tuple[float, Commit]], cost: float) -> dict[str, Any]:
    minute = ((found[:, 0] - found[0, 0]) // 60).astype(int)
    each = [found[minute == number] for number in range(minutes)]
    return {
        "p50_s": quantile(found, 0.5),
        "p95_s": quantile(found, 0.95),
        "p99_s": quantile(found, 0.99),
        "max_s": round(float(found[:, 1].max()), 2),
        "by_minute": [[quantile(part, 0.5), quantile(part, 0.99)] for part in each],
        "batches": len(batches),
        "processor_s": round(cost, 1),
    }


def _merged(log: DeltaLog, target: Path) -> dict[str, Any]:
    """What the run's own compaction has done: its commits, and how often each byte of the table was written by it."""
    merges = [commit for commit in log.newest_first() if commit.operation == "OPTIMIZE"]
    written = sum(int(commit.metrics["numAddedBytes"]) for commit in merges)
    there = sum(DeltaTable(target).get_add_actions(flatten=True).column("size_bytes").to_pylist())
    return {"compactions": len(merges), "rewritten": round(written / there, 2)}


def _files(target: Path) -> dict[str, Any]:
    table, copy = DeltaTable(target), target.with_name("compacted")
    shutil.copytree(target, copy)
    DeltaTable(copy).optimize.compact()
    plain, compacted = asked(str(target)), asked(str(copy))
    return {
        "files": len(table.file_uris()),
        "files_compacted": len(DeltaTable(copy).file_uris()),
        "log_entries": sum(1 for _ in (target / "_delta_log").iterdir()),
        "question_processor_s": round(plain, 3),
        "question_compacted_processor_s": round(compacted, 3),
    }


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/, with the command that measured."""
    by_minute = " · ".join(f"{half} / {most}" for half, most in result["by_minute"])
    ratio = result["question_processor_s"] / result["question_compacted_processor_s"]
    merged = "The run merged small files {compactions} times, and so wrote each byte {rewritten} times again.\n"
    merged = merged.format(**result) if "compactions" in result else ""  # results of before it did so
    return "\n".join(
        [
            "# Latency\n",
            f"`python -m bench.latency --rate {result['rate']} --minutes {result['minutes']} --json docs/benchmarks/latency.json`\n",
            "Latency of a record: from the return of its producer's commit to the commit in the target's log. The producer sends "
            f"{result['rate']:,} records\nof about 226 bytes per second, in ten transactions per second, for {result['minutes']} minutes "
            f"after a minute of warm-up. {result['cores']} cores, which broker and\nproducer share; commit {result['commit']}.\n",
            "| event ids | p50, s | p95, s | p99, s | max, s | batches | CPU s of the run |\n|---|---|---|---|---|---|---|",
            *(
                f"| {name} | {ROW.format(**each)}"
                for name, each in (("rising", result), ("random", result.get("random")))
                if each is not None
            ),
            f"\nWith rising ids, p50 / p99 of each minute, in seconds:\n{by_minute}.\n",
            "Medians of the run's three thirds: {}, {} and {} MB of memory".format(*result["memory_mb"])
            + ", and {}, {} and {} MB of disk for Spark's blocks.\n".format(*result["scratch_mb"]),
            f"{merged}After the run, the table has {result['files']} files, and its log folder {result['log_entries']}. "
            "This query reads the whole "
            f"table:\n`{QUESTION.replace('{t}', 't')}`.\nIt takes {result['question_processor_s']} CPU seconds. On a copy compacted to "
            f"{result['files_compacted']} files it takes {result['question_compacted_processor_s']}: small files make it {ratio:.1f} "
            "times as expensive.\n\nWhat limits latency: [cost of a batch](../decisions/cost-of-a-batch.md#latency).\n",
        ]
    )


def main() -> None:
    """Measure and print; with --json keep the result, and the page beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rising, random = (measure(chosen.rate, chosen.minutes, Path(name, f"{each}"), random_ids=each) for each in (False, True))
    result = {
        **about("latency/1"),
        "rate": chosen.rate,
        "minutes": chosen.minutes,
        **rising,
        "random": {each: random[each] for each in SHOWN},
    }
    keep(chosen.json, result, page)


if __name__ == "__main__":
    main()
