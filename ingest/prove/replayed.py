"""Records that a batch has passed over because they stood already: whether they still stand (I4).

No batch of the ledger need have put them there: one that was cut off between its two commits, and whose checkpoint never came back, is
in no ledger, and of what stood in quarantine by it no commit of the target tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ingest.delta_sql import Engine
from ingest.prove.balance import Finding, Segment, finding
from ingest.prove.count import Rows, count, removed
from ingest.stream.delta_log import Commit
from ingest.stream.ledger_row import LedgerRow


def not_standing(
    engine: Engine,
    target: Rows,
    records: Rows,
    parts: Sequence[Segment],
    deleted: Iterable[Commit],
    untold: Mapping[Segment, int],
    said: Sequence[Finding],
) -> Iterator[Finding]:
    """Ledger rows in whose range less stands than they have put there and found there, but for those of which findings have `said` that
    something is missing. Looked at are those that found any, and those whose offsets several checkpoints have read; of the others
    the sums tell.

    `records` are all of the quarantine, whoever put them there, `deleted` the target's DELETE commits, `untold` how many rows of a
    segment they took as far as only their own figures tell. Raises Unreadable.
    """
    looked = {row: part for part in parts for row in part.rows if row.replayed or part.shared}
    short: dict[LedgerRow, int] = {}
    for query in sorted({row.query_id for row in looked}):
        # By checkpoint: those of one overlap nowhere, and a count takes each position for one segment's.
        there = _there(engine, target, records, [row for row in looked if row.query_id == query])
        short |= {row: lost for row, number in there.items() if (lost := _stood(row) - number) > 0}
    deletes = list(deleted) if short else []
    for query in sorted({row.query_id for row in short}):
        gone = removed(engine, target.table, deletes, [Segment.of(row) for row in short if row.query_id == query], records)
        lacking: dict[Segment, dict[LedgerRow, int]] = {}
        for part, number in gone.by_segment.items():
            (row,) = part.rows
            if (lost := short[row] - number) > 0:
                lacking.setdefault(looked[row], {})[row] = lost
        for part, rows in lacking.items():
            # One checkpoint's rows need each position once; what DELETE commits took of the segment is known from its sum.
            if sum(rows.values()) <= untold.get(part, 0):
                continue
            for row, lost in rows.items():
                if not any(_inside(row, each) for each in said):
                    what = f"{_stood(row)} records were put or found in target and quarantine, {lost} stand in neither"
                    yield finding("REPLAYED_MISSING", row, what)


def _there(engine: Engine, target: Rows, records: Rows, rows: Sequence[LedgerRow]) -> dict[LedgerRow, int]:
    """How many positions of each row's range stand in target or quarantine; one that stands in both stands for no other."""
    alone = [Segment.of(row) for row in rows]
    in_target, elsewhere = count(engine, target, alone).by_segment, count(engine, replace(records, but_not=(target,)), alone).by_segment
    return {row: in_target.get(index, 0) + elsewhere.get(index, 0) for index, row in enumerate(rows)}


def _stood(row: LedgerRow) -> int:
    """How many records of its range stood in target and quarantine when it was committed."""
    return row.inserted + row.quarantined + row.replayed


def read_again_whole(engine: Engine, target: Rows, records: Rows, parts: Sequence[Segment], deleted: Iterable[Commit]) -> set[Segment]:
    """Those of the segments in which all stands that their newest checkpoint has put there or found there when it read the whole of them
    again, but for what a DELETE took since: rows that were lost before and came back with it are counted by both it and the one before,
    rows that an overwrite has kept by neither.

    `records` are all of the quarantine. Raises Unreadable.
    """
    last = {part: part.read_last for part in parts if part.read_last}
    alone = [row for rows in last.values() for row in rows]
    if not alone:
        return set()
    gone = removed(engine, target.table, deleted, [Segment.of(row) for row in alone], records)
    if gone.untold:
        return set()
    there = _there(engine, target, records, alone)
    taken = {part.rows[0]: number for part, number in gone.by_segment.items()}
    exact = {row for row, number in there.items() if number + taken[row] == _stood(row)}
    return {part for part, rows in last.items() if exact.issuperset(rows)}


def _inside(row: LedgerRow, said: Finding) -> bool:
    """Whether a finding is about some of this row's offsets."""
    if said.partition != row.partition or said.start_offset is None or said.end_offset is None:
        return False
    return said.start_offset < row.end_offset and row.start_offset < said.end_offset
