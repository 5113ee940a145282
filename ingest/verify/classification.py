"""Where each record of a partition is, and the reason of each gap: Kafka's log against target, quarantine and ledger (I4). Pure.

`inserted` and `quarantined` records are in target or quarantine at their own position. A `duplicate` is in neither table, because another
record has its event id, unless another batch has stored it there. So within a ledger row's range, the records in neither table must not
outnumber the row's duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ingest.kafka.intervals import EMPTY, Intervals, Offsets
from ingest.kafka.log.partition_scan import Isolation, Kind, PartitionScan
from ingest.ledger.ledger_row import LedgerRow
from ingest.verify.balance import Finding, finding

# The first offsets lead to the cause; a list of a thousand helps nobody.
SHOWN_MAX = 5
OTHER: dict[Isolation, Isolation] = {"read_committed": "read_uncommitted", "read_uncommitted": "read_committed"}


@dataclass(frozen=True)
class Classification:
    """Every offset that the ledger's rows of one partition cover, in exactly one class.

    Records that Kafka has and this isolation level reads are `in_target`, `in_quarantine`, `in_both`, `removed` (a DELETE took the row) or
    `elsewhere` (in none of these: a duplicate, or lost). `gaps` are the offsets without such a record, by reason: markers, aborted records
    (for read_committed), holes. `unverifiable` offsets have expired or lie beyond the partition's end. `rows_unverifiable` counts the rows
    of target and quarantine at holes or unverifiable offsets. Raises ValueError if an offset is in no class, or in two.
    """

    partition: int
    covered: Intervals
    in_target: Intervals
    in_quarantine: Intervals
    in_both: Intervals
    removed: Intervals
    elsewhere: Intervals
    gaps: tuple[tuple[Kind, Intervals], ...]
    unverifiable: Intervals
    rows_unverifiable: int
    findings: tuple[Finding, ...]

    def __post_init__(self) -> None:
        parts = [self.in_target, self.in_quarantine, self.in_both, self.removed, self.elsewhere, self.unverifiable]
        parts += [offsets for _, offsets in self.gaps]
        if sum(map(len, parts)) != len(self.covered) or Intervals.union(parts) != self.covered:
            raise ValueError(f"not every offset of partition {self.partition} is in exactly one class: {self}")

    @property
    def records(self) -> int:
        """How many records Kafka has in the ledger's ranges."""
        return sum(map(len, (self.in_target, self.in_quarantine, self.in_both, self.removed, self.elsewhere)))


def classify(
    scan: PartitionScan,
    rows: Sequence[LedgerRow],
    target: ArrayLike,
    quarantine: ArrayLike,
    *,
    isolation: Isolation = "read_committed",
    contract_hash: str | None = None,
    removed: ArrayLike = (),
    retired: Sequence[LedgerRow] = (),
) -> Classification:
    """Classify the offsets of one partition.

    `rows` are the partition's ledger rows of kind `batch`, with the topic id of the scan. Their ranges must lie within the scan's (else
    ValueError) and may overlap, as after a seek. `target`, `quarantine` and `removed` are one-dimensional integer arrays of offsets, in any
    order: the rows of the target, the records of the quarantine in any state, and the rows that DELETE commits removed. Offsets outside of
    all ranges are ignored. `retired` are the ledger rows of kind `retention`. `isolation` is the level of today's contract, whose hash is
    `contract_hash`. A row of another contract counts as read at the other level if its record count fits only that level.

    Each finding concerns a ledger row. READ_DIFFERS, GAP_DIFFERS: Kafka has another number of records, or of offsets without a record.
    RECORD_LOST: more records are in neither table than the row has duplicates. DUPLICATE_DIFFERS: fewer. ROW_WITHOUT_RECORD: the target
    has a row at a marker, or at an aborted or undecided record. QUARANTINED_WITHOUT_RECORD: the same for the quarantine. A hole or an
    expired offset proves nothing, because it may have been anything when it was read.
    """
    for row in rows:
        if row.partition != scan.partition or row.start_offset < scan.start or row.end_offset > scan.end:
            raise ValueError(f"a ledger row that is not of partition {scan.partition} [{scan.start}, {scan.end}): {row}")
    covered = Intervals.of((row.start_offset, row.end_offset) for row in rows)
    classes = {kind: offsets.common(covered) for kind, offsets in scan.classes().items()}
    read = _read(scan, rows, isolation, contract_hash, covered)
    gone = Intervals.union([classes[Kind.EXPIRED], classes[Kind.BEYOND]])
    gaps = tuple((kind, part) for kind, offsets in classes.items() if (part := offsets.minus(read).minus(gone)))
    t, q = (Intervals.of_offsets(held).common(covered) for held in (target, quarantine))
    held = Intervals.union([t, q])
    lacking = read.minus(held)
    taken = lacking.common(Intervals.of_offsets(removed)) if np.size(removed) else EMPTY
    # A hole proves nothing: compaction may have removed a record after we read it, or a marker.
    unknown = Intervals.union([gone, classes[Kind.HOLE]])
    elsewhere = lacking.minus(taken)
    return Classification(
        scan.partition,
        covered,
        read.common(t).minus(q),
        read.common(q).minus(t),
        read.common(t).common(q),
        taken,
        elsewhere,
        gaps,
        gone,
        len(t.common(unknown)) + len(q.common(unknown)),
        (
            *_counts(rows, read, unknown),
            *_duplicates(rows, elsewhere, unknown.minus(held), retired),
            *_foreign(rows, "ROW_WITHOUT_RECORD", "the target has rows", t.minus(read).minus(unknown), classes),
            *_foreign(rows, "QUARANTINED_WITHOUT_RECORD", "the quarantine has records", q.minus(read).minus(unknown), classes),
        ),
    )


