"""Looks at target, quarantine, ledger and checkpoints: reads the facts that `decide` decides on. It writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from ingest.delta.batch_commit import BatchId, Look, app_id
from ingest.delta.delta_log import Commit, DeltaLog, Logs, State
from ingest.delta.delta_sql import Unreadable, asked
from ingest.delta.reachable import leaves_out
from ingest.kafka.topic_state import BrokerFacts
from ingest.ledger.ledger_reader import LedgerFacts, Newest, ledger_facts
from ingest.recovery import refusals
from ingest.recovery.start_state import CheckpointFacts, Count, Facts, QuarantineFacts, Replaced, TargetFacts
from ingest.runtime.files import Files, files_of
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION = "delta.setTransactionRetentionDuration"
EPOCH_FILE = "oncelake/epoch.json"
EPOCH_DIGITS = 10


def look(session: SparkSession | None, places: Places, logs: Logs, broker: Callable[[], BrokerFacts | None]) -> Facts:
    """Read all that a start has to know, and ask `broker`; a lake on the machine's own disk needs no session.

    Raises Refused LOG_TORN or LEDGER_UNREADABLE, Unreadable, and what `broker` raises.
    """
    # A run beside this look (status, another driver) commits meanwhile. What tells of the target is read before it, what the target tells
    # of is read after it: so that what came in between is never taken for a loss.
    checkpoint = checkpoint_facts(files_of(places.checkpoints, session), places.checkpoint)
    ledger_state = logs.ledger.state()
    try:
        ledger = ledger_facts(session, logs.ledger)
    except Unreadable as error:
        raise refusals.ledger_unreadable(places.name, places.ledger, error.why) from error
    fenced = logs.quarantine.state()
    target_state = logs.target.state()
    target = target_facts(logs.target, target_state, places, ledger)
    quarantine_state = logs.quarantine.state()
    quarantine = quarantine_facts(logs.quarantine, quarantine_state, places, target.newest)
    quarantine = replace(quarantine, epoch=epoch_of(fenced, places))
    target = replace(target, copy=copied(logs.target, target_state, target.newest, quarantine))
    states = {places.target: target_state, places.quarantine: quarantine_state}
    retention = tuple(path for path, state in states.items() if state is not None and RETENTION in state.properties)
    ledger_look = ledger_state.look if ledger_state is not None else None
    facts = Facts(places.name, target, quarantine, ledger, checkpoint, broker(), retention, None, ledger_look)
    return replace(facts, count=_count(session, places)) if facts.needs_count else facts


def target_facts(log: DeltaLog, state: State | None, places: Places, ledger: LedgerFacts) -> TargetFacts:
    """What the target's log says, from the newest commit back to the newest batch or seek that the ledger has."""
    if state is None:
        return TargetFacts(log.table)
    newest, other = ledger.newest, None
    for commit in log.newest_first():
        if (mark := commit.mark) is None:
            continue
        if mark.name != places.name:
            other = other or mark.name
        elif mark.kind in ("batch", "seek"):
            if newest is None or mark.id > newest.id or (mark.id == newest.id and newest.looked is None):
                newest = Newest(mark.id, mark.topic, mark.ends, mark.looked, commit.version)
            if ledger.newest is not None and mark.id <= ledger.newest.id:
                break
    txn = state.transactions.get(app_id(places.pipeline, places.table))
    since = (
        newest.looked.target.version if newest is not None and newest.looked is not None else newest.version if newest is not None else None
    )
    told = newest is not None and newest.looked is not None  # then nobody asks how far the log goes back
    whole = told or log.whole()
    return TargetFacts(
        log.table,
        state.look,
        BatchId.of(txn) if txn is not None else None,
        newest,
        other,
        not told and whole and _blank(log, places),
        whole,
        replaced_since(log, since) if since is not None else None,
    )


