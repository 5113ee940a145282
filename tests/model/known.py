"""What the model has found in the engine and what is not mended yet: told from what is new, so that a walk shows only that.

Each has its smallest schedule in tests/model/found.py, played as xfail(strict): once it is mended there, its line here goes too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.model.engine import ledger_rows
from tests.model.truth import Violation
from tests.model.world import ELSEWHERE, HOME, World


@dataclass(frozen=True)
class Known:
    """A finding; `is_it` says whether a violation can be this one."""

    name: str
    is_it: Callable[[World, Violation], bool]


LOST = ("I4", "LOST")


def _of_the_quarantine(world: World, found: Violation) -> bool:
    return found.promise == "LOST" and found.at in world.truth.quarantine_lost


KNOWN = (
    Known("restore-cleaned-up", lambda world, found: found.promise in (*LOST, "I1", "I2") and "restore cleaned up" in world.events),
    Known("beside-untold", lambda world, found: found.promise in LOST and _begun_late(world, found)),
    Known("cleaned-unprojected", lambda world, found: _of_the_quarantine(world, found) and _untold(world)),
    Known("stands-by-another", lambda world, found: _of_the_quarantine(world, found) and _replayed(world, found)),
)


def _replayed(world: World, found: Violation) -> bool:
    """Whether a batch in force that has read the lost record met some in its partition that stood in quarantine, or as a row, before."""
    assert found.at is not None
    topic_id, partition, offset = found.at
    marks = [commit.mark for commit in world.tables[HOME.target].in_force() if commit.mark is not None and commit.mark.topic_id == topic_id]
    readers = [mark for mark in marks if any(r.partition == partition and r.start <= offset < r.end for r in mark.ranges)]
    return any(counts.replayed for mark in readers for number, counts in mark.counts if number == partition)


def _begun_late(world: World, found: Violation) -> bool:
    """Whether a rebase of a table that nobody had read began behind the lost record, another checkpoint was at work, a batch had read
    that record, and the log tells of no batch that had read from before there and was left out."""
    if found.at is None or found.at in world.truth.quarantine_lost or ELSEWHERE not in world.events:
        return False
    topic_id, partition, offset = found.at
    read = any((t, p) == (topic_id, partition) and start <= offset < end for t, p, start, end in world.truth.ingested)
    late = {p: offset for told in world.truth.first_told.values() for p, offset in told.items() if offset > 0}
    target = world.tables.get(HOME.target)
    versions = [] if target is None else target.versions[target.log_from :]
    out = [each.commit.mark for each in versions if target is not None and each.commit.version not in target.newest.force]
    return (
        read
        and offset < late.get(partition, 0)
        and not any(r.start < late.get(r.partition, 0) for mark in out if mark is not None for r in mark.ranges)
    )


def _untold(world: World) -> bool:
    """Whether the target's log has lost a batch that the ledger does not have."""
    target, ledger = world.tables[HOME.target], world.tables[HOME.ledger]
    told = {(row.query_id, row.batch_id) for row in ledger_rows(ledger)}
    cleaned = (version.commit.mark for version in target.versions[: target.log_from])
    return any((mark.id.query_id, mark.id.number) not in told for mark in cleaned if mark is not None)


def known(world: World, violation: Violation) -> str | None:
    """The name of the known finding that this can be."""
    return next((each.name for each in KNOWN if each.is_it(world, violation)), None)
