"""What a worker of the direct writer spends on a record, part by part, without Spark and Kafka: CPU µs a record on one core.

    .venv/bin/python -m bench.stage [--records 200000] [--rounds 5]

Once with the benchmarks' flat events, once with the demo's nested orders and their row rules. Each part is measured on its own, warm. The
least of the rounds counts.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.events import order
from bench.rivals import contract
from ingest.batch.dedup import twice
from ingest.batch.refused import Refused
from ingest.batch.staging import Stage
from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract, load_contracts
from ingest.decode.arrow_json import BatchDecoder
from ingest.decode.arrow_rule import arrow_rules
from ingest.decode.event_plan import BatchSource, event_plan
from ingest.decode.events import Events
from ingest.decode.row_hash import row_hashes
from ingest.delta.data_file import COMPRESSION
from ingest.delta.statistics import Statistics
from ingest.lab.samples.shop import Shop

AT_ONCE = 10_000  # what Spark hands to a worker at once


def batches(values: list[bytes]) -> list[pa.RecordBatch]:
    """The records as a worker gets them."""
    found = []
    for start in range(0, len(values), AT_ONCE):
        some = values[start : start + AT_ONCE]
        columns = {"__key": pa.nulls(len(some), pa.binary()), "__value": pa.array(some, pa.binary())}
        columns |= {"_source": pa.array([0] * len(some), pa.int16()), "__headers": pa.nulls(len(some), pa.string())}
        columns |= {"_partition": pa.array([0] * len(some), pa.int32())}
        columns |= {"_offset": pa.array(range(start, start + len(some)), pa.int64())}
        columns["_kafka_timestamp"] = pa.array([1_795_699_235_731_000] * len(some), pa.timestamp("us", "UTC"))
        found.append(pa.RecordBatch.from_pydict(columns))
    return found


def measure(ours: Contract, values: list[bytes], rounds: int, folder: Path) -> dict[str, float]:
    """CPU µs a record by part."""
    given, ids = batches(values), event_id_columns(ours)
    source = BatchSource(("topic-id",), 1, 2, datetime(2026, 1, 1, tzinfo=UTC))
    plan = event_plan(ours, source, arrow_rules(ours))
    assert plan.json is not None, "both are JSON"
    bounded = (*ids, "_partition", "_offset", "_kafka_timestamp")
    refused = Refused(pa.schema([]), str(folder), "part-", ids, (), (), ())
    stage = Stage(plan, str(folder), "part-", ids, bounded, False, refused)
    typed = BatchDecoder(plan.json)._typed
    texts = [value for batch in given for value in batch.column("__value").to_pylist()]
    rows = pa.Table.from_batches(list(Events(plan).decode(given))).select(plan.schema.names).cast(plan.schema)
    hashes = row_hashes(rows[name].combine_chunks() for name in ids)
    parts: dict[str, Callable[[], Any]] = {
        "msgspec alone": lambda: [typed(text) for text in texts],
        "decode": lambda: list(BatchDecoder(plan.json).decode(given)),  # type: ignore[arg-type]
        "decode, provenance": lambda: list(Events(replace(plan, rules=())).decode(given)),
        "decode, provenance, rules": lambda: list(Events(plan).decode(given)),
        "hashes of event ids": lambda: row_hashes(rows[name].combine_chunks() for name in ids),
        "ids that occur twice": lambda: twice(hashes),
        "statistics": lambda: Statistics(bounded).add(rows),
        "Parquet": lambda: pq.write_table(rows, folder / "x.parquet", compression=COMPRESSION, store_schema=False),
        "all of a task": lambda: list(stage.rows(iter(given))),
    }
    found = {}
    for name, part in parts.items():
        spent = []
        for _ in range(rounds + 1):
            began = time.process_time()
            part()
            spent.append(time.process_time() - began)
        found[name] = round(min(spent[1:]) / len(values) * 1e6, 2)
        shutil.rmtree(folder)
        folder.mkdir()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    events = [order(number, customers=100_000) for number in range(chosen.records)]
    orders = [each.value for each in Shop(seed=1).orders(chosen.records) if each.value is not None]
    with tempfile.TemporaryDirectory() as name:
        flat = measure(contract(), events, chosen.rounds, Path(name))
    with tempfile.TemporaryDirectory() as name:
        nested = measure(load_contracts(Path(__file__).parents[1], ["orders"])[0], orders, chosen.rounds, Path(name))
    print("| CPU µs a record | flat events | nested orders |\n|---|---|---|")
    for part, cost in flat.items():
        print(f"| {part} | {cost:.2f} | {nested[part]:.2f} |")


if __name__ == "__main__":
    main()