def copied(log: DeltaLog, state: State | None, newest: Newest | None, quarantine: QuarantineFacts) -> str | None:
    """Why the target is not the one that its newest batch or seek, or our newest commit on the quarantine, looked at: its id, or the stamp
    of that version, differs. A version that is cleaned from the log tells nothing; one that the table has not reached does."""
    for then in (newest.looked.target if newest is not None and newest.looked is not None else None, quarantine.saw):
        if then is None or state is None:
            continue
        if then.table_id != state.look.table_id:
            return f"its table id is {state.look.table_id}, and was {then.table_id}"
        # The newest of now: the quarantine was read after the target's state, and a run beside this look may have gone on.
        if log.lacks(then.version, then.stamp):
            return f"it is a copy: its version {then.version} is missing, or another than was seen"
    return None


def quarantine_facts(log: DeltaLog, state: State | None, places: Places, target: Newest | None) -> QuarantineFacts:
    """What the quarantine's log says, beside the target's newest batch or seek."""
    if state is None:
        return QuarantineFacts(log.table)
    newest, saw, settled = None, None, False
    for commit in log.newest_first():
        if (mark := commit.mark) is None or mark.name != places.name:
            continue
        saw = saw or mark.looked.target
        if mark.kind == "batch":
            newest = mark.id
        # Transaction ids rise in a log: behind this one stands nothing that is not committed.
        settled = target is not None and mark.id <= target.id
        if newest is not None or settled:
            break
    whole = settled or log.whole()
    looked: Look | None = target.looked.quarantine if target is not None and target.looked is not None else None
    stamp = log.stamp(looked.version) if looked is not None else ""
    replaced = replaced_since(log, looked.version) if looked is not None else None
    return QuarantineFacts(log.table, state.look, epoch_of(state, places), newest, whole, stamp, replaced, saw)


def epoch_of(state: State | None, places: Places) -> int:
    """The epoch of our transaction id in a table; 0 for none."""
    txn = state.transactions.get(app_id(places.pipeline, places.table)) if state is not None else None
    return BatchId.of(txn).epoch if txn is not None else 0


def checkpoint_facts(files: Files, folder: str) -> CheckpointFacts:
    """The highest epoch in the folder of checkpoints. A file that is missing or torn says nothing: the folder is a cache."""
    epochs = checkpoints(files, folder)
    if not epochs:
        return CheckpointFacts()
    try:
        table_id = str(json.loads(files.read(f"{folder}/{epochs[-1]}/{EPOCH_FILE}") or b"")["table_id"])
    except (ValueError, KeyError, TypeError):
        table_id = ""
    return CheckpointFacts(epochs[-1], table_id)


def checkpoints(files: Files, folder: str) -> list[int]:
    """The epochs whose checkpoints are in the folder, ascending."""
    # A longer number was never an epoch of ours, and no transaction id could hold it.
    return sorted(int(name) for name in files.names(folder) if name.isdecimal() and len(name) < EPOCH_DIGITS)


def replaced_since(log: DeltaLog, version: int) -> Replaced | None:
    """The first RESTORE, REPLACE or full overwrite after a version; None where the log has none."""
    found = [commit for commit in takewhile(lambda commit: commit.version > version, log.newest_first()) if leaves_out(commit)]
    return Replaced(found[-1].version, found[-1].operation) if found else None


def _blank(log: DeltaLog, places: Places) -> bool:
    """Whether the log holds nothing but our own marked creation, and fences."""
    return _created_by(log.commit(0), places) and not any(commit.added for commit in log.newest_first())


def _created_by(commit: Commit, places: Places) -> bool:
    try:
        told = json.loads(commit.user_metadata or "")
        return (told["kind"], told["pipeline"], told["table"]) == ("created", places.pipeline, places.table)
    except (ValueError, KeyError, TypeError):
        return False


def _count(session: SparkSession | None, places: Places) -> Count:
    from ingest.verify.coverage import shortage

    return Count(*asked(places.lake, session, lambda engine: shortage(engine, places)))
