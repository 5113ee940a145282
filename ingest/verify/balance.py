"""The balance of a table, from its batch history alone (I1, I4): ranges join, counts add up, and the ledger equals the commits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ingest.kafka.intervals import EMPTY, Intervals
from ingest.ledger.batch_history import BatchHistory, Partition
from ingest.ledger.ledger_row import LedgerRow, project


@dataclass(frozen=True)
class Finding:
    """Something that does not add up, with its batch, partition and offsets if it concerns one batch."""

    code: str
    what: str
    epoch: int | None = None
    batch: int | None = None
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None

    def __str__(self) -> str:
        where = [] if self.epoch is None else [f"epoch {self.epoch} batch {self.batch}"]
        if self.partition is not None:
            where.append(f"partition {self.partition} offsets [{self.start_offset}, {self.end_offset})")
        return f"{self.code}: {' '.join(where)}{': ' if where else ''}{self.what}"


@dataclass(frozen=True)
class Total:
    """Sums over all batches: offsets = read + gap, and read = inserted + duplicate + quarantined.

    `replayed` quarantined records became rows through `ingest quarantine replay`; they are not among the inserted ones.
    """

    batches: int
    offsets: int
    gap: int
    read: int
    inserted: int
    duplicate: int
    quarantined: int
    replayed: int


def total(rows: Sequence[LedgerRow], replays: Sequence[LedgerRow] = ()) -> Total:
    """The sums of the ledger's rows of batches, and of replays."""
    return Total(
        len({(row.epoch, row.batch) for row in rows}),
        sum(row.end_offset - row.start_offset for row in rows),
        sum(row.gap for row in rows),
        sum(row.records_read for row in rows),
        sum(row.inserted for row in rows),
        sum(row.duplicate for row in rows),
        sum(row.quarantined for row in rows),
        sum(row.inserted for row in replays),
    )


def finding(code: str, row: LedgerRow, what: str) -> Finding:
    """A finding about one ledger row."""
    return Finding(code, what, row.epoch, row.batch, row.partition, row.start_offset, row.end_offset)


def check(batch_history: BatchHistory) -> list[Finding]:
    """All findings of the batch history."""
    sums = _sums((*batch_history.batches, *batch_history.replays))
    return [*sums, *_joins(batch_history), *_holes(batch_history), *_differs(batch_history)]


def pending(batch_history: BatchHistory) -> dict[Partition, tuple[int, int]]:
    """The offsets [start, end) that earlier epochs have read and the topic's newest epoch has yet to read again, by partition."""
    found: dict[Partition, tuple[int, int]] = {}
    newest = {topic: epoch for epoch, topic in sorted(batch_history.topics.items())}
    reached: dict[Partition, int] = {}
    for row in batch_history.batches:
        key = (row.topic_id, row.partition)
        reached[key] = max(reached.get(key, 0), row.end_offset)
    of_newest = (row for row in (*batch_history.begins, *batch_history.batches) if row.epoch == newest.get(row.topic_id))
    ends = {(row.topic_id, row.partition): row.end_offset for row in sorted(of_newest, key=lambda row: row.batch)}
    for key, end in ends.items():
        if end < reached.get(key, 0):
            found[key] = (end, reached[key])
    return found


def _sums(rows: Iterable[LedgerRow]) -> Iterator[Finding]:
    for row in rows:
        parts = row.inserted + row.duplicate + row.quarantined
        if row.records_read != parts:
            yield finding("SUM_WRONG", row, f"read {row.records_read}, but inserted + duplicate + quarantined = {parts}")
        if row.kind == "batch" and row.end_offset - row.start_offset != row.records_read + row.gap:
            yield finding("SUM_WRONG", row, f"{row.end_offset - row.start_offset} offsets, but read + gap = {row.records_read + row.gap}")
        if min(row.inserted, row.duplicate, row.quarantined, row.gap) < 0:
            yield finding("SUM_WRONG", row, "a count is negative")


def _joins(batch_history: BatchHistory) -> Iterator[Finding]:
    """Within an epoch each range must start where the previous range of its partition ended."""

    def stream(row: LedgerRow) -> tuple[int, str, int]:
        return row.epoch, row.topic_id, row.partition

    rows = sorted((*batch_history.begins, *batch_history.batches), key=lambda row: (stream(row), row.batch, row.end_offset))
    for _, group in groupby(rows, key=stream):
        for before, after in pairwise(group):
            if after.start_offset > before.end_offset:
                yield finding("RANGE_MISSING", after, f"no batch of its epoch covers [{before.end_offset}, {after.start_offset}) before it")
            elif after.start_offset < before.end_offset:
                yield finding("RANGE_OVERLAPS", after, f"starts before offset {before.end_offset}, the end of batch {before.batch}")


def _holes(batch_history: BatchHistory) -> Iterator[Finding]:
    """Over all epochs only accepted gaps, and offsets that are yet to be read again, may be missing."""
    to_reread = pending(batch_history)
    spans: dict[Partition, list[LedgerRow]] = {}
    for row in (*batch_history.begins, *batch_history.batches):
        spans.setdefault((row.topic_id, row.partition), []).append(row)
    reported = {(each.epoch, each.batch, each.partition) for each in _joins(batch_history)}
    for (topic_id, partition), rows in sorted(spans.items()):
        whole = Intervals.of([(min(row.start_offset for row in rows), max(row.end_offset for row in rows))])
        excused = Intervals.of([to_reread[topic_id, partition]]) if (topic_id, partition) in to_reread else EMPTY
        for start, end in whole.minus(batch_history.covered(topic_id, partition)).minus(excused):
            after = min((row for row in rows if row.start_offset >= end), key=lambda row: (row.start_offset, row.epoch, row.batch))
            if (after.epoch, after.batch, partition) not in reported:
                yield finding("RANGE_MISSING", after, f"no batch of any epoch and no accepted gap covers [{start}, {end}) before it")


def _differs(batch_history: BatchHistory) -> Iterator[Finding]:
    """Compare the ledger with the commits that the log still has: offsets and counts per partition, added rows per batch."""
    kept: dict[tuple[int, int], list[LedgerRow]] = {}
    for row in (*batch_history.batches, *batch_history.begins, *batch_history.gaps, *batch_history.replays):
        kept.setdefault((row.epoch, row.batch), []).append(row)
    for id, (commit, batch_commit) in sorted(batch_history.commits.items(), key=lambda each: each[0]):
        rows = kept.get((id.epoch, id.number), [])
        if {_comparable(row) for row in rows} != {_comparable(row) for row in project(commit, batch_commit, {})}:
            what = f"has other offsets or counts in the ledger than in version {commit.version} of the target"
            yield Finding("LEDGER_DIFFERS", what, id.epoch, id.number)
        added = [file.records for file in commit.added]
        inserted, rows_added = sum(row.inserted for row in rows), sum(number or 0 for number in added)
        if batch_commit.rebuilt is None and None not in added and inserted != rows_added:
            what = f"inserted {inserted} rows according to the ledger, but version {commit.version} of the target added {rows_added}"
            yield Finding("LEDGER_DIFFERS", what, id.epoch, id.number)


def _comparable(row: LedgerRow) -> tuple[object, ...]:
    """The values that a ledger row shares with its commit. `inserted` is not among them: only the commit's files show it."""
    figures = (row.records_read, row.quarantined, row.gap, row.target_version)
    return row.kind, row.topic_id, row.partition, row.start_offset, row.end_offset, figures
