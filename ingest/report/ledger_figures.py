"""What batches did, from the ledger and the newest commits that it lacks: sums, sums by time, and the epochs. Grouped by the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ingest.delta.delta_sql import quoted
from ingest.ledger.ledger_row import LedgerRow
from ingest.report.open_tables import OpenTables
from ingest.verify.balance import Total

# A chart has at most this many columns; each covers one of the round times in seconds, from a second to four weeks.
BUCKETS_MAX = 60
WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800, 2419200)
EPOCHS_SHOWN = 20
# The highest batch number is below 2³², so this orders batches as BatchId does.
ORDER = "epoch * 4294967296 + batch"
COLUMNS = "kind, epoch, batch, start_offset, end_offset, records_read, inserted, duplicate, quarantined, gap, why"
TOTAL = f"""\
SELECT count(DISTINCT CASE WHEN kind = 'batch' THEN {ORDER} END) AS batches, min(at_s) AS first_s, max(at_s) AS last_s,
       sum(CASE WHEN kind = 'batch' THEN end_offset - start_offset ELSE 0 END) AS offsets,
       sum(CASE WHEN kind = 'batch' THEN gap ELSE 0 END) AS gap, sum(records_read) AS records_read, sum(inserted) AS inserted,
       sum(duplicate) AS duplicate, sum(quarantined) AS quarantined, count(DISTINCT epoch) AS epochs,
       sum(CASE WHEN kind = 'gap_accepted' THEN end_offset - start_offset ELSE 0 END) AS gap_accepted,
       (SELECT coalesce(sum(inserted), 0) FROM l WHERE kind = 'replay' AND epoch >= {{since}}) AS replayed
FROM l WHERE kind IN ('batch', 'epoch', 'gap_accepted') AND epoch >= {{since}}"""
# A rebuild replaced the rows of all epochs before the one that it names.
SINCE = "SELECT max(CAST(substr(why, 9) AS BIGINT)) AS since FROM l WHERE why LIKE 'rebuild:%'"
BY_TIME = """\
SELECT CAST(floor(at_s / {width}) AS BIGINT) AS at, sum(records_read) AS records_read, sum(inserted) AS inserted,
       sum(duplicate) AS duplicate, sum(quarantined) AS quarantined, sum(gap) AS gap
