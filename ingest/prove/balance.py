"""The balance of a table, from its ledger alone: do the batches join, and does each add up (I1, I4)? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ingest.prove.piece import pieces
from ingest.stream.ledger_row import LedgerRow


@dataclass(frozen=True)
class Finding:
    """Something that does not add up: in which batch and offsets, if it is one's, and what."""

    code: str
    what: str
    batch_id: int | None = None
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None

    def __str__(self) -> str:
        where = "" if self.batch_id is None else f"batch {self.batch_id} "
        if self.partition is not None:
            where += f"partition {self.partition} offsets [{self.start_offset}, {self.end_offset}) "
        return f"{self.code}: {where}{self.what}"


@dataclass(frozen=True)
class Total:
    """Sums over all batches; offsets = read + gap, read = inserted + duplicate + quarantined + replayed."""

    batches: int
    offsets: int
    gap: int
    read: int
    inserted: int
    duplicate: int
    quarantined: int
    replayed: int


def total(rows: Sequence[LedgerRow]) -> Total:
    """The sums of the ledger's rows."""
    return Total(
        len({(row.query_id, row.batch_id) for row in rows}),
        sum(row.end_offset - row.start_offset for row in rows),
        sum(row.gap for row in rows),
        sum(row.records_read for row in rows),
        sum(row.inserted for row in rows),
        sum(row.duplicate for row in rows),
        sum(row.quarantined for row in rows),
        sum(row.replayed for row in rows),
    )


def finding(code: str, row: LedgerRow, what: str) -> Finding:
    """A finding about one ledger row."""
    return Finding(code, what, row.batch_id, row.partition, row.start_offset, row.end_offset)


def check(rows: Sequence[LedgerRow], epochs: Sequence[LedgerRow] = (), accepted: Sequence[LedgerRow] = ()) -> list[Finding]:
    """What does not add up in the batch rows of one table; `epochs` are its rebase rows, `accepted` its gap_accepted rows."""
    return [*_sums(rows), *_joins([*rows, *epochs]), *_seams(rows, accepted), *_numbers(rows, epochs)]


def _sums(rows: Iterable[LedgerRow]) -> Iterable[Finding]:
    for row in rows:
        parts = row.inserted + row.duplicate + row.quarantined + row.replayed
        if row.records_read != parts:
            yield finding("SUM_WRONG", row, f"read {row.records_read}, but inserted + duplicate + quarantined + replayed = {parts}")
        if row.end_offset - row.start_offset != row.records_read + row.gap:
            yield finding("SUM_WRONG", row, f"{row.end_offset - row.start_offset} offsets, but read + gap = {row.records_read + row.gap}")
        if min(row.inserted, row.duplicate, row.quarantined, row.replayed, row.gap) < 0:
            yield finding("SUM_WRONG", row, "a count below zero")


def _joins(rows: Iterable[LedgerRow]) -> Iterable[Finding]:
    """Inside an epoch each range begins where the former one of its partition ended."""

    def stream(row: LedgerRow) -> tuple[str, str, int]:
        return row.query_id, row.topic_id, row.partition

    for _, group in groupby(sorted(rows, key=lambda row: (stream(row), row.batch_id, row.end_offset)), key=stream):
        for before, after in pairwise(group):
            if after.start_offset > before.end_offset:
                hole = f"[{before.end_offset}, {after.start_offset})"
                what = f"begins {after.start_offset - before.end_offset} offsets after batch {before.batch_id}: {hole} is in no batch"
                yield finding("RANGE_MISSING", after, what)
            elif after.start_offset < before.end_offset:
                yield finding("RANGE_OVERLAPS", after, f"begins before the end {before.end_offset} of batch {before.batch_id}")


def _seams(rows: Iterable[LedgerRow], accepted: Sequence[LedgerRow]) -> Iterable[Finding]:
    """Between the batches of two checkpoints no offsets are left out either, but for those that somebody said may be."""
    for before, after in pairwise(pieces(rows)):
        same = (before.topic_id, before.partition) == (after.topic_id, after.partition)
        hole = (before.topic_id, before.partition, before.end, after.start)
        of_one = {row.query_id for row in before.rows} & {row.query_id for row in after.rows}  # told by _joins
        if same and after.start > before.end and not of_one and not _covered(hole, accepted):
            yield finding("RANGE_MISSING", after.rows[0], f"[{before.end}, {after.start}) before it is in no batch of any checkpoint")


def _covered(hole: tuple[str, int, int, int], accepted: Sequence[LedgerRow]) -> bool:
    topic_id, partition, start, end = hole
    for row in sorted(accepted, key=lambda row: row.start_offset):
        if (row.topic_id, row.partition) == (topic_id, partition) and row.start_offset <= start:
            start = max(start, row.end_offset)
    return start >= end


def _numbers(rows: Sequence[LedgerRow], epochs: Sequence[LedgerRow]) -> Iterable[Finding]:
    """A checkpoint's batches are numbered without a hole (a rebase's baseline is batch 0), and a partition is in a batch once."""
    seen = set()
    numbers: dict[str, set[int]] = {}
    ends: dict[str, int] = {}
    for row in epochs:
        if row.epoch > 0 and row.batch_id == 0:
            numbers.setdefault(row.query_id, set()).add(0)
        else:  # where an epoch ended proves that there was such a batch; it does not stand for it
            ends[row.query_id] = max(ends.get(row.query_id, -1), row.batch_id)
    for row in rows:
        key = (row.query_id, row.batch_id, row.topic_id, row.partition)
        if key in seen:
            yield finding("BATCH_TWICE", row, f"stands in the ledger twice (query {row.query_id})")
        seen.add(key)
        numbers.setdefault(row.query_id, set()).add(row.batch_id)
    rebased = {row.query_id for row in (*rows, *epochs) if row.epoch > 0}
    for query_id in dict.fromkeys([*numbers, *ends]):
        found = numbers.get(query_id, set())
        for missing in sorted(set(range(1 if query_id in rebased else 0, max({*found, ends.get(query_id, -1)}) + 1)) - found)[:10]:
            yield Finding("BATCH_MISSING", f"of query {query_id} is in neither ledger nor log", missing)
