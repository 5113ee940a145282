"""What becomes of the records of a batch before anything is written: ingest/stream/decode.py, tally.py and conflict.py in small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.stream.batch import Table
from ingest.stream.mark import Counts
from tests.model.kafka import Read

if TYPE_CHECKING:
    from tests.model.driver import Driver


@dataclass(frozen=True)
class Tally:
    """The winners, one an event id; what goes to quarantine; the counts by partition."""

    winners: list[Read]
    failed: list[Read]
    counts: dict[int, Counts]


def tally(driver: Driver, table: Table) -> Tally:
    """Least (partition, offset) wins; copies of another payload are conflicts, in the batch or, as the contract says, in the table."""
    world = driver.world
    strict = bool(table.contract.rules)
    present = {}
    if table.contract.conflicts == "table" and (target := world.tables.get(driver.places.target)) is not None:
        present = target.newest.rows
    first: dict[int, Read] = {}
    fate: list[tuple[Read, str]] = []
    for read in sorted(driver.read):
        record = read.record
        if record.kind == "poison" or (record.kind == "odd" and strict):
            fate.append((read, "failed"))
            continue
        winner = first.setdefault(record.id, read)
        what = "winner" if winner is read or world.planted.no_dedup else "loser" if winner.record.payload == record.payload else "failed"
        if (row := present.get(record.id)) is not None:
            own = row[2] == (table.topic.id, read.partition, read.offset)
            same = row[3] == record.payload or own
            what = "failed" if not same else "loser" if what == "failed" else what
        fate.append((read, what))
    counts: dict[int, list[int]] = {}
    for read, what in fate:
        count = counts.setdefault(read.partition, [0, 0, 0])
        count[0] += 1
        count[1] += what == "failed"
        count[2] += what == "loser"
    return Tally(
        [read for read, what in fate if what == "winner"],
        [read for read, what in fate if what == "failed"],
        {partition: Counts(*count) for partition, count in counts.items()},
    )
