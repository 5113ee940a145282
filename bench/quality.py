"""How long `ingest check` takes: a suite of ten over 2 million rows, and what of it is Spark and what GX.

    python -m bench.quality [--rows 2000000] [--rounds 4] [--master local[2]] [--persist] [--json docs/benchmarks/quality.json]

The table is made by Spark in the shape of orders (not through Kafka), and validated by the same code as `ingest check`. Spark's share is
the time in which at least one of its jobs ran; the rest is Python: GX's graph of metrics, its pages, Delta's log. The first round is cold
(JIT, GX's import). Then come rounds as a check makes them after another 50,000 rows: unique ids, row count and freshness of all rows, the
rest of the new ones; and rounds as a run that goes on makes them, of the new rows alone. Last, `ingest suggest` on the same table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.result import keep
from ingest import __version__
from ingest.contract.definition import load_contracts
from ingest.quality import gx
from ingest.quality import pages as data_docs
from ingest.quality.suggest import suggest_suite
from ingest.quality.suite import Expected, Suite, load_suites
from ingest.quality.validation import POSITION, _Work
from ingest.runtime import spark
from ingest.runtime.places import Places

PROJECT = Path(__file__).parents[1]
TEN = 10
NEW_ROWS = 50_000
ROUNDS = 4
# What is validated on which rows, in the order in which `check` does it.
Parts = Sequence[tuple[Sequence[Expected], DataFrame]]


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


def one_round(session: SparkSession, parts: Parts, rows: int, *, persist: bool) -> dict[str, Any]:
    """One validation run."""
    since_ms, started = time.time() * 1000, time.monotonic()
    work = _Work(gx.Runner("orders"), ("order_id",))
    failed = []
    for chosen, frame in parts:
        kept = frame.persist() if persist else frame
        failed += [expected.type for expected, raw in work.validate(chosen, kept, {"ledger_rows": rows}) if not raw["success"]]
        if persist:
            kept.unpersist(blocking=True)
    seconds = time.monotonic() - started
    busy = spark_seconds(session, since_ms)
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


def timed_suggest(session: SparkSession, suite: Suite, places: Places) -> float:
    """Seconds for a first suite, without the start of Spark."""
    started = time.monotonic()
    suggest_suite(session, suite.contract, places)
    return round(time.monotonic() - started, 1)


def markdown(result: dict[str, Any]) -> str:
    """The table for docs/benchmarks/."""

    def line(name: str, rounds: list[dict[str, Any]]) -> str:
        spans = [sorted(each[key] for each in rounds) for key in ("seconds", "spark_s", "gx_and_python_s")]
        return f"| {name} | {' | '.join(str(a) if a == b else f'{a}–{b}' for a, *_, b in ([*span, span[-1]] for span in spans))} |"

    rows, new = f"{result['rows']:,}", f"{result['new_rows']:,}"
    expectations = result["expectations"]
    lines = [
        f"{rows} rows, {expectations} expectations, Spark {result['master']}, Great Expectations (GX) {result['great_expectations']}, load "
        f"average {result['load_before_and_after'][0]} before\nand {result['load_before_and_after'][1]} after. The first round is cold; "
        "the others are warm.",
        "",
        "| validation run | seconds in all | in Spark jobs | in GX and Python |",
        "|---|---|---|---|",
        line("all rows, cold", result["whole"][:1]),
        line("all rows, warm", result["whole"][1:]),
        line(f"after {new} new rows: {result['of_all_rows']} expectations on all rows, the others on the new rows", result["new"][1:]),
        line(f"during `ingest run --check`: only the {expectations - result['of_all_rows']} on the new rows", result["at_work"][1:]),
        "",
        f"Writing a Data Docs page takes {result['page_s']} s; `ingest suggest` takes {result['suggest_s']} s on this table. These times "
        "leave out the start of\nPython, GX and Spark, which a command adds.",
    ]
    return "\n".join([*lines, ""])


def page(result: dict[str, Any]) -> str:
    """The page for docs/benchmarks/."""
    head = f"`python -m bench.quality --rounds {len(result['whole'])}{' --persist' * result['persist']}` measures the validation in "
    head += "[`ingest check`](../how-to/quality.md)."
    return f"# Quality checks\n\n{head}\n\n{markdown(result)}"


def main() -> None:
    """Measure and print; with --json keep the result, and the table beside it as .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--persist", action="store_true", help="cache the frame, as GX would by default")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp())
    session = spark.start(options.master, folder / "spark.log")
    try:
        (suite,) = load_suites(PROJECT, load_contracts(PROJECT, ["orders"]))
        places = Places(str(folder / "lake"), str(folder / "checkpoints"), suite.contract.pipeline, suite.contract.table)
        for start, rows in ((0, options.rows), (options.rows, NEW_ROWS)):
            orders(session, start, rows).write.format("delta").mode("append").save(places.target)
        frame = session.read.format("delta").load(places.target)
        new = frame.where(F.col("_offset") >= options.rows)
        total = options.rows + NEW_ROWS
        ten = suite.expectations[:TEN]
        of_all, of_new = [each for each in ten if each.whole], [each for each in ten if not each.whole]

        def rounds(*parts: tuple[Sequence[Expected], DataFrame]) -> list[dict[str, Any]]:
            return [one_round(session, parts, total, persist=options.persist) for _ in range(options.rounds)]

        result = {
            "schema": "oncelake/bench-quality/2",
            "version": __version__,
            "great_expectations": version("great-expectations"),
            "rows": total,
            "expectations": TEN,
            "of_all_rows": len(of_all),
            "master": options.master,
            "persist": options.persist,
            "whole": rounds((ten, frame)),
            "new_rows": NEW_ROWS,
            "new": rounds((of_all, frame), (of_new, new)),
            "at_work": rounds((of_new, new)),
            "page_s": pages(suite, session, frame),
            "suggest_s": timed_suggest(session, suite, places),
            "load_before_and_after": [round(each, 1) for each in (load, os.getloadavg()[0])],
        }
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    keep(options.json, result, page)


if __name__ == "__main__":
    main()