FROM l WHERE kind = 'batch' AND at_s >= {start} GROUP BY 1"""
# A batch has one row per partition, with the same time.
INTERVALS = """, b AS (SELECT epoch, batch, max(at_s) AS at_s FROM l WHERE kind = 'batch' GROUP BY epoch, batch),
i AS (SELECT at_s, at_s - lag(at_s) OVER (PARTITION BY epoch ORDER BY batch) AS interval_s FROM b)
SELECT CAST(floor(at_s / {width}) AS BIGINT) AS at, count(*) AS batches, median(interval_s) AS median_s, max(interval_s) AS longest_s
FROM i WHERE at_s >= {start} GROUP BY 1"""
EPOCHS = f"""\
SELECT epoch, max(why) AS why, min(at_s) AS at_s, count(DISTINCT CASE WHEN kind = 'batch' THEN batch END) AS batches
FROM l WHERE kind IN ('batch', 'epoch') GROUP BY epoch ORDER BY epoch DESC LIMIT {EPOCHS_SHOWN}"""
NEWEST = "SELECT epoch, batch, max(at_s) AS at_s, sum(records_read) AS records_read, sum(inserted) AS inserted FROM l "
NEWEST += "WHERE kind = 'batch' GROUP BY epoch, batch ORDER BY epoch DESC, batch DESC LIMIT {number}"


@dataclass(frozen=True)
class Bucket:
    """The batches that committed in the `seconds` from `at` on: their records by outcome, and the time from one commit to the next.

    `interval_median_s` and `interval_longest_s` are None if no batch of the bucket followed another one of its epoch.
    """

    at: str
    seconds: int
    batches: int
    records_read: int
    inserted: int
    duplicate: int
    quarantined: int
    gap: int
    interval_median_s: float | None
    interval_longest_s: float | None


@dataclass(frozen=True)
class EpochBegin:
    """An epoch: why it began (`first`, `start`, `seek` …), the time of its first commit, and its number of batches."""

    epoch: int
    why: str
    at: str
    batches: int


@dataclass(frozen=True)
class NewBatch:
    """A batch with the time of its commit, in seconds since 1970, and its numbers of records read and of rows inserted."""

    epoch: int
    batch: int
    at_s: float
    records_read: int
    inserted: int


@dataclass(frozen=True)
class LedgerFigures:
    """The figures of all batches, and of the newest ones by time.

    `gap_accepted` are offsets that seeks left out; `total.gap` are offsets inside of batches without a record. `epochs` is the number of
    epochs, `begins` are the newest of them.
    """

    total: Total
    gap_accepted: int
    epochs: int
    begins: tuple[EpochBegin, ...]
    buckets: tuple[Bucket, ...]


def iso(seconds: float) -> str:
    """A time in seconds since 1970 as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LedgerReader:
    """The ledger of these tables, completed by `late`: rows of commits that it lacks."""

    def __init__(self, tables: OpenTables, late: Sequence[LedgerRow]) -> None:
        self._tables = tables
        parts = [f"SELECT {COLUMNS}, date_part('epoch', committed_at) AS at_s FROM {{ledger}}"] if "ledger" in tables else []
        if late:
            parts.append(f"SELECT * FROM (VALUES {', '.join(map(_values, late))}) AS late({COLUMNS}, at_s)")
        self._rows = " UNION ALL ".join(parts)

    def figures(self, hours: float) -> LedgerFigures:
        """The figures; the buckets cover the `hours` before the newest commit. Raises Unreadable."""
        since = self._ask(SINCE)
        found = self._ask(TOTAL.format(since=(since[0]["since"] if since else None) or 0))
        if not found or found[0]["last_s"] is None:
            return LedgerFigures(Total(0, 0, 0, 0, 0, 0, 0, 0), 0, 0, (), ())
        sums = found[0]
        names = ("batches", "offsets", "gap", "records_read", "inserted", "duplicate", "quarantined", "replayed")
        begins = (EpochBegin(row["epoch"], row["why"] or "unknown", iso(row["at_s"]), row["batches"]) for row in self._ask(EPOCHS))
        first_s = max(sums["first_s"], sums["last_s"] - hours * 3600)
        buckets = self._buckets(first_s, sums["last_s"])
        return LedgerFigures(Total(*(sums[name] for name in names)), sums["gap_accepted"], sums["epochs"], tuple(begins), buckets)

    def newest(self, number: int) -> list[NewBatch]:
        """The newest batches, newest first. Raises Unreadable."""
        return [NewBatch(**row) for row in self._ask(NEWEST.format(number=number))]

    def _buckets(self, first_s: float, last_s: float) -> tuple[Bucket, ...]:
        width = next((each for each in WIDTHS_S if (last_s - first_s) / each < BUCKETS_MAX), WIDTHS_S[-1])
        first, last = int(first_s // width), int(last_s // width)
        records = {row["at"]: row for row in self._ask(BY_TIME.format(width=width, start=first * width))}
        intervals = {row["at"]: row for row in self._ask(INTERVALS.format(width=width, start=first * width))}
        return tuple(_bucket(at, width, records.get(at, {}), intervals.get(at, {})) for at in range(first, last + 1))

    def _ask(self, sql: str) -> list[dict[str, Any]]:
        return self._tables.ask(f"WITH l AS ({self._rows}) {sql}") if self._rows else []


def _bucket(at: int, width: int, records: dict[str, Any], intervals: dict[str, Any]) -> Bucket:
    counts = {name: records.get(name, 0) for name in ("records_read", "inserted", "duplicate", "quarantined", "gap")}
    between: dict[str, Any] = {"interval_median_s": intervals.get("median_s"), "interval_longest_s": intervals.get("longest_s")}
    return Bucket(at=iso(at * width), seconds=width, batches=intervals.get("batches", 0), **counts, **between)


def _values(row: LedgerRow) -> str:
    counts = (row.start_offset, row.end_offset, row.records_read, row.inserted, row.duplicate, row.quarantined, row.gap)
    why = "CAST(NULL AS VARCHAR)" if row.why is None else quoted(row.why)
    return f"({quoted(row.kind)}, {row.epoch}, {row.batch}, {', '.join(map(str, counts))}, {why}, {row.committed_at.timestamp()})"
