"""Latency and batch time of the newest batches, from the times in their rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ingest.observe.report.ledger_figures import LedgerReader, iso
from ingest.observe.report.open_tables import OpenTables

# So many batches, unless fewer have so many rows: the cost stays the same however large the table is.
BATCHES_MAX = 200
ROWS_MAX = 1_000_000
# The condition on epoch and batch lets the engine skip the files of older batches.
TIMES = """\
SELECT t._epoch AS epoch, t._batch AS batch, approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY n.at_s - {kafka_s}) AS median_s,
       approx_percentile_cont(0.99) WITHIN GROUP (ORDER BY n.at_s - {kafka_s}) AS p99_s, count(*) AS n,
       max(n.at_s) - min(date_part('epoch', t._ingested_at)) AS batch_s
FROM {{target}} t JOIN (VALUES {newest}) AS n(epoch, batch, at_s) ON t._epoch = n.epoch AND t._batch = n.batch
WHERE t._epoch > {epoch} OR (t._epoch = {epoch} AND t._batch >= {number}) GROUP BY GROUPING SETS ((t._epoch, t._batch), ())"""
KAFKA_S = "date_part('epoch', t._kafka_timestamp)"


@dataclass(frozen=True)
class BatchTimes:
    """One batch: its latency (median and 99th percentile of its rows), and its time from Spark's plan to its commit, in seconds."""

    id: str
    at: str
    rows: int
    records_read: int
    latency_median_s: float | None
    latency_p99_s: float | None
    batch_s: float


@dataclass(frozen=True)
class RecentBatches:
    """The newest batches that have rows in the table, oldest first, and their figures together, in seconds.

    Latency is the time from a record's Kafka timestamp to the commit of its row. A backlog counts too: a record that waited in Kafka for an
    hour has a latency of an hour. `records_per_s` is the number of records by the time that their batches took, without pauses in between.
    """

    latency_median_s: float | None
    latency_p99_s: float | None
    batch_median_s: float
    batch_longest_s: float
    records_per_s: float
    batches: tuple[BatchTimes, ...]


def recent_batches(tables: OpenTables, ledger: LedgerReader) -> RecentBatches | None:
    """The times of the newest batches; None if they have no rows in the table. Raises Unreadable."""
    newest = ledger.newest(BATCHES_MAX)
    # Those that together have at most ROWS_MAX rows, at least one.
    sums = itertools.accumulate(each.inserted for each in newest)
    batches = [each for at, (each, rows) in enumerate(zip(newest, sums, strict=True)) if at == 0 or rows <= ROWS_MAX]
    if not batches or "target" not in tables:
        return None
    values = ", ".join(f"({each.epoch}, {each.batch}, {each.at_s})" for each in batches)
    oldest = batches[-1]
    found = tables.ask(TIMES.format(kafka_s=KAFKA_S, newest=values, epoch=oldest.epoch, number=oldest.batch))
    by_id = {(row["epoch"], row["batch"]): row for row in found}
    timed = tuple(
        BatchTimes(
            f"{each.epoch}/{each.batch}",
            iso(each.at_s),
            row["n"],
            each.records_read,
            row["median_s"],
            row["p99_s"],
            max(0.0, row["batch_s"]),
        )
        for each in reversed(batches)
        if (row := by_id.get((each.epoch, each.batch))) is not None and row["batch_s"] is not None
    )
    if not timed:
        return None
    times = sorted(each.batch_s for each in timed)
    whole = by_id[None, None]
    records_per_s = sum(each.records_read for each in timed) / max(sum(times), 0.001)
    return RecentBatches(whole["median_s"], whole["p99_s"], times[len(times) // 2], times[-1], records_per_s, timed)
