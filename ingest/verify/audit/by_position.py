"""Audit by position: the table keeps partition and offset of each row, so every row and every record is found exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.kafka.intervals import Intervals, Offsets
from ingest.kafka.log.log_reader import TopicLog, scan
from ingest.kafka.log.partition_scan import Isolation, Kind
from ingest.verify.audit.findings import Audit, Fault, faults, joined
from ingest.verify.audit.reach import Reach, why_lost

GAPS = (Kind.ABORTED, Kind.UNSTABLE, Kind.COMMIT_MARKER, Kind.ABORT_MARKER, Kind.HOLE)
MARKER = "at a transaction marker, which is no record"
# What rows at offsets of a kind mean for a reader of committed records.
WRONG: dict[Kind, tuple[Fault, str]] = {
    Kind.ABORTED: ("aborted", "the reader does not read committed records only"),
    Kind.UNSTABLE: ("undecided", "the reader does not read committed records only"),
    Kind.COMMIT_MARKER: ("no record", MARKER),
    Kind.ABORT_MARKER: ("no record", MARKER),
}
GONE = {Kind.EXPIRED: "Kafka's retention has deleted the records", Kind.HOLE: "compaction has deleted the records"}
# Whether the event id of a record at one of these offsets has a row.
HasRow = Callable[[int, Offsets], NDArray[np.bool_]]


def gap_name(kind: Kind) -> str:
    """`commit marker`, `hole`."""
    return kind.name.lower().replace("_", " ")


def by_position(reader: TopicLog, held: Mapping[int, Offsets], isolation: Isolation, reach: Reach, has_row: HasRow | None) -> Audit:
    """Compare the rows' offsets, by partition, with the topic. The table must have been read before this call.

    With `has_row`, a record without a row of its own is no loss if its event id has a row: the writer dropped a copy. Raises the errors of
    `scan`.
    """
    found: list[pa.Table] = []
    gaps: Counter[str] = Counter()
    unverifiable: Counter[str] = Counter()
    not_read: dict[int, int] = {}
    records = rows_seen = expired = dropped = 0
    empty: list[int] = []
    for partition in sorted({*reader.partitions, *held}):
        offsets, rows = np.unique(held.get(partition, np.empty(0, np.int64)), return_counts=True)
        rows_seen += int(rows.sum())

        def at(fault: Fault, why: str, places: Offsets, rows: Offsets, partition: int = partition) -> None:
            found.append(faults(fault, why, rows, partition=partition, offset=places))

        if partition not in reader.partitions:
            at("no record", "the topic has no such partition", offsets, rows)
            continue
        scanned = scan(reader, partition, 0, reader.bounds(partition).high_watermark)
        classes, read, there = scanned.classes(), scanned.read(isolation), Intervals.of_offsets(offsets)
        records += len(read)
        expired += len(classes[Kind.EXPIRED])
        first, start, stop = (int(offsets[0]) if offsets.size else None), reach.start(partition), reach.stop(partition, offsets)
        missing = read.minus(there).clip(start, scanned.end)
        lost, unread = missing.clip(start, stop).offsets(), missing.clip(stop, scanned.end)
        if unread:
            not_read[partition] = len(unread)
        if not offsets.size and read:
            empty.append(partition)
        if has_row is not None and lost.size:
            copies = has_row(partition, lost)
            dropped += int(copies.sum())
            lost = lost[~copies]
        for why, mask in why_lost(lost, first, int(offsets[-1]) if offsets.size else None):
            at("lost", why, lost[mask], np.ones(int(mask.sum()), np.int64))
        for kind in GAPS:
            if free := classes[kind].minus(read).minus(there).clip(start, stop):
                gaps[gap_name(kind)] += len(free)
        right = np.ones(offsets.size, bool)
        for kind, (fault, why) in WRONG.items():
            here = np.searchsorted(offsets, classes[kind].minus(read).common(there).offsets())
            at(fault, why, offsets[here], rows[here])
            right[here] = False
        beyond = offsets >= scanned.end
        at("no record", "beyond the end of the topic: is it the right topic and cluster?", offsets[beyond], rows[beyond])
        right &= ~beyond
        for kind, why in GONE.items():
            here = np.searchsorted(offsets, classes[kind].common(there).offsets())
            unverifiable[why] += int(rows[here].sum())
        twice = right & (rows > 1)
        at("doubled", "the position has several rows", offsets[twice], rows[twice] - 1)
    return Audit(records, rows_seen, joined(found), gaps, expired, +unverifiable, not_read, dropped, partitions_without_rows=tuple(empty))
