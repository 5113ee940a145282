"""How long the proofs take: `ingest status`, `verify` and `verify --against-kafka` as a user starts them, over a million records.

    .venv/bin/python -m bench.verify [--events 1000000] [--rounds 3] [--bulk 100000000] [--json docs/benchmarks/verify.json]

A real broker, a table that `ingest run --once` has read from it, and each verb as a process of its own, with all that it starts. Then
`verify` over a table of --bulk rows with random UUIDs as event ids, written by deltalake in one batch: 4 GB on the disk for 100 million.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bench.events import COLUMNS, PARTITIONS, TOPIC, produce
from bench.result import about, keep
from ingest import __version__
from ingest.delta.batch_commit import FIRST_BATCH, Batch, BatchCommit, BatchId, Snapshot, Snapshots
from ingest.delta.contract_change import EVENT_ID_PROPERTY
from ingest.delta.posting import Posting, by_key
from ingest.delta.row_sums import sums_of
from ingest.delta.stored_rows import TARGET
from ingest.delta.table_definitions import LEDGER_FIELDS
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime.places import Places

# What a machine needs today to load what `status` is made of, before any line of ours: half a second is much or little against it.
YARDSTICK = "import kafka, deltalake, pydantic, typer, yaml"
BULK = 100_000_000
AT_ONCE = 1_000_000
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


def uuids(random: np.random.Generator, rows: int) -> pa.Array:
    """Random UUIDs as text."""
    raw = random.integers(0, 256, (rows, 16), dtype=np.uint8)
    digits, text = np.frombuffer(b"0123456789abcdef", np.uint8), np.full((rows, 36), ord("-"), np.uint8)
    where = [at for start, end in ((0, 8), (9, 13), (14, 18), (19, 23), (24, 36)) for at in range(start, end)]
    text[:, where] = np.stack((digits[raw >> 4], digits[raw & 15]), axis=2).reshape(rows, 32)
    ends = np.arange(0, (rows + 1) * 36, 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text)])


def fill(lake: Path, rows: int) -> None:
    """A target with so many rows, put there by one batch of four partitions, an empty quarantine and an empty ledger."""
    places = Places(str(lake), str(lake), "bench", "events")
    each = rows // PARTITIONS
    nowhere, topic, id = Snapshot("", 0, ""), TopicId(TOPIC, "id"), BatchId(1, FIRST_BATCH)

    def batch(partition: int, first: int) -> pa.RecordBatch:
        size = min(AT_ONCE, each - first)
        whole = {"_source": np.zeros(size, np.int16), "_partition": np.full(size, partition, np.int32)}
        whole |= {"_offset": np.arange(first, first + size), "_epoch": np.full(size, id.epoch, np.int32)}
        columns = {name: pa.array(column) for name, column in (whole | {"_batch": np.full(size, id.number, np.int64)}).items()}
        return pa.record_batch({"order_id": uuids(np.random.default_rng([partition, first]), size)} | columns)

    def batches() -> Iterator[pa.RecordBatch]:
        return (batch(partition, first) for first in range(0, each, AT_ONCE) for partition in range(PARTITIONS))

    sums = by_key(sums_of(found.select([*TARGET.position, "order_id"]) for found in batches()))
    postings = tuple(Posting(key, "batch", OffsetRange(key.partition, 0, each), each, held) for key, held in sorted(sums.items()))
    batch_commit = BatchCommit(Batch(), "bench", "events", id, "bench", Snapshots(nowhere, nowhere), "", (topic,), postings)
    properties = CommitProperties(
        {"userMetadata": batch_commit.to_json()}, app_transactions=[Transaction(batch_commit.app_id, id.txn_version)]
    )
    reader = pa.RecordBatchReader.from_batches(batch(0, 0).schema, batches())
    write_deltalake(places.target, reader, commit_properties=properties)
    log = Path(places.target) / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    next(each["metaData"] for each in actions if "metaData" in each)["configuration"] = {EVENT_ID_PROPERTY: '["order_id"]'}
    log.write_text("".join(json.dumps(each) + "\n" for each in actions), encoding="utf-8")  # deltalake sets no property of ours
    text, number = pa.string(), pa.int64()
    names = {"topic_id": text, "source": pa.int16(), "partition": pa.int32(), "offset": number, "state": text}
    write_deltalake(places.quarantine, pa.schema([*(names | {"epoch": pa.int32(), "batch": number}).items()]).empty_table())
    write_deltalake(places.ledger, to_arrow_schema(StructType(list(LEDGER_FIELDS)), timezone="UTC").empty_table())


def bulk(rows: int) -> dict[str, Any]:
    """`ingest verify` over so many rows: seconds, processor seconds, and the most memory that it had."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tables").mkdir()
        (folder / "tables" / "events.yml").write_text(contract(), encoding="utf-8")
        fill(folder / "lake", rows)
        words = [
            sys.executable,
            "-m",
            "ingest",
            "verify",
            "--project",
            name,
            "--lake",
            f"{name}/lake",
            "--checkpoints",
            f"{name}/checkpoints",
        ]
        began = time.monotonic()
        process = subprocess.Popen(words)
        _, status, used = os.wait4(process.pid, 0)
        if status != 0:
            raise subprocess.CalledProcessError(status, words)
    seconds = {"s": time.monotonic() - began, "processor_s": used.ru_utime + used.ru_stime, "memory_gb": used.ru_maxrss / 2**20}
    return {"rows": rows} | {figure: round(number, 2) for figure, number in seconds.items()}


def load_libraries() -> float:
    """Run Python for the libraries alone; its seconds."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", YARDSTICK], check=True)
    return time.monotonic() - began


def measure(events: int, rounds: int, many: int) -> dict[str, Any]:
    """Fill the table, then time each verb and the yardstick in turn; the first round of each counts like the others. Then `many` rows."""
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
    return {
        **about("verify/3"),
        "version": __version__,
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
        "bulk": bulk(many),
    }


def markdown(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/."""
    lines = [
        "# Verify",
        "",
        "`python -m bench.verify --json docs/benchmarks/verify.json` times each command as a process of its own, from start to exit.",
        "",
        f"{result['records']:,} records, {result['cores']} cores, commit {result['commit']}. The last column compares with the time that",
        f"Python takes for `{YARDSTICK}` alone: {result['libraries_median_s']} s.",
        "",
        "| command | s (median) | min–max | multiple of the imports |",
        "|---|---|---|---|",
        *(
            f"| `ingest {row['verb']}` | {row['median_s']} | {row['min_s']}–{row['max_s']} | {row['yardsticks']} |"
            for row in result["verbs"]
        ),
    ]
    many = result.get("bulk")  # results of before it was measured have none
    if many is not None:
        lines += [
            "",
            f"On a table of {many['rows']:,} rows with random UUIDs as event ids, `ingest verify` takes {many['s']} s,",
            f"{many['processor_s']} CPU seconds and at most {many['memory_gb']} GB of memory. It counts the rows, and checks that event",
            "ids and positions are unique.",
        ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure and print; with --json keep the result, and the page beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bulk", type=int, default=BULK)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    result = measure(chosen.events, chosen.rounds, chosen.bulk)
    keep(chosen.json, result, markdown)


if __name__ == "__main__":
    main()
