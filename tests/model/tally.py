"""What becomes of the records of a batch before anything is written: ingest/stream/decode, standing, tally, conflict in small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.stream.batch import Table
from ingest.stream.conflict import CONFLICT
from ingest.stream.mark import Counts
from ingest.stream.offsets import PlannedBatch
from ingest.stream.standing import BATCH, BEFORE
from tests.model.kafka import Read

if TYPE_CHECKING:
    from tests.model.driver import Driver

FAILED = "broken_rule"


@dataclass(frozen=True)
class Tally:
    """The winners, one an event id; what goes to quarantine, with its reason; the counts by partition. `standing` is how many of those
    for quarantine this batch has put there before, `absent` how many are not there at all."""

    winners: list[Read]
    failed: list[tuple[Read, str]]
    counts: dict[int, Counts]
    standing: dict[int, int]
    absent: int


def tally(driver: Driver, table: Table, planned: PlannedBatch, *, begun: bool) -> Tally:
    """What stands stays; else the least (partition, offset) wins; copies of another payload are conflicts, in the batch or, as the
    contract says, in the table."""
    rows, stands = _standing(driver, table, planned, begun=begun)
    fates: dict[Read, str] = {}
    first: dict[int, Read] = {}
    for read in sorted(driver.read, key=lambda r: (not _own(r, rows, table), r)):
        record, there = read.record, stands.get(read)
        if _own(read, rows, table):
            first.setdefault(record.id, read)
            fates[read] = "replayed"
        elif there is not None and (there[0] == BATCH or there[1] == CONFLICT):
            fates[read] = there[1]
        elif record.kind == "poison" or (record.kind == "odd" and table.contract.rules):
            fates[read] = FAILED
        else:
            winner = first.setdefault(record.id, read)
            same = winner.record.payload == record.payload or begun
            fates[read] = "winner" if winner is read or driver.world.planted.no_dedup else "loser" if same else CONFLICT
    present = _rows(driver)
    if table.contract.conflicts == "table" and not begun:
        for read, fate in fates.items():
            row = present.get(read.record.id)
            if row is None or fate in (FAILED, "replayed") or (fate == CONFLICT and read in stands):
                continue
            if row[3] != read.record.payload:
                fates[read] = CONFLICT
            elif fate == CONFLICT:
                fates[read] = "loser"
    for read, fate in fates.items():
        if read in stands and (fate == "loser" or (fate == "winner" and read.record.id in present)):
            fates[read] = "replayed"
    counts: dict[int, list[int]] = {}
    standing: dict[int, int] = {}
    for read, fate in fates.items():
        each = counts.setdefault(read.partition, [0, 0, 0, 0])
        each[0] += 1
        each[1] += fate in (FAILED, CONFLICT)
        each[2] += fate == "loser"
        each[3] += fate == "replayed"
        standing[read.partition] = standing.get(read.partition, 0) + (fate in (FAILED, CONFLICT) and stands.get(read, ("",))[0] == BATCH)
    failed = [(read, fate) for read, fate in fates.items() if fate in (FAILED, CONFLICT)]
    return Tally(
        [read for read, fate in fates.items() if fate == "winner"],
        failed,
        {partition: Counts(*count) for partition, count in counts.items()},
        standing,
        sum(read not in stands for read, _ in failed),
    )


def _standing(
    driver: Driver, table: Table, planned: PlannedBatch, *, begun: bool
) -> tuple[dict[int, tuple[object, ...]], dict[Read, tuple[str, str]]]:
    """Rows of the target by event id, if they are looked at; which records stand in quarantine, by whom and why."""
    again = table.ledger.read_before(planned.ranges, table.topic.id)
    quarantine = driver.world.tables.get(driver.places.quarantine) if begun or again else None
    stands = {}
    for read in driver.read:
        row = quarantine.newest.rows.get((table.topic.id, read.partition, read.offset)) if quarantine is not None else None
        if row is not None and (again or row[2] == planned.id):
            stands[read] = (BATCH if row[2] == planned.id else BEFORE, str(row[3]))
    return (_rows(driver) if again else {}), stands


def _rows(driver: Driver) -> dict[int, tuple[object, ...]]:
    target = driver.world.tables.get(driver.places.target)
    return {} if target is None else target.newest.rows


def _own(read: Read, rows: dict[int, tuple[object, ...]], table: Table) -> bool:
    """Whether the record is a row, at its own position."""
    row = rows.get(read.record.id)
    return row is not None and row[2] == (table.topic.id, read.partition, read.offset)
