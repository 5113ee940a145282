"""The balance of a table, from its ledger alone: do the batches join, and does each add up (I1, I4)? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

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
    for before, after in pairwise(segments(rows)):
        same = (before.topic_id, before.partition) == (after.topic_id, after.partition)
        hole = (before.topic_id, before.partition, before.end, after.start)
        if (
            same
            and after.start > before.end
            and not _covered(hole, accepted)
            and not {r.query_id for r in before.rows} & {r.query_id for r in after.rows}
        ):
            yield after.finding("RANGE_MISSING", f"[{before.end}, {after.start}) before it is in no batch of any checkpoint")


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


@dataclass(frozen=True)
class Segment:
    """Offsets [start, end) of a partition that batches cover without a seam between them; usually one batch's range.

    Ranges of different checkpoints can overlap (a rebase reads again); what they cover together is counted together.
    """

    topic_id: str
    partition: int
    start: int
    end: int
    rows: tuple[LedgerRow, ...]

    @staticmethod
    def of(row: LedgerRow) -> Segment:
        """The range of one batch alone."""
        return Segment(row.topic_id, row.partition, row.start_offset, row.end_offset, (row,))

    @property
    def shared(self) -> bool:
        """Whether several checkpoints have read some of them."""
        return len({row.query_id for row in self.rows}) > 1

    @property
    def inserted(self) -> int:
        """Rows that the target must hold."""
        return sum(row.inserted for row in self.rows)

    @property
    def quarantined(self) -> int:
        """Records that the quarantine must hold."""
        return sum(row.quarantined for row in self.rows)

    @property
    def quarantined_least(self) -> int:
        """The same, if what one checkpoint counts is among what another counts."""
        by_query: dict[str, int] = {}
        for row in self.rows:
            by_query[row.query_id] = by_query.get(row.query_id, 0) + row.quarantined
        return max(by_query.values(), default=0)

    @property
    def read_last(self) -> tuple[LedgerRow, ...]:
        """The rows of the newest checkpoint that has read these offsets, if it has read all of them and was not the only one, or found
        records standing that a batch had put there which is in force no more; else none."""
        newest = max(row.epoch for row in self.rows)
        rows = sorted((row for row in self.rows if row.epoch == newest), key=lambda row: row.start_offset)
        one_of_several = len({row.query_id for row in rows}) == 1 and (self.shared or any(row.replayed for row in rows))
        joined = all(before.end_offset == after.start_offset for before, after in pairwise(rows))
        whole = joined and (rows[0].start_offset, rows[-1].end_offset) == (self.start, self.end)
        return tuple(rows) if one_of_several and whole else ()

    def finding(self, code: str, what: str) -> Finding:
        """A finding about these offsets, named after the batch if it is one."""
        number = self.rows[0].batch_id if len(self.rows) == 1 else None
        return Finding(code, what, number, self.partition, self.start, self.end)


def segments(rows: Iterable[LedgerRow]) -> list[Segment]:
    """The ledger's ranges by topic id and partition, overlapping ones as one; empty ranges are left out."""
    found: list[Segment] = []
    ordered = sorted((row for row in rows if row.end_offset > row.start_offset), key=lambda r: (r.topic_id, r.partition, r.start_offset))
    for row in ordered:
        last = found[-1] if found else None
        if last and (last.topic_id, last.partition) == (row.topic_id, row.partition) and row.start_offset < last.end:
            found[-1] = Segment(last.topic_id, last.partition, last.start, max(last.end, row.end_offset), (*last.rows, row))
        else:
            found.append(Segment.of(row))
    return found
