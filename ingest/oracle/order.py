"""(e) for the copies of an event: the first one that a batch has read is the row.

A later one in its place means that a batch passed over a record which nothing stood for yet: lost, and made good by chance when
the producer sent it again. Counts do not show that: one row an id, and the earlier record looks like any other duplicate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ingest.oracle.case import Case
from ingest.oracle.tables import Position


class Reading(NamedTuple):
    """A range as the batch of this target version read it."""

    start: int
    end: int
    version: int


def check_order(case: Case) -> Iterator[str]:
    """(e) Of the copies that are not in quarantine the row is that of the earliest batch, inside it of the least partition and offset."""
    lake = case.lake
    if not lake.target_log or lake.target_log[0].version > 0:
        return  # which batch was the first to read a record is not known
    removals = [c for c in lake.target_log if c.removes_data or c.operation == "RESTORE"]
    since = max(lake.replaced, default=-1)
    readings: dict[tuple[str, int], list[Reading]] = defaultdict(list)
    for batch in lake.batches:
        for partition, (start, end) in batch.ranges.items():
            readings[batch.topic_id, partition].append(Reading(start, end, batch.version))

    def first_read(position: Position) -> int:
        found = readings.get((position.topic_id, position.partition), ())
        return next((r.version for r in found if r.start <= position.offset < r.end), -1)

    row_of = {event_id: position for position, (event_id, _) in lake.target.items() if event_id not in case.run.excused_ids}
    for view in case.views.values():
        for (partition, offset), record in view.records.items():
            row = row_of.get(record.event_id) if record.event_id is not None else None
            position = Position(view.topic_id, partition, offset)
            if row is None or row == position or position in lake.target or position in lake.quarantine:
                continue
            copy_version, row_version = first_read(position), first_read(row)
            between = any(copy_version < c.version < row_version for c in removals)  # the copy's row may be gone since
            if since < copy_version and not between and (copy_version, *position[1:]) < (row_version, *row[1:]):
                yield (
                    f"{case.where(position)}: id {record.event_id} was read by version {copy_version} and passed over; "
                    f"its row is that of a later copy, partition {row.partition} offset {row.offset}, of version {row_version} (e)"
                )
