"""Swap a rebuilt shadow in: the quarantine first, then one overwrite of the target, which also commits the next offsets (I1, I7).

The commit says `rebuild:<first epoch of the shadow>`. From then on verify counts only the epochs of the rebuild; the ledger keeps the
earlier ones.

After a crash between the two overwrites a start is refused with QUARANTINE_REWOUND. The seek that it names mends the table. The shadow must
then be built anew, because its epochs are in use. After a crash behind them, verify finds rows of no batch until `ingest rebuild --swap` is
repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from ingest.contract.definition import Contract
from ingest.delta import writer as commits
from ingest.delta.batch_commit import BatchCommit
from ingest.delta.commit import Commit
from ingest.delta.delta_log import Logs
from ingest.delta.delta_sql import Spark, asked
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicState
from ingest.ledger.batch_history import batch_history
from ingest.ledger.ledger_reader import ledger_rows
from ingest.rebuild.shadow import is_begun, shadow_of
from ingest.recovery.epoch import open_epoch
from ingest.recovery.look_back import LookBack
from ingest.recovery.state_reader import read_start_state
from ingest.runtime import crash_points
from ingest.runtime.errors import InvalidInput, Refused
from ingest.runtime.places import Places
from ingest.verify.verdict import verify


@dataclass(frozen=True)
class Swapped:
    """A swap: its epoch, the rows before and after, and the version to which `RESTORE` would go back."""

    epoch: int
    rows_before: int
    rows_after: int
    version_before: int


def swap(session: SparkSession, contract: Contract, places: Places, ask: Callable[[], TopicState]) -> Swapped:
    """Replace the table's rows and quarantine by the shadow's. The caller holds both locks.

    Raises InvalidInput SHADOW_MISSING, Refused SHADOW_UNBALANCED, SHADOW_BEHIND and SHADOW_OLD, and the errors of `open_epoch`.
    """
    shadow = shadow_of(places)
    first = _checked(session, contract, places)
    state = read_start_state(session, shadow, Logs.of(shadow, session), lambda: None)
    newest = state.target.newest
    assert newest is not None, "a shadow that balances has offsets"
    logs = Logs.of(places, session)
    if (done := _swapped(logs, first)) is not None:
        _copy_ledger(session, places, done)
        rows = session.read.format("delta").load(places.target).count()
        return Swapped(done.id.epoch, rows, rows, done.snapshots.target.version)
    last = state.target.epoch
    before = read_start_state(session, places, logs, lambda: None)
    ends = before.target.newest.ends if before.target.newest is not None else {}
    behind = {partition: end for partition, end in ends.items() if newest.ends.get(partition, 0) < end}
    if behind:
        raise Refused(
            "SHADOW_BEHIND",
            f"{places.name} has read further than its shadow: up to {' '.join(f'{p}:{end}' for p, end in sorted(behind.items()))}.",
            expected="a shadow that has read at least as far as the table.",
            remedy=f"stop the table's run, then `ingest rebuild {places.name}` again: it reads on.",
        )
    if before.target.epoch >= first:  # a swap was cut off, and a start has gone on since
        raise Refused(
            "SHADOW_OLD",
            f"{places.name} is in epoch {before.target.epoch}, but its shadow begins with epoch {first}.",
            expected="a shadow that was begun after the table's newest epoch.",
            remedy=f"`ingest rebuild {places.name} --restart` builds it anew.",
        )
    rows_before = session.read.format("delta").load(places.target).count()
    version_before = before.target.snapshot.version if before.target.snapshot is not None else -1
    ranges = tuple(OffsetRange(partition, end, end) for partition, end in sorted(newest.ends.items()))

    def statement(at_end: BatchCommit, look_back: LookBack, _: tuple[int, ...]) -> Commit:
        seek = replace(at_end, ranges=ranges, why=f"rebuild:{first}", reason="ingest rebuild --swap")

        def still() -> BatchCommit:
            return replace(seek, snapshots=look_back.again())

        records = session.read.format("delta").load(shadow.quarantine)
        commits.overwrite(records, look_back.quarantine, lambda: replace(still(), kind="rollback"))
        look_back.moved()
        crash_points.at("swap_quarantine", 0)
        rows = session.read.format("delta").load(shadow.target)
        commit = commits.overwrite(rows, look_back.target, still)
        crash_points.at("swap_target", 0)
        _copy_ledger(session, places, seek)
        return commit

    epoch = open_epoch(session, contract, places, ask, statement=statement, floor=last + 1)
    crash_points.at("swap_ledger", 0)
    epoch.ledger.append()
    rows_after = session.read.format("delta").load(places.target).count()
    return Swapped(epoch.writer.epoch, rows_before, rows_after, version_before)


def _swapped(logs: Logs, first: int) -> BatchCommit | None:
    """The BatchCommit of the swap of this shadow, if the table has it already."""
    found = (commit.batch_commit for commit in logs.target.newest_first() if commit.batch_commit is not None)
    return next((each for each in found if each.rebuilt == first), None)


def _copy_ledger(session: SparkSession, places: Places, seek: BatchCommit) -> None:
    """Copy the shadow's ledger rows. They name the version before the swap, because a later DELETE may explain missing rows."""
    shadow = shadow_of(places)
    kept = asked(places.lake, session, lambda engine: ledger_rows(engine, shadow))
    moved = [{**vars(row), "target_version": seek.snapshots.target.version} for row in kept]
    commits.merge_ledger(session, places.ledger, replace(seek, kind="ledger", ranges=(), gaps=()), moved)


def _checked(session: SparkSession, contract: Contract, places: Places) -> int:
    """Verify the shadow; returns its first epoch. Raises InvalidInput SHADOW_MISSING and Refused SHADOW_UNBALANCED."""
    shadow = shadow_of(places)
    if not is_begun(session, places):
        raise InvalidInput(
            "SHADOW_MISSING",
            f"there is no complete shadow of {places.name} at {shadow.root}.",
            expected="a shadow that `ingest rebuild` has filled.",
            remedy=f"`ingest rebuild {places.name}`, then compare, then --swap.",
        )
    found = verify(Spark(session), contract, shadow)
    if found.findings:
        raise Refused(
            "SHADOW_UNBALANCED",
            f"the shadow of {places.name} does not balance: {found.findings[0]}.",
            expected="a shadow that `ingest verify` would pass.",
            remedy=f"`ingest rebuild {places.name} --restart` builds it anew.",
        )
    return min(asked(places.lake, session, lambda engine: batch_history(engine, shadow)).topics)
