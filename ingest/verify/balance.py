"""The balance of a table, from its books alone (I1, I4): do offsets join, does each row add up, is it what was committed? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ingest.kafka.intervals import EMPTY, Intervals
from ingest.ledger.batch_history import BatchHistory, Partition
from ingest.ledger.ledger_row import LedgerRow, project


@dataclass(frozen=True)
class Finding:
    """Something that does not add up: in which batch and offsets, if it is one's, and what."""

    code: str
    what: str
    epoch: int | None = None
    batch: int | None = None
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None

    def __str__(self) -> str:
        where = "" if self.epoch is None else f"epoch {self.epoch} batch {self.batch} "
        if self.partition is not None:
            where += f"partition {self.partition} offsets [{self.start_offset}, {self.end_offset}) "
        return f"{self.code}: {where}{self.what}"


@dataclass(frozen=True)
class Total:
    """Sums over all batches; offsets = read + gap, read = inserted + duplicate + quarantined."""

    batches: int
    offsets: int
    gap: int
    read: int
    inserted: int
    duplicate: int
    quarantined: int


def total(rows: Sequence[LedgerRow]) -> Total:
    """The sums of the ledger's rows."""
    return Total(
        len({(row.epoch, row.batch) for row in rows}),
        sum(row.end_offset - row.start_offset for row in rows),
        sum(row.gap for row in rows),
        sum(row.records_read for row in rows),
        sum(row.inserted for row in rows),
        sum(row.duplicate for row in rows),
        sum(row.quarantined for row in rows),
    )


def finding(code: str, row: LedgerRow, what: str) -> Finding:
    """A finding about one ledger row."""
    return Finding(code, what, row.epoch, row.batch, row.partition, row.start_offset, row.end_offset)


def check(batch_history: BatchHistory) -> list[Finding]:
    """What does not add up in the books."""
    return [*_sums(batch_history.batches), *_joins(batch_history), *_holes(batch_history), *_differs(batch_history)]


def pending(batch_history: BatchHistory) -> dict[Partition, tuple[int, int]]:
    """Offsets [start, end) that former epochs have read and the newest of a topic has still to read again, by partition."""
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
        if row.end_offset - row.start_offset != row.records_read + row.gap:
            yield finding("SUM_WRONG", row, f"{row.end_offset - row.start_offset} offsets, but read + gap = {row.records_read + row.gap}")
        if min(row.inserted, row.duplicate, row.quarantined, row.gap) < 0:
            yield finding("SUM_WRONG", row, "a count below zero")


def _joins(batch_history: BatchHistory) -> Iterator[Finding]:
    """Inside an epoch each range begins where the former one of its partition ended."""

    def stream(row: LedgerRow) -> tuple[int, str, int]:
        return row.epoch, row.topic_id, row.partition

    rows = sorted((*batch_history.begins, *batch_history.batches), key=lambda row: (stream(row), row.batch, row.end_offset))
    for _, group in groupby(rows, key=stream):
        for before, after in pairwise(group):
            if after.start_offset > before.end_offset:
                yield finding("RANGE_MISSING", after, f"[{before.end_offset}, {after.start_offset}) before it is in no batch of its epoch")
            elif after.start_offset < before.end_offset:
                yield finding("RANGE_OVERLAPS", after, f"begins before the end {before.end_offset} of batch {before.batch}")


def _holes(batch_history: BatchHistory) -> Iterator[Finding]:
    """Over all epochs no offsets are left out but those of accepted gaps, and those that are still to be read again."""
    coming = pending(batch_history)
    spans: dict[Partition, list[LedgerRow]] = {}
    for row in (*batch_history.begins, *batch_history.batches):
        spans.setdefault((row.topic_id, row.partition), []).append(row)
    reported = {(each.epoch, each.batch, each.partition) for each in _joins(batch_history)}
    for (topic_id, partition), rows in sorted(spans.items()):
        whole = Intervals.of([(min(row.start_offset for row in rows), max(row.end_offset for row in rows))])
        excused = Intervals.of([coming[topic_id, partition]]) if (topic_id, partition) in coming else EMPTY
        for start, end in whole.minus(batch_history.covered(topic_id, partition)).minus(excused):
            after = min((row for row in rows if row.start_offset >= end), key=lambda row: (row.start_offset, row.epoch, row.batch))
            if (after.epoch, after.batch, partition) not in reported:
                yield finding("RANGE_MISSING", after, f"[{start}, {end}) before it is in no batch of any epoch, and in no accepted gap")


def _differs(batch_history: BatchHistory) -> Iterator[Finding]:
    """The ledger against the commits that the log still has: offsets and counts of each partition, rows added by the whole batch."""
    kept: dict[tuple[int, int], list[LedgerRow]] = {}
    for row in (*batch_history.batches, *batch_history.begins, *batch_history.gaps):
        kept.setdefault((row.epoch, row.batch), []).append(row)
    for id, (commit, batch_commit) in sorted(batch_history.commits.items(), key=lambda each: each[0]):
        rows = kept.get((id.epoch, id.number), [])
        if {_reported(row) for row in rows} != {_reported(row) for row in project(commit, batch_commit, {})}:
            what = f"has other offsets or counts in the ledger than in version {commit.version} of the target"
            yield Finding("LEDGER_DIFFERS", what, id.epoch, id.number)
        added = [file.records for file in commit.added]
        inserted, rows_added = sum(row.inserted for row in rows), sum(number or 0 for number in added)
        if None not in added and inserted != rows_added:
            what = f"inserted {inserted} rows by the ledger, version {commit.version} of the target added {rows_added}"
            yield Finding("LEDGER_DIFFERS", what, id.epoch, id.number)


def _reported(row: LedgerRow) -> tuple[object, ...]:
    """What a row and its commit say alike: how many rows were inserted only the commit's files tell."""
    figures = (row.records_read, row.quarantined, row.gap, row.target_version)
    return row.kind, row.topic_id, row.partition, row.start_offset, row.end_offset, figures