def _read(scan: PartitionScan, rows: Sequence[LedgerRow], isolation: Isolation, contract_hash: str | None, covered: Intervals) -> Intervals:
    """The records that each row's reader saw at the isolation level of its time. The ledger has the contract's hash, but not the level."""
    read = scan.read(isolation).common(covered)
    former = [row for row in rows if contract_hash not in (None, row.contract_hash)]
    if not former:
        return read
    other = scan.read(OTHER[isolation]).common(covered)
    counts = zip(former, _of_each(former, read), _of_each(former, other), strict=True)
    theirs = Intervals.of((row.start_offset, row.end_offset) for row, here, there in counts if row.records_read == there != here)
    return Intervals.union([read.minus(theirs), other.common(theirs)]) if theirs else read


def _counts(rows: Sequence[LedgerRow], read: Intervals, unknown: Intervals) -> Iterator[Finding]:
    for row, here, open_ in zip(rows, _of_each(rows, read), _of_each(rows, unknown), strict=True):
        gap = row.end_offset - row.start_offset - here
        but = f" (and {open_} offsets that it can no longer explain)" if open_ else ""
        if not here <= row.records_read <= here + open_:
            yield finding("READ_DIFFERS", row, f"the ledger counts {row.records_read} records, Kafka has {here}{but}")
        if not gap - open_ <= row.gap <= gap:
            yield finding("GAP_DIFFERS", row, f"the ledger counts {row.gap} offsets without a record, Kafka has {gap - open_}{but}")


def _duplicates(
    rows: Sequence[LedgerRow], elsewhere: Intervals, unknown: Intervals, retired: Sequence[LedgerRow] = ()
) -> Iterator[Finding]:
    """Compare the records in neither table with the duplicates of each row.

    Two more kinds of records may have been duplicates: `unknown` offsets without a row, and records that another batch, which read the same
    offsets, put into target or quarantine. A record that retention or an erasure removed is in neither table either, and was no duplicate.
    """
    for row, here, open_, gone in zip(
        rows, _of_each(rows, elsewhere), _of_each(rows, unknown), _removed_of_each(rows, retired), strict=True
    ):
        if here > row.duplicate + gone:
            where = _shown(elsewhere.clip(row.start_offset, row.end_offset))
            what = f"{here} records are in neither target nor quarantine, but the ledger counts {row.duplicate} duplicates: {where}"
            yield finding("RECORD_LOST", row, what)
        elif row.duplicate > here + open_ and row.duplicate > here + open_ + _placed_by_others(row, rows):
            what = f"the ledger counts {row.duplicate} duplicates, but only {here + open_} records are in neither target nor quarantine"
            yield finding("DUPLICATE_DIFFERS", row, what)


def _removed_of_each(rows: Sequence[LedgerRow], retired: Sequence[LedgerRow]) -> list[int]:
    """How many removed records lie in each row's range, in the order of `rows`.

    By range and not by batch: a batch that read the offsets earlier lacks these records, too. A removal that overlaps the range counts in
    full.
    """
    starts = sorted((each.start_offset, each.nowhere) for each in retired)
    ends = sorted((each.end_offset, each.nowhere) for each in retired)

    def below(removals: list[tuple[int, int]], bounds: list[int], side: Literal["left", "right"]) -> Offsets:
        sums = np.concatenate(([0], np.cumsum([number for _, number in removals], dtype=np.int64)))
        return sums[np.searchsorted(np.array([at for at, _ in removals], dtype=np.int64), np.array(bounds, dtype=np.int64), side)]

    begun = below(starts, [row.end_offset for row in rows], "left")
    ended = below(ends, [row.start_offset for row in rows], "right")
    counted: list[int] = (begun - ended).tolist()
    return counted


def _placed_by_others(row: LedgerRow, rows: Sequence[LedgerRow]) -> int:
    """How many records other epochs have put into target or quarantine, in batches that overlap this row's range."""
    others = (each for each in rows if each.epoch != row.epoch)
    return sum(o.inserted + o.quarantined for o in others if o.start_offset < row.end_offset and row.start_offset < o.end_offset)


def _foreign(rows: Sequence[LedgerRow], code: str, what: str, foreign: Intervals, classes: dict[Kind, Intervals]) -> Iterator[Finding]:
    """Findings for positions that are no record at this isolation level, each in the first row that covers it."""
    for row in rows if foreign else ():
        here = foreign.clip(row.start_offset, row.end_offset)
        if here:
            why = ", ".join(kind.value for kind, offsets in classes.items() if here.common(offsets))
            yield finding(code, row, f"{what} at {len(here)} positions that are no record for this reader ({why}): {_shown(here)}")
            foreign = foreign.minus(here)


def _of_each(rows: Sequence[LedgerRow], offsets: Intervals) -> list[int]:
    """How many of the offsets lie in each row's range, in the order of `rows`."""
    starts: Offsets = np.array([row.start_offset for row in rows], dtype=np.int64)
    ends: Offsets = np.array([row.end_offset for row in rows], dtype=np.int64)
    counted: list[int] = (offsets.below(ends) - offsets.below(starts)).tolist()
    return counted


def _shown(offsets: Intervals) -> str:
    first = [str(offset) for start, end in offsets for offset in range(start, min(end, start + SHOWN_MAX))][:SHOWN_MAX]
    return ", ".join(first) + (", …" if len(offsets) > SHOWN_MAX else "")
