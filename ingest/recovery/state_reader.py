"""Read the start state from target, quarantine, ledger and checkpoints, for `decide`. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from ingest.delta.batch_commit import NO_BATCH, POSITIONED, Batch, BatchId, Create, Snapshot, State, Swap, app_id
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import Unreadable, asked
from ingest.delta.posting import Key, Posting
from ingest.delta.reachable import copied, reverts
from ingest.delta.table_state import TableState
from ingest.kafka.offsets import Partition, Position, of_source
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.ledger_line import lines_of
from ingest.ledger.ledger_reader import LedgerState, Newest, read_ledger
from ingest.recovery import refusals
from ingest.recovery.numbering import Numbered
from ingest.recovery.start_state import CheckpointState, QuarantineState, Replaced, RowCount, StartState, TargetState
from ingest.runtime.canonical_json import read_json
from ingest.runtime.files import Files, files_of
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION = "delta.setTransactionRetentionDuration"
EPOCH_FILE = "oncelake/epoch.json"
EPOCH_DIGITS = 10


Broker = Callable[[], tuple[TopicState, ...]]
"""Asks for the states of a contract's topics."""


def read_start_state(session: SparkSession | None, places: Places, logs: Logs, broker: Broker | None) -> StartState:
    """Read the start state and ask `broker` for the topics. A lake on a local disk needs no session.

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
    target = replace(target, copy=copy_of(logs.target, target, quarantine))
    states = {places.target: target_state, places.quarantine: quarantine_state}
    retention = tuple(path for path, state in states.items() if state is not None and RETENTION in state.properties)
    ledger_snapshot = ledger_state.snapshot if ledger_state is not None else None
    known = broker() if broker is not None else None
    start_state = StartState(places.name, target, quarantine, ledger, checkpoint, known, retention, None, ledger_snapshot)
    if start_state.topics is not None:
        start_state = replace(start_state, taken_back=_taken_back(start_state.topics, start_state.read_to))
    return replace(start_state, count=_count(session, places)) if start_state.needs_count else start_state


def _taken_back(topics: Numbered, read_to: Mapping[Partition, Position]) -> dict[Partition, tuple[int, int]]:
    lost = {number: state.taken_back(of_source(read_to, number)) for number, state in topics.states.items()}
    return {(number, partition): offsets for number, here in lost.items() for partition, offsets in here.items()}


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
                newest = Newest(batch_commit.id, batch_commit.sources, *at)
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


def copy_of(log: DeltaLog, target: TargetState, quarantine: QuarantineState) -> str | None:
    """Why the target is not the table that its newest batch or seek, or our newest commit on the quarantine, recorded; None if it is."""
    seen = target.newest.snapshots.target if target.newest is not None and target.newest.snapshots is not None else None
    thens = [then for then in (seen, quarantine.saw) if then is not None]
    found = (copied(log, target.snapshot, then) for then in thens) if target.snapshot is not None else ()
    return next((each for each in found if each is not None), None)


def read_quarantine(log: DeltaLog, state: TableState | None, places: Places, target: Newest | None) -> QuarantineState:
    """Read the quarantine's log, back to its newest batch or to a commit up to `target`, the target's newest batch or seek."""
    if state is None:
        return QuarantineState(log.table)
    newest, saw, settled = None, None, False
    sources: tuple[TopicId, ...] = ()
    for commit in log.newest_first():
        if (batch_commit := commit.batch_commit) is None or batch_commit.name != places.name:
            continue
        if batch_commit.snapshots is None:  # it belongs to no epoch
            continue
        saw, sources = saw or batch_commit.snapshots.target, sources or batch_commit.sources
        if isinstance(batch_commit.case, Batch):
            newest = batch_commit.id
        # Transaction ids ascend in a log: every older commit belongs to a committed batch.
        settled = target is not None and batch_commit.id <= target.id
        if newest is not None or settled:
            break
    whole = settled or log.whole()
    then: Snapshot | None = target.snapshots.quarantine if target is not None and target.snapshots is not None else None
    copy = copied(log, state.snapshot, then) if then is not None else None
    replaced = replaced_since(log, target, then.version if then is not None else None)
    return QuarantineState(log.table, state.snapshot, epoch_of(state, places), newest, whole, copy, replaced, saw, sources)


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
