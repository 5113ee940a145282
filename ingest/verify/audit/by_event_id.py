"""Audit by event id: for tables without positions. Each id of the topic should have one row, and each row's id a committed record."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.decode.row_hash import Hashes
from ingest.kafka.log.partition_scan import Isolation, Kind
from ingest.verify.audit.by_position import GAPS, GONE, WRONG, gap_name
from ingest.verify.audit.findings import Audit, Fault, faults, joined
from ingest.verify.audit.reach import Reach, why_lost
from ingest.verify.audit.topic_ids import KINDS, RECORDS, TopicIds

COPIES = "the topic has the event id several times"
ABORTED_COPIES = "an aborted record has the same event id"
UNREADABLE = "they may be of the records whose event id cannot be read"
AGAIN = "the writer added the row again"


def by_event_id(topic: TopicIds, rows: Hashes, rows_without_id: int, isolation: Isolation, reach: Reach) -> Audit:
    """Compare the hashes of the rows' ids with the ids of the topic. The table must have been read before the topic.

    The result has the column `hash` in place of the ids' texts. All lines but `no record` have the position of the id's first record.
    """
    seen = (Kind.COMMITTED,) if isolation == "read_committed" else RECORDS
    visible = np.isin(topic.kinds, [KINDS.index(kind) for kind in seen])
    good = _Ids(topic, visible)
    held, copies = np.unique(rows, return_counts=True)
    first = good.first(held)  # the first record of each id that the table has, -1 without one
    lines: list[pa.Table] = []

    def add(fault: Fault, why: str, hashes: Hashes, number: NDArray[np.int64], record: NDArray[np.int64] | None) -> None:
        keep = number > 0
        where = (None, None) if record is None else (topic.partitions[record[keep]], topic.offsets[record[keep]])
        found = faults(fault, why, number[keep], partition=where[0], offset=where[1])
        lines.append(found.append_column("hash", pa.array(hashes[keep])))

    # Rows of ids that a reader of this isolation level sees: one is right, the others are too many.
    right = first >= 0
    surplus, at, ids = copies[right] - 1, first[right], held[right]
    sent = np.minimum(surplus, good.copies(ids) - 1)
    others = _Ids(topic, ~visible & (topic.kinds == KINDS.index(Kind.ABORTED)))
    left_open = _Ids(topic, ~visible & (topic.kinds == KINDS.index(Kind.UNSTABLE)))
    aborted = np.minimum(surplus - sent, others.copies(ids))
    for why, number in ((COPIES, sent), (ABORTED_COPIES, aborted), (AGAIN, surplus - sent - aborted)):
        add("doubled", why, ids, number, at)
    # Rows of all other ids.
    unknown = ~right
    for kind, some in ((Kind.UNSTABLE, left_open), (Kind.ABORTED, others)):
        record = some.first(held)
        here = unknown & (record >= 0)
        fault, why = WRONG[kind]
        add(fault, why, held[here], copies[here], record[here])
        unknown &= ~here
    rest, gone = int(copies[unknown].sum()), next((why for kind, why in GONE.items() if topic.kinds_of[kind]), None)
    # A tombstone makes no row, and neither does a record that the reader does not see.
    if gone is None and rest <= sum(topic.valued[kind] for kind in seen) - rows_without_id:
        gone = UNREADABLE
    if gone is None:
        add("no record", "no record of the topic has the event id", held[unknown], copies[unknown], None)
    # Records of ids that the table lacks.
    mine = np.flatnonzero(visible)
    present = _among(topic.hashes[mine], held)
    # An id that occurs once shows how far the table was read; a copy of an early record would not.
    once = good.copies(topic.hashes[mine]) == 1
    not_read: dict[int, int] = {}
    empty: list[int] = []
    lost: list[tuple[str, NDArray[np.int64]]] = []
    reported = np.empty(0, np.uint64)
    for partition in np.unique(topic.partitions[mine]).tolist():
        of_partition = topic.partitions[mine] == partition
        held_here = topic.offsets[mine[of_partition & present]]
        marks = topic.offsets[mine[of_partition & present & once]] if (present & once)[of_partition].any() else held_here
        if not marks.size:
            empty.append(partition)
        records = mine[of_partition & ~present]
        records = records[topic.offsets[records] >= reach.start(partition)]
        late = topic.offsets[records] >= reach.stop(partition, marks)
        if late.any():
            not_read[partition] = int(late.sum())
        records = records[~late]
        ends = (int(held_here.min()), int(marks.max())) if marks.size else (None, None)
        lost += ((why, records[mask]) for why, mask in why_lost(topic.offsets[records], *ends))
    for why, records in lost:
        _, one = np.unique(topic.hashes[records], return_index=True)  # further copies of a lost id are no further loss
        records = records[np.sort(one)]
        records = records[~np.isin(topic.hashes[records], reported)]
        reported = np.concatenate((reported, topic.hashes[records]))
        add("lost", why, topic.hashes[records], np.ones(records.size, np.int64), records)
    gaps = {kind: topic.kinds_of[kind] for kind in GAPS if isolation == "read_committed" or kind not in RECORDS}
    without = sum(topic.without[kind] for kind in seen)
    return Audit(
        records=int(visible.sum()) + without,
        rows=int(rows.size),
        found=joined(lines).sort_by([("partition", "ascending"), ("offset", "ascending")]),
        gaps={gap_name(kind): number for kind, number in gaps.items() if number},
        expired=topic.kinds_of[Kind.EXPIRED],
        unverifiable={gone: rest} if gone is not None and rest else {},
        rows_without_key=rows_without_id,
        not_read=not_read,
        records_without_id=without,
        partitions_without_rows=tuple(empty),
    )


class _Ids:
    """The ids of some of the topic's records, sorted by hash."""

    def __init__(self, topic: TopicIds, chosen: NDArray[np.bool_]) -> None:
        numbers = np.flatnonzero(chosen)
        hashes, first, self._counts = np.unique(topic.hashes[numbers], return_index=True, return_counts=True)
        self._hashes, self._first = hashes, numbers[first]

    def first(self, hashes: Hashes) -> NDArray[np.int64]:
        """The number of each id's first record; -1 if none has it."""
        return self._of(hashes, self._first, -1)

    def copies(self, hashes: Hashes) -> NDArray[np.int64]:
        """How many records have each id."""
        return self._of(hashes, self._counts, 0)

    def _of(self, hashes: Hashes, values: NDArray[np.int64], otherwise: int) -> NDArray[np.int64]:
        at = np.searchsorted(self._hashes, hashes)
        there = np.zeros(hashes.size, bool)
        inside = at < self._hashes.size
        there[inside] = self._hashes[at[inside]] == hashes[inside]
        found = np.full(hashes.size, otherwise, np.int64)
        found[there] = values[at[there]]
        return found


def _among(hashes: Hashes, held: Hashes) -> NDArray[np.bool_]:
    """Which of the hashes are in `held`, which is sorted."""
    at = np.minimum(np.searchsorted(held, hashes), max(held.size - 1, 0))
    return held[at] == hashes if held.size else np.zeros(hashes.size, bool)
