"""Read the start state from target, quarantine, ledger and checkpoints, for `decide`. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from ingest.delta.batch_commit import NO_BATCH, POSITIONED, Batch, BatchId, Create, Snapshot, State, Swap, app_id
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import Unreadable, asked
from ingest.delta.posting import Key, Posting
from ingest.delta.reachable import reverts
from ingest.delta.table_state import TableState
from ingest.kafka.topic_state import TopicState
from ingest.ledger.ledger_line import lines_of
from ingest.ledger.ledger_reader import LedgerState, Newest, read_ledger
from ingest.recovery import refusals
from ingest.recovery.start_state import CheckpointState, QuarantineState, Replaced, RowCount, StartState, TargetState
from ingest.runtime.canonical_json import read_json
from ingest.runtime.files import Files, files_of
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION = "delta.setTransactionRetentionDuration"
EPOCH_FILE = "oncelake/epoch.json"
EPOCH_DIGITS = 10


def read_start_state(session: SparkSession | None, places: Places, logs: Logs, broker: Callable[[], TopicState | None]) -> StartState:
    """Read the start state and ask `broker` for the topic. A lake on a local disk needs no session.

    Raises Refused LOG_TORN or LEDGER_UNREADABLE, Unreadable, and the errors of `broker`.
    """
    # Another process may commit while this one reads. Records about the target (checkpoint, ledger, the quarantine's fence) are therefore
    # read before the target, and the quarantine, about which the target has records, after it. So a commit in between never looks like
    # a loss.
    checkpoint = read_checkpoint(files_of(places.checkpoints, session), places.checkpoint)
    ledger_state = logs.ledger.state()
    try:
        ledger = read_ledger(session, logs.ledger, places.name)
    except Unreadable as error:
        raise refusals.ledger_unreadable(places.name, places.ledger, error.why) from error
    quarantine_before = logs.quarantine.state()
    target_state = logs.target.state()
    target = read_target(logs.target, target_state, places, ledger)
    quarantine_state = logs.quarantine.state()
    quarantine = read_quarantine(logs.quarantine, quarantine_state, places, target.newest)
    quarantine = replace(quarantine, epoch=epoch_of(quarantine_before, places))
    target = replace(target, copy=copied(logs.target, target_state, target.newest, quarantine))
    states = {places.target: target_state, places.quarantine: quarantine_state}
    retention = tuple(path for path, state in states.items() if state is not None and RETENTION in state.properties)
    ledger_snapshot = ledger_state.snapshot if ledger_state is not None else None
    start_state = StartState(places.name, target, quarantine, ledger, checkpoint, broker(), retention, None, ledger_snapshot)
    if start_state.broker is not None:
        start_state = replace(start_state, taken_back=start_state.broker.taken_back(start_state.read_to))
    return replace(start_state, count=_count(session, places)) if start_state.needs_count else start_state


def read_target(log: DeltaLog, state: TableState | None, places: Places, ledger: LedgerState) -> TargetState:
    """Read the target's log, from the newest commit back to the newest batch or seek that the ledger has."""
    if state is None:
        return TargetState(log.table)
    newest, other = ledger.newest, None
    opened: tuple[Posting, ...] = ()
    said: set[Key] = set()
    posted = NO_BATCH
    for commit in log.newest_first():
        if (batch_commit := commit.batch_commit) is None:
            continue
        if batch_commit.name != places.name:
            other = other or batch_commit.name
            continue
        if isinstance(batch_commit.case, POSITIONED):
            if newest is None or batch_commit.id > newest.id or (batch_commit.id == newest.id and newest.snapshots is None):
                at = batch_commit.ends, batch_commit.snapshots, commit.version, batch_commit.read_to
                newest = Newest(batch_commit.id, batch_commit.topic, *at)
                opened = tuple(each for each in batch_commit.opened if each.key not in said)
            if ledger.newest is not None and batch_commit.id <= ledger.newest.id:
                break
        elif isinstance(batch_commit.case, State):
            posted = max(posted, batch_commit.id)
        said |= {line.posting.key for line in lines_of("target", commit, batch_commit) if line.completes}
    txn = state.transactions.get(app_id(places.pipeline, places.table))
    since = (
        newest.snapshots.target.version
        if newest is not None and newest.snapshots is not None
        else newest.version
        if newest is not None
        else None
    )
    in_log = newest is not None and newest.snapshots is not None  # then it does not matter how far the log goes back
    whole = in_log or log.whole()
    return TargetState(
        log.table,
        state.snapshot,
        BatchId.of(txn) if txn is not None else None,
        newest,
        other,
        not in_log and whole and _blank(log, places),
        whole,
        replaced_since(log, newest, since),
        opened=opened,
        posted=posted,
    )


