"""Records that a batch has passed over because they stood already: whether they still stand (I4).

No batch of the ledger need have put them there: one that was cut off between its two commits, and whose checkpoint never came back, is
in no ledger, and of what stood in quarantine by it no commit of the target tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ingest.delta_sql import Engine
from ingest.prove.balance import Finding, Segment, finding
from ingest.prove.count import Rows, count, removed
from ingest.stream.delta_log import Commit
from ingest.stream.ledger_row import LedgerRow


def not_standing(
    engine: Engine, target: Rows, records: Rows, rows: Sequence[LedgerRow], deleted: Iterable[Commit], said: Sequence[Finding]
) -> Iterator[Finding]:
    """Ledger rows with replayed records in whose range less stands than they have put there and found there, but for those of which
    findings have `said` that something is missing.

    `records` are all of the quarantine, whoever put them there, `deleted` the target's DELETE commits. Raises Unreadable.
    """
    short: dict[LedgerRow, int] = {}
    for query in sorted({row.query_id for row in rows if row.replayed}):
        # By checkpoint: those of one overlap nowhere, and a count takes each position for one segment's.
        parts = [Segment(r.topic_id, r.partition, r.start_offset, r.end_offset, (r,)) for r in rows if r.query_id == query and r.replayed]
        in_target, in_quarantine = count(engine, target, parts).by_segment, count(engine, records, parts).by_segment
        for index, part in enumerate(parts):
            (row,) = part.rows
            there = in_target.get(index, 0) + in_quarantine.get(index, 0)
            if (lost := row.inserted + row.quarantined + row.replayed - there) > 0:
                short[row] = lost
    if not short:
        return
    deletes, untold = list(deleted), 0
    for query in sorted({row.query_id for row in short}):
        parts = [Segment(r.topic_id, r.partition, r.start_offset, r.end_offset, (r,)) for r in short if r.query_id == query]
        gone = removed(engine, target.table, deletes, parts)
        untold = gone.untold
        for part, number in gone.by_segment.items():
            short[part.rows[0]] -= number
    lacking = {row: lost for row, lost in short.items() if lost > 0 and not any(_inside(row, each) for each in said)}
    if sum(lacking.values()) <= untold:
        return  # DELETE commits may have taken them, whose versions VACUUM has taken
    for row, lost in lacking.items():
        what = (
            f"{row.inserted + row.quarantined + row.replayed} records were put or found in target and quarantine, {lost} stand in neither"
        )
        yield finding("REPLAYED_MISSING", row, what)


def read_again_whole(engine: Engine, target: Rows, records: Rows, parts: Sequence[Segment], deleted: Iterable[Commit]) -> set[Segment]:
    """Those of several checkpoints' segments in which all stands that the newest of them has put there or found there when it read the
    whole of them again, but for what a DELETE took since: rows that were lost before and came back with it are counted by both.

    `records` are all of the quarantine. Raises Unreadable.
    """
    last = {part: part.read_last for part in parts if part.read_last}
    alone = [Segment(r.topic_id, r.partition, r.start_offset, r.end_offset, (r,)) for rows in last.values() for r in rows]
    if not alone:
        return set()
    in_target, in_quarantine = count(engine, target, alone).by_segment, count(engine, records, alone).by_segment
    gone = removed(engine, target.table, deleted, alone)
    if gone.untold:
        return set()
    there = {part.rows[0]: in_target.get(index, 0) + in_quarantine.get(index, 0) for index, part in enumerate(alone)}
    taken = {part.rows[0]: number for part, number in gone.by_segment.items()}
    exact = {row for row, number in there.items() if number + taken[row] == row.inserted + row.quarantined + row.replayed}
    return {part for part, rows in last.items() if exact.issuperset(rows)}


def _inside(row: LedgerRow, said: Finding) -> bool:
    """Whether a finding is about some of this row's offsets."""
    if said.partition != row.partition or said.start_offset is None or said.end_offset is None:
        return False
    return said.start_offset < row.end_offset and row.start_offset < said.end_offset
