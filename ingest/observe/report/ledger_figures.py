"""What batches did, from the ledger and the newest commits that it lacks: sums, sums by time, and the epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from ingest.delta.delta_sql import quoted
from ingest.ledger.ledger_line import Line
from ingest.observe.report.open_tables import OpenTables
from ingest.verify.balance import Total

# A chart has at most this many columns; each covers one of the round times in seconds, from a second to four weeks.
BUCKETS_MAX = 60
WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800, 2419200)
EPOCHS_SHOWN = 20
COUNTS = ("records_read", "inserted", "present", "duplicate", "quarantined", "gap")
# What the reasons of postings are in the figures. Removals and write-offs are none.
KINDS = {"batch": ("batch", "rebuild"), "epoch": ("first", "start", "seek"), "gap": ("gap",), "replay": ("replay",)}
KIND = " ".join(f"WHEN why IN ({', '.join(map(quoted, whys))}) THEN '{kind}'" for kind, whys in KINDS.items())
COLUMNS = """why, epoch, batch, source, `partition`, start_offset, end_offset, records_read, target_rows, present, duplicate,
       quarantine_rows, statement_epoch, statement_batch, writer"""
# The ledger is scanned once. In an old table it has thousands of small files, and opening them costs more than all that follows. Two
# processes may have written the same line, and a ledger that was cut lacks lines between those that it has.
BATCHES = f"""\
SELECT kind, epoch, batch, min(at_ms) / 1000.0 AS at_s, max(why) AS why, sum(coalesce(end_offset - start_offset, 0)) AS offsets,
       sum(records_read) AS records_read, sum(coalesce(target_rows, 0)) AS inserted,
       sum(coalesce(present, 0)) AS present, sum(duplicate) AS duplicate,
       sum(quarantine_rows) AS quarantined,
       sum(CASE WHEN kind = 'batch' THEN coalesce(end_offset - start_offset, 0) - records_read ELSE 0 END) AS gap
FROM (SELECT DISTINCT CASE {KIND} ELSE '' END AS kind, l.* FROM l) k WHERE kind <> '' GROUP BY kind, epoch, batch ORDER BY epoch, batch"""


@dataclass(frozen=True)
class Bucket:
    """The batches that committed in the `seconds` from `at` on: their records by outcome, and the time from one commit to the next.

    `duplicate` records are those whose event id was there before, in the table or in the batch.

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
    """The ledger of these tables at their version, read once, one row per batch. Raises Unreadable."""

    def __init__(self, tables: OpenTables) -> None:
        self._tables = tables
        self._rows: list[str] = []
        if "ledger" in tables:
            self._rows.append(f"SELECT {COLUMNS}, CAST(round(date_part('epoch', committed_at) * 1000) AS BIGINT) AS at_ms FROM {{ledger}}")

    def add(self, late: Sequence[Line]) -> None:
        """Add the lines that the ledger lacks, before the first figure is asked for. It may have some of them."""
        if late:
            self._rows.append(f"SELECT * FROM (VALUES {', '.join(map(_values, late))}) AS late({COLUMNS}, at_ms)")

    @cached_property
    def _by_kind(self) -> dict[str, dict[str, Any]]:
        if not self._rows:
            return {}
        found = self._tables.table(f"WITH l AS ({' UNION ALL '.join(self._rows)}) {BATCHES}")
        kinds = found["kind"].to_numpy()
        return {kind: {name: found[name].to_numpy()[kinds == kind] for name in found.column_names} for kind in KINDS}

    def figures(self, hours: float) -> LedgerFigures:
        """The figures; the buckets cover the `hours` before the newest commit."""
        if not any(len(each["epoch"]) for each in self._by_kind.values()):
            return LedgerFigures(Total(*(0,) * 9), 0, 0, (), ())
        since = self._since()
        batch, gaps, replays = (
            {name: values[each["epoch"] >= since] for name, values in each.items()}
            for each in (self._by_kind[kind] for kind in ("batch", "gap", "replay"))
        )
        read, inserted, present, duplicate, quarantined, gap = (int(batch[name].sum()) for name in COUNTS)
        sums = (len(batch["epoch"]), int(batch["offsets"].sum()), gap, read, inserted, present, duplicate, quarantined)
        total = Total(*sums, int(replays["inserted"].sum()))
        epochs = np.unique(np.concatenate([each["epoch"] for each in self._by_kind.values()]))
        begins = tuple(self._begin(int(epoch)) for epoch in epochs[::-1][:EPOCHS_SHOWN])
        return LedgerFigures(total, int(gaps["offsets"].sum()), len(epochs), begins, _buckets(self._by_kind["batch"], hours))

    def newest(self, number: int) -> list[NewBatch]:
        """The newest batches, newest first."""
        batch = self._by_kind.get("batch")
        if batch is None:
            return []
        names = ("epoch", "batch", "at_s", "records_read", "inserted")
        rows = zip(*(batch[name][-number:].tolist() for name in names), strict=True)
        return [NewBatch(*row) for row in rows][::-1]

    def _since(self) -> int:
        """The first epoch whose rows are in the table: a rebuild replaced those of all epochs before it."""
        batch = self._by_kind["batch"]
        return int(batch["epoch"][batch["why"] == "rebuild"].max(initial=0))

    def _begin(self, epoch: int) -> EpochBegin:
        at_s = [float(each["at_s"][each["epoch"] == epoch].min()) for each in self._by_kind.values() if epoch in each["epoch"]]
        begin, batch = self._by_kind["epoch"], self._by_kind["batch"]
        read = batch["why"][batch["epoch"] == epoch]
        # An epoch that goes on where the table ends posts nothing but its batches.
        whys = [*begin["why"][begin["epoch"] == epoch], *read[read == "rebuild"], "start"]
        return EpochBegin(epoch, str(whys[0]), iso(min(at_s)), len(read))


