"""Where each record of a partition is, and why each gap is: Kafka's log against target, quarantine and ledger (I4). Pure.

`inserted` and `quarantined` records stand in target or quarantine at their own position. A `duplicate` stands nowhere, because its event id
came with another record; or another batch has put it there. So of each ledger row no more records may stand nowhere than it has duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ingest.kafka.intervals import EMPTY, Intervals, Offsets
from ingest.kafka.log.partition_scan import Isolation, Kind, PartitionScan
from ingest.ledger.ledger_row import LedgerRow
from ingest.verify.balance import Finding, finding

# The first offsets lead to the cause; a list of a thousand does not.
SHOWN_MAX = 5
OTHER: dict[Isolation, Isolation] = {"read_committed": "read_uncommitted", "read_uncommitted": "read_committed"}


@dataclass(frozen=True)
class Classification:
    """Every offset that the ledger's rows of one partition cover, in exactly one class.

    Of the records that Kafka holds and this isolation level reads: `in_target`, `in_quarantine`, `in_both`, `removed` (a DELETE
    took the row) and `elsewhere` (in none of them: a duplicate, or lost). `gaps` are the offsets without such a record, by why:
    markers, aborted records (for read_committed), holes; `unverifiable` those of which Kafka cannot tell (expired, beyond its
    end). `rows_unverifiable` counts the rows of target and quarantine that stand on holes or unverifiable offsets. Raises
    ValueError if an offset is in no class, or in two.
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
        """How many records Kafka holds in the ledger's ranges."""
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
) -> Classification:
    """Place the records of one partition.

    `rows` are the partition's ledger rows of kind batch, all with the topic id that the scan is of and inside of its range (else
    ValueError); ranges may overlap, as after a seek. `target`, `quarantine` and `removed` are one-dimensional integer arrays of
    offsets: what the tables hold of this partition, and whose rows DELETE commits took; order does not matter, offsets outside of
    all ranges are not looked at. Quarantine rows count whatever their state. `isolation` is the level of the contract of today, whose
    hash is `contract_hash`; a row of another contract may have been read at the other level, if its count of records says so.

    Findings, each of a ledger row: READ_DIFFERS and GAP_DIFFERS (Kafka has another number of records, or of offsets without one),
    RECORD_LOST (more records stand nowhere than the row has duplicates), DUPLICATE_DIFFERS (fewer), ROW_WITHOUT_RECORD (the target
    holds a position that is a marker, aborted or undecided) and QUARANTINED_WITHOUT_RECORD. A hole or an expired offset may have
    been anything when it was read, so it proves neither.
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
    # Compaction may have taken a record after we read it, or a marker: what it left proves nothing.
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
            *_existing(rows, elsewhere, unknown.minus(held)),
            *_foreign(rows, "ROW_WITHOUT_RECORD", "the target holds", t.minus(read).minus(unknown), classes),
            *_foreign(rows, "QUARANTINED_WITHOUT_RECORD", "the quarantine holds", q.minus(read).minus(unknown), classes),
        ),
    )


def _read(scan: PartitionScan, rows: Sequence[LedgerRow], isolation: Isolation, contract_hash: str | None, covered: Intervals) -> Intervals:
    """The records that readers of the level of each row's time saw; only the contract's hash is in the ledger, not the level."""
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
        but = f" (and {open_} offsets of which it cannot tell)" if open_ else ""
        if not here <= row.records_read <= here + open_:
            yield finding("READ_DIFFERS", row, f"the ledger says {row.records_read} records were read, Kafka holds {here}{but}")
        if not gap - open_ <= row.gap <= gap:
            yield finding("GAP_DIFFERS", row, f"the ledger says {row.gap} offsets hold no record, in Kafka it is {gap - open_}{but}")


def _existing(rows: Sequence[LedgerRow], elsewhere: Intervals, unknown: Intervals) -> Iterator[Finding]:
    """Records that stand nowhere must be duplicates. `unknown` offsets that hold no row may have been duplicates too, and so may what
    another batch put into target or quarantine that has read the same offsets."""
    for row, here, open_ in zip(rows, _of_each(rows, elsewhere), _of_each(rows, unknown), strict=True):
        if here > row.duplicate:
            where = _shown(elsewhere.clip(row.start_offset, row.end_offset))
            what = f"{here} records stand in neither target nor quarantine, the ledger says {row.duplicate} are duplicates: {where}"
            yield finding("RECORD_LOST", row, what)
        elif row.duplicate > here + open_ and row.duplicate > here + open_ + _placed_by_others(row, rows):
            what = f"the ledger says {row.duplicate} records are duplicates, but only {here + open_} stand in neither target nor quarantine"
            yield finding("DUPLICATE_DIFFERS", row, what)


def _placed_by_others(row: LedgerRow, rows: Sequence[LedgerRow]) -> int:
    """How many records other epochs have put somewhere in batches that read some of its offsets too."""
    others = (each for each in rows if each.epoch != row.epoch)
    return sum(o.inserted + o.quarantined for o in others if o.start_offset < row.end_offset and row.start_offset < o.end_offset)


def _foreign(rows: Sequence[LedgerRow], code: str, who: str, foreign: Intervals, classes: dict[Kind, Intervals]) -> Iterator[Finding]:
    """Positions that are no record for a reader of this isolation level, in the first row that covers them."""
    for row in rows if foreign else ():
        here = foreign.clip(row.start_offset, row.end_offset)
        if here:
            why = ", ".join(kind.value for kind, offsets in classes.items() if here.common(offsets))
            yield finding(code, row, f"{who} {len(here)} positions that are no record for this reader ({why}): {_shown(here)}")
            foreign = foreign.minus(here)


def _of_each(rows: Sequence[LedgerRow], offsets: Intervals) -> list[int]:
    """How many of the offsets lie in each row's range."""
    starts: Offsets = np.array([row.start_offset for row in rows], dtype=np.int64)
    ends: Offsets = np.array([row.end_offset for row in rows], dtype=np.int64)
    counted: list[int] = (offsets.below(ends) - offsets.below(starts)).tolist()
    return counted


def _shown(offsets: Intervals) -> str:
    first = [str(offset) for start, end in offsets for offset in range(start, min(end, start + SHOWN_MAX))][:SHOWN_MAX]
    return ", ".join(first) + (", …" if len(offsets) > SHOWN_MAX else "")
