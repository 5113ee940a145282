"""Applies a changed contract to its table in place (I9), and lists the pending changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.contract.definition import Contract
from ingest.delta import contract_change
from ingest.delta.batch_commit import app_id
from ingest.delta.contract_change import Change
from ingest.delta.delta_log import DeltaLog
from ingest.ledger.ledger_reader import LedgerState
from ingest.recovery import refusals
from ingest.recovery.state_reader import read_target
from ingest.run import table_lock
from ingest.runtime.files import Files, files_of
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def differences(session: SparkSession | None, contract: Contract, places: Places) -> list[Change]:
    """The differences between a contract and its table; empty if there is no table yet. Local places need no session."""
    log = DeltaLog(files_of(places.lake, session), places.target)
    state = log.state()
    if state is None:
        return []
    batch_commits = (commit.batch_commit for commit in log.newest_first())
    last = next(
        (
            batch_commit.contract_hash
            for batch_commit in batch_commits
            if batch_commit is not None and batch_commit.kind in ("batch", "seek")
        ),
        None,
    )
    return contract_change.changes(contract, state, last)


def refuse_foreign(files: Files, places: Places) -> None:
    """Raises Refused TABLE_FOREIGN if `ingest run` did not create the table: a start would refuse it, so it is not altered either."""
    log = DeltaLog(files, places.target)
    state = log.state()
    if state is None or app_id(places.pipeline, places.table) in state.transactions:
        return
    start_state = read_target(log, state, places, LedgerState())
    if not start_state.blank:
        raise refusals.table_foreign(places.name, places.target, start_state.other)


def alter(session: SparkSession, contract: Contract, places: Places) -> list[Change]:
    """Apply the changes that can be made in place, and return them.

    Raises Refused TABLE_FOREIGN, LOCKED, CONTRACT_CHANGED, InvalidInput RULE_INVALID.
    """
    from ingest.decode.rule_check import check_rules
    from ingest.delta import writer

    refuse_foreign(files_of(places.lake, session), places)
    check_rules(session, contract)
    with table_lock.holding(session, places):
        found = differences(session, contract, places)
        due = [change for change in found if change.effect == "apply"]
        contract_change.refuse(contract, places.target, [change for change in found if change.effect == "new table"])
        writer.alter(session, contract, places.target, [change.statement for change in due])
        return due