def _buckets(batch: dict[str, Any], hours: float) -> tuple[Bucket, ...]:
    """The batches by time, without a hole from the first bucket to the last."""
    at_s = batch["at_s"]
    if not len(at_s):
        return ()
    last_s = float(at_s.max())
    first_s = max(float(at_s.min()), last_s - hours * 3600)
    width = next((each for each in WIDTHS_S if (last_s - first_s) / each < BUCKETS_MAX), WIDTHS_S[-1])
    first = int(first_s // width)
    at = (at_s // width).astype(int) - first
    interval_s = np.diff(at_s, prepend=np.nan)
    interval_s[1:][np.diff(batch["epoch"]) != 0] = np.nan  # between two epochs nobody was running
    shown = at >= 0
    figures = {name: batch[name] + batch["present"] if name == "duplicate" else batch[name] for name in COUNTS if name != "present"}
    counts = {name: np.bincount(at[shown], values[shown]).astype(int).tolist() for name, values in figures.items()}
    batches = np.bincount(at[shown]).tolist()
    found = []
    for number in range(len(batches)):
        there = interval_s[at == number]
        there = there[~np.isnan(there)]
        between = (float(np.median(there)), float(there.max())) if len(there) else (None, None)
        here = {name: values[number] for name, values in counts.items()}
        found.append(
            Bucket(
                iso((first + number) * width), width, batches[number], **here, interval_median_s=between[0], interval_longest_s=between[1]
            )
        )
    return tuple(found)


def _values(line: Line) -> str:
    each, at = line.posting, line.posting.range
    key = (each.key.epoch, each.key.batch, each.key.source, each.key.partition)
    counts = (at and at.start, at and at.end, each.read, None if each.target is None else each.target.rows, each.present, each.duplicate)
    numbers = (*key, *counts, each.quarantine.rows, line.id.epoch, line.id.number)
    shown = ", ".join("CAST(NULL AS BIGINT)" if number is None else str(number) for number in numbers)
    return f"({quoted(each.why)}, {shown}, {quoted(line.writer)}, {round(line.committed_at.timestamp() * 1000)})"
