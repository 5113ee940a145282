"""Where each record of a partition is, and the reason of each gap: Kafka's log against target, quarantine and books (I4). Pure.

A record is in target or quarantine at its own position, or in neither, because another record has its event id: that is for
lost_records.py to ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ingest.kafka.intervals import EMPTY, Intervals, Offsets
from ingest.kafka.log.partition_scan import Isolation, Kind, PartitionScan
from ingest.ledger.ledger_line import Line
from ingest.verify.balance import Finding, finding

# The first offsets lead to the cause; a list of a thousand helps nobody.
SHOWN_MAX = 5
OTHER: dict[Isolation, Isolation] = {"read_committed": "read_uncommitted", "read_uncommitted": "read_committed"}


@dataclass(frozen=True)
class Classification:
    """Every offset that the batches of one partition cover, in exactly one class.

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
        """How many records Kafka has in the batches' ranges."""
        return sum(map(len, (self.in_target, self.in_quarantine, self.in_both, self.removed, self.elsewhere)))


def classify(
    scan: PartitionScan,
    lines: Sequence[Line],
    target: ArrayLike,
    quarantine: ArrayLike,
    *,
    isolation: Isolation = "read_committed",
    contract_hash: str | None = None,
    removed: ArrayLike = (),
) -> Classification:
    """Classify the offsets of one partition.

    `lines` are those of the partition's batches (`Books.batches`), of the scan's topic. Their ranges must lie within the scan's (else
    ValueError) and may overlap, as after a seek. `target`, `quarantine` and `removed` are one-dimensional integer arrays of offsets, in any
    order: the rows of the target, the records of the quarantine in any state, and the rows that DELETE commits removed. Offsets outside of
    all ranges are ignored. `isolation` is the level of today's contract, whose hash is `contract_hash`. A batch of another contract counts
    as read at the other level if its record count fits only that level.

    Each finding concerns a batch. READ_DIFFERS: Kafka has another number of records in its range. ROW_WITHOUT_RECORD: the target has a row
    at a marker, or at an aborted or undecided record. QUARANTINED_WITHOUT_RECORD: the same for the quarantine. A hole or an expired offset
    proves nothing, because it may have been anything when it was read.
    """
    for line in lines:
        if line.posting.key.partition != scan.partition or _start(line) < scan.start or _end(line) > scan.end:
            raise ValueError(f"a batch that is not of partition {scan.partition} [{scan.start}, {scan.end}): {line}")
    covered = Intervals.of((_start(line), _end(line)) for line in lines)
    classes = {kind: offsets.common(covered) for kind, offsets in scan.classes().items()}
    read = _read(scan, lines, isolation, contract_hash, covered)
    gone = Intervals.union([classes[Kind.EXPIRED], classes[Kind.BEYOND]])
    gaps = tuple((kind, part) for kind, offsets in classes.items() if (part := offsets.minus(read).minus(gone)))
    t, q = (Intervals.of_offsets(held).common(covered) for held in (target, quarantine))
    lacking = read.minus(Intervals.union([t, q]))
    taken = lacking.common(Intervals.of_offsets(removed)) if np.size(removed) else EMPTY
    # A hole proves nothing: compaction may have removed a record after we read it, or a marker.
    unknown = Intervals.union([gone, classes[Kind.HOLE]])
    return Classification(
        scan.partition,
        covered,
        read.common(t).minus(q),
        read.common(q).minus(t),
        read.common(t).common(q),
        taken,
        lacking.minus(taken),
        gaps,
        gone,
        len(t.common(unknown)) + len(q.common(unknown)),
        (
            *_counts(lines, read, unknown),
            *_foreign(lines, "ROW_WITHOUT_RECORD", "the target has rows", t.minus(read).minus(unknown), classes),
            *_foreign(lines, "QUARANTINED_WITHOUT_RECORD", "the quarantine has records", q.minus(read).minus(unknown), classes),
        ),
    )


def _read(scan: PartitionScan, lines: Sequence[Line], isolation: Isolation, contract_hash: str | None, covered: Intervals) -> Intervals:
    """The records that each row's reader saw at the isolation level of its time. The ledger has the contract's hash, but not the level."""
    read = scan.read(isolation).common(covered)
    former = [line for line in lines if contract_hash not in (None, line.contract_hash)]
    if not former:
        return read
    other = scan.read(OTHER[isolation]).common(covered)
    counts = zip(former, _of_each(former, read), _of_each(former, other), strict=True)
    theirs = Intervals.of((_start(line), _end(line)) for line, here, there in counts if line.posting.read == there != here)
    return Intervals.union([read.minus(theirs), other.common(theirs)]) if theirs else read


def _counts(lines: Sequence[Line], read: Intervals, unknown: Intervals) -> Iterator[Finding]:
    for line, here, open_ in zip(lines, _of_each(lines, read), _of_each(lines, unknown), strict=True):
        but = f" (and {open_} offsets that it can no longer explain)" if open_ else ""
        if not here <= line.posting.read <= here + open_:
            yield finding("READ_DIFFERS", line, f"the books count {line.posting.read} records, Kafka has {here}{but}")


def _foreign(lines: Sequence[Line], code: str, what: str, foreign: Intervals, classes: dict[Kind, Intervals]) -> Iterator[Finding]:
    """Findings for positions that are no record at this isolation level, each in the first row that covers it."""
    for line in lines if foreign else ():
        here = foreign.clip(_start(line), _end(line))
        if here:
            why = ", ".join(kind.value for kind, offsets in classes.items() if here.common(offsets))
            yield finding(code, line, f"{what} at {len(here)} positions that are no record for this reader ({why}): {_shown(here)}")
            foreign = foreign.minus(here)


def _of_each(lines: Sequence[Line], offsets: Intervals) -> list[int]:
    """How many of the offsets lie in each batch's range, in the order of `lines`."""
    starts: Offsets = np.array([_start(line) for line in lines], dtype=np.int64)
    ends: Offsets = np.array([_end(line) for line in lines], dtype=np.int64)
    counted: list[int] = (offsets.below(ends) - offsets.below(starts)).tolist()
    return counted


def _start(line: Line) -> int:
    return line.posting.range.start if line.posting.range is not None else 0


def _end(line: Line) -> int:
    return line.posting.range.end if line.posting.range is not None else 0


def _shown(offsets: Intervals) -> str:
    first = [str(offset) for start, end in offsets for offset in range(start, min(end, start + SHOWN_MAX))][:SHOWN_MAX]
    return ", ".join(first) + (", …" if len(offsets) > SHOWN_MAX else "")