def copied(log: DeltaLog, state: TableState | None, newest: Newest | None, quarantine: QuarantineState) -> str | None:
    """Why the target is not the table that its newest batch or seek, or our newest commit on the quarantine, recorded; None if it is.

    A copy has another table id, lacks the recorded version, or has another stamp at it. A version that Delta has cleaned from the log
    proves nothing.
    """
    for then in (newest.snapshots.target if newest is not None and newest.snapshots is not None else None, quarantine.saw):
        if then is None or state is None:
            continue
        if then.table_id != state.snapshot.table_id:
            return f"its table id is {state.snapshot.table_id}, but was {then.table_id}"
        # The log is listed again: the quarantine was read after the target's state, and another run may have committed since.
        if log.lacks(then.version, then.stamp):
            return f"it is a copy: its version {then.version} is missing, or differs from the one that was recorded"
    return None


def read_quarantine(log: DeltaLog, state: TableState | None, places: Places, target: Newest | None) -> QuarantineState:
    """Read the quarantine's log, back to its newest batch or to a commit up to `target`, the target's newest batch or seek."""
    if state is None:
        return QuarantineState(log.table)
    newest, saw, settled = None, None, False
    for commit in log.newest_first():
        if (batch_commit := commit.batch_commit) is None or batch_commit.name != places.name:
            continue
        if batch_commit.snapshots is None:  # it belongs to no epoch
            continue
        saw = saw or batch_commit.snapshots.target
        if isinstance(batch_commit.case, Batch):
            newest = batch_commit.id
        # Transaction ids ascend in a log: every older commit belongs to a committed batch.
        settled = target is not None and batch_commit.id <= target.id
        if newest is not None or settled:
            break
    whole = settled or log.whole()
    snapshots: Snapshot | None = target.snapshots.quarantine if target is not None and target.snapshots is not None else None
    stamp = log.stamp(snapshots.version) if snapshots is not None else ""
    replaced = replaced_since(log, target, snapshots.version if snapshots is not None else None)
    return QuarantineState(log.table, state.snapshot, epoch_of(state, places), newest, whole, stamp, replaced, saw)


def epoch_of(state: TableState | None, places: Places) -> int:
    """The epoch of our transaction id in a table; 0 if it has none."""
    txn = state.transactions.get(app_id(places.pipeline, places.table)) if state is not None else None
    return BatchId.of(txn).epoch if txn is not None else 0


def read_checkpoint(files: Files, folder: str) -> CheckpointState:
    """The highest epoch in the checkpoints' folder, with its table id. A missing or torn file is no error: the folder is a cache."""
    epochs = checkpoints(files, folder)
    if not epochs:
        return CheckpointState()
    try:
        table_id = str(read_json(files.read(f"{folder}/{epochs[-1]}/{EPOCH_FILE}") or b"")["table_id"])
    except (ValueError, KeyError, TypeError):
        table_id = ""
    return CheckpointState(epochs[-1], table_id)


def checkpoints(files: Files, folder: str) -> list[int]:
    """The epochs whose checkpoints are in the folder, ascending."""
    # A longer number was never an epoch of ours: it would not fit into a transaction id.
    return sorted(int(name) for name in files.names(folder) if name.isdecimal() and len(name) < EPOCH_DIGITS)


def replaced_since(log: DeltaLog, newest: Newest | None, version: int | None) -> Replaced | None:
    """The first RESTORE, REPLACE or full overwrite after a version; None if the log has none. A swap up to `newest` is no replacement."""
    if version is None or newest is None:
        return None

    def replaces(commit: Commit) -> bool:
        ours = commit.batch_commit
        return reverts(commit) or (ours is not None and isinstance(ours.case, Swap) and ours.id > newest.id)

    found = [commit for commit in takewhile(lambda commit: commit.version > version, log.newest_first()) if replaces(commit)]
    if not found:
        return None
    ours = found[-1].batch_commit
    swapped = ours.case.first if ours is not None and isinstance(ours.case, Swap) else None
    return Replaced(found[-1].version, found[-1].operation, swapped)


def _blank(log: DeltaLog, places: Places) -> bool:
    """Whether the log contains only our own creation of the table, and fences. Expects a whole log."""
    return _created_by(log.commit(0), places) and not any(commit.added for commit in log.newest_first())


def _created_by(commit: Commit, places: Places) -> bool:
    created = commit.batch_commit
    return created is not None and isinstance(created.case, Create) and created.name == places.name


def _count(session: SparkSession | None, places: Places) -> RowCount:
    from ingest.verify.coverage import shortage

    return RowCount(*asked(places.lake, session, lambda engine: shortage(engine, places)))
