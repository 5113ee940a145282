"""How fast is the transactional producer beside kafka-python's own plain idempotent one, in one run on one broker?

    .venv/bin/python -m bench.producer [--records 30000] [--rounds 5] [--json docs/benchmarks/producer.json] [--profile]

Rivals take turns and write the same records into topics of four partitions; all use the same batches, lingering and codec. The first
round warms up and does not count. Ratios are taken round by round, their median is what counts. `--profile` shows where a transactional
producer of 1,000 records a transaction spends its time.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import platform
import pstats
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from bench.events import order
from bench.result import keep
from ingest import __version__
from ingest.delivery.kafka import AtLeastOnce, ExactlyOnce, Grouped, Producer, TransactionalProducer
from ingest.delivery.kafka.mode import compression
from ingest.lab.broker.embedded_broker import Broker

PARTITIONS = 4
TARGET = 0.8
PLAIN = "kafka-python, idempotent"
OURS = "transactional, 1,000 records a transaction"

CUSTOMERS = 1_000

Records = list[tuple[bytes, bytes]]


def made(count: int) -> Records:
    """JSON events of about 226 bytes with their keys."""
    return [(b"customer-%08d" % (number % CUSTOMERS), order(number, customers=CUSTOMERS)) for number in range(count)]


def plain(servers: str, topic: str, records: Records, codec: str | None) -> float:
    """kafka-python by itself, with the options of at_least_once; seconds from the first send to the last acknowledgement."""
    producer = KafkaProducer(bootstrap_servers=servers, **AtLeastOnce().producer_options(compression_type=codec))
    producer.partitions_for(topic)
    began = time.perf_counter()
    for key, value in records:
        producer.send(topic, value, key)
    producer.flush()
    took = time.perf_counter() - began
    producer.close()
    return took


def at_least_once(servers: str, topic: str, records: Records, codec: str | None) -> float:
    """The same through `Producer`, which keeps every acknowledgement in view."""
    with Producer(AtLeastOnce(), servers, compression_type=codec) as producer:
        producer._made.partitions_for(topic)
        began = time.perf_counter()
        for key, value in records:
            producer.send(topic, value, key=key)
        producer.flush()
        return time.perf_counter() - began


def transactional(size: int) -> Callable[[str, str, Records, str | None], float]:
    """`Grouped` with transactions of `size` records."""

    def run(servers: str, topic: str, records: Records, codec: str | None) -> float:
        mode = ExactlyOnce(f"bench-{uuid.uuid4().hex}")
        with TransactionalProducer(mode, servers, compression_type=codec) as producer:
            producer.partitions(topic)
            began = time.perf_counter()
            with Grouped(producer, records=size, time_ms=60_000) as out:
                for key, value in records:
                    out.send(topic, value, key=key)
            return time.perf_counter() - began

    return run


RIVALS: dict[str, Callable[[str, str, Records, str | None], float]] = {
    PLAIN: plain,
    "at_least_once (Producer)": at_least_once,
    "transactional, 100 records a transaction": transactional(100),
    OURS: transactional(1_000),
    "transactional, 10,000 records a transaction": transactional(10_000),
}


def measure(broker: Broker, records: Records, rounds: int, codec: str | None) -> list[dict[str, Any]]:
    """One row a rival: median records/s and the median of its ratios to PLAIN in the same round."""
    seconds: dict[str, list[float]] = {name: [] for name in RIVALS}
    for number in range(rounds + 1):
        for name, run in RIVALS.items():
            topic = f"bench-{uuid.uuid4().hex[:8]}"
            broker.create_topic(topic, PARTITIONS)
            took = run(broker.bootstrap_servers, topic, records, codec)
            if number > 0:
                seconds[name].append(took)
    return [
        {
            "rival": name,
            "codec": codec or "none",
            "records_per_s": round(len(records) / statistics.median(taken)),
            "of_plain": round(statistics.median(base / each for base, each in zip(seconds[PLAIN], taken, strict=True)), 2),
            "seconds": [round(each, 3) for each in taken],
        }
        for name, taken in seconds.items()
    ]


def markdown(result: dict[str, Any]) -> str:
    """The table for docs/benchmarks/."""
    lines = [
        f"{result['records']:,} records of about 226 bytes, {result['rounds']} rounds after a warm-up, {result['cores']} cores that broker "
        f"and producer share, Python {result['python']}.\nThe last column divides by the speed of kafka-python's own idempotent producer "
        "in the same round (median).",
        "",
        "| producer | compression | records/s (median) | relative speed |",
        "|---|---|---|---|",
    ]
    lines += [f"| {row['rival']} | {row['codec']} | {row['records_per_s']:,} | {row['of_plain']} |" for row in result["rivals"]]
    return "\n".join([*lines, ""])


def profile(broker: Broker, records: Records) -> None:
    """Where the caller's thread spends its time."""
    broker.create_topic("profile", PARTITIONS)
    profiler = cProfile.Profile()
    profiler.runcall(transactional(1_000), broker.bootstrap_servers, "profile", records, compression())
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/."""
    head = f"`python -m bench.producer --rounds {result['rounds']}` compares the producers of `ingest.delivery.kafka`\n"
    head += "([tutorial](../tutorial/delivery.md)) with kafka-python's own. They take turns on one broker.\n\n"
    return f"# The transactional producer\n\n{head}{markdown(result)}"


def main() -> None:
    """Measure and print; with --json keep the result, and the table beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args()
    records = made(chosen.records)
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "broker") as broker:
        if chosen.profile:
            profile(broker, records)
            return
        rows = [row for codec in dict.fromkeys((compression(), None)) for row in measure(broker, records, chosen.rounds, codec)]
    result = {
        "schema": "oncelake/bench-producer/1",
        "version": __version__,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "records": chosen.records,
        "rounds": chosen.rounds,
        "target_of_plain": TARGET,
        "load_after": round(os.getloadavg()[0], 1),
        "rivals": rows,
    }
    keep(chosen.json, result, page)


if __name__ == "__main__":
    main()
