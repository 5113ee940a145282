"""How long `ingest check` takes: a suite of ten over 2 million rows, and what of it is Spark and what GX. Prints JSON.

    python -m bench.quality [--rows 2000000] [--rounds 3] [--master local[2]] [--persist]

The table is made by Spark in the shape of orders (not through Kafka), and validated by the same code as `ingest check`. Spark's share is
the time in which at least one of its jobs ran; the rest is Python: GX's graph of metrics, its pages, Delta's log. The first round is cold
(JIT, GX's import). `new` are rounds after another 50,000 rows: what an incremental check looks at.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest import spark
from ingest.contract import load_contracts
from ingest.quality import gx
from ingest.quality import pages as data_docs
from ingest.quality.check import POSITION, _Work
from ingest.quality.suite import Suite, load_suites

PROJECT = Path(__file__).parents[1]
TEN = 10
NEW_ROWS = 50_000


def orders(session: SparkSession, start: int, rows: int) -> DataFrame:
    """Rows of the columns that the suite of orders looks at."""
    number = F.col("id")

    def one_of(values: tuple[str, ...], salt: int) -> Any:
        return F.element_at(F.array(*map(F.lit, values)), (F.pmod(F.hash(number, F.lit(salt)), F.lit(len(values))) + 1).cast("int"))

    def hexed(column: Any, width: int) -> Any:
        return F.lpad(F.lower(F.hex(column)), width, "0")

    high = (number / 65_536).cast("long")
    parts = (hexed(high, 8), hexed(number % 65_536, 4), F.concat(F.lit("7"), hexed(number % 4096, 3)))
    ids = F.concat_ws("-", *parts, F.concat(F.lit("8"), hexed(number % 4093, 3)), hexed(number, 12))
    ordered = F.timestamp_millis(F.lit(1_735_689_600_000) + number * 40)
    return session.range(start, start + rows).select(
        ids.alias("order_id"),
        F.format_string("C-%06d", F.pmod(F.hash(number), F.lit(65_536))).alias("customer_id"),
        one_of(("placed", "paid", "shipped", "cancelled"), 1).alias("status"),
        one_of(("web", "web", "app", "store"), 2).alias("channel"),
        one_of(("EUR", "USD", "GBP", "PLN"), 3).alias("currency"),
        (F.pmod(F.hash(number), F.lit(1_000_000)) / 100).cast("decimal(18,2)").alias("amount"),
        ordered.alias("ordered_at"),
        F.struct(F.lit("DE").alias("country")).alias("shipping_address"),
        F.current_timestamp().alias("_kafka_timestamp"),
        F.current_timestamp().alias("_ingested_at"),
        F.lit("topic").alias(POSITION[0]),
        F.lit(0).alias(POSITION[1]),
        number.alias(POSITION[2]),
    )


def spark_seconds(session: SparkSession, since_ms: float) -> float:
    """The time in which at least one job ran, since a moment of the wall clock."""
    jobs = session.sparkContext._jsc.sc().statusStore().jobsList(None)
    spans = []
    for position in range(jobs.size()):
        job = jobs.apply(position)
        begin, end = job.submissionTime(), job.completionTime()
        if begin.isDefined() and end.isDefined() and begin.get().getTime() >= since_ms:
            spans.append((begin.get().getTime(), end.get().getTime()))
    busy, reached = 0, 0
    for begin, end in sorted(spans):
        busy += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return busy / 1000


def one_round(session: SparkSession, suite: Suite, frame: DataFrame, rows: int, *, persist: bool) -> dict[str, Any]:
    """One validation of all expectations on `frame`."""
    since_ms, started = time.time() * 1000, time.monotonic()
    kept = frame.persist() if persist else frame
    found = _Work(gx.Runner("orders"), ("order_id",)).validate(list(suite.expectations)[:TEN], kept, {"ledger_rows": rows})
    if persist:
        kept.unpersist(blocking=True)
    seconds = time.monotonic() - started
    busy = spark_seconds(session, since_ms)
    failed = [expected.type for expected, raw in found if not raw["success"]]
    return {"seconds": round(seconds, 1), "spark_s": round(busy, 1), "gx_and_python_s": round(seconds - busy, 1), "failed": failed}


def pages(suite: Suite, session: SparkSession, frame: DataFrame) -> float:
    """Seconds for one Data Docs page with its index."""
    from datetime import UTC, datetime

    found = _Work(gx.Runner("orders"), ("order_id",)).validate(list(suite.expectations)[:2], frame.limit(100), {"ledger_rows": 100})
    folder = Path(tempfile.mkdtemp())
    started = time.monotonic()
    configs = [each.config for each in suite.expectations]
    data_docs.write_pages(folder, "orders", configs, [raw for _, raw in found] * 5, "run", datetime.now(UTC), {"batch_spec": {}})
    seconds = time.monotonic() - started
    shutil.rmtree(folder)
    return round(seconds, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--persist", action="store_true", help="cache the frame, as GX would by default")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    session = spark.start(options.master, folder / "spark.log")
    try:
        (suite,) = load_suites(PROJECT, load_contracts(PROJECT, ["orders"]))
        table = str(folder / "orders")
        for start, rows in ((0, options.rows), (options.rows, NEW_ROWS)):
            orders(session, start, rows).write.format("delta").mode("append").save(table)
        frame = session.read.format("delta").load(table)
        new = frame.where(F.col("_offset") >= options.rows)
        total = options.rows + NEW_ROWS
        whole = [one_round(session, suite, frame, total, persist=options.persist) for _ in range(options.rounds)]
        incremental = [one_round(session, suite, new, NEW_ROWS, persist=options.persist) for _ in range(options.rounds)]
        document = {
            "schema": "oncelake/bench-quality/1",
            "rows": total,
            "expectations": TEN,
            "master": options.master,
            "persist": options.persist,
            "whole": whole,
            "new_rows": NEW_ROWS,
            "new": incremental,
            "page_s": pages(suite, session, frame),
        }
        print(json.dumps(document, indent=2))
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
