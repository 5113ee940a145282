"""Applies a changed contract to its table in place (I9), and lists the pending changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ingest.contract.definition import Contract
from ingest.delta import contract_change
from ingest.delta.batch_commit import POSITIONED, app_id
from ingest.delta.contract_change import Change
from ingest.delta.delta_log import DeltaLog
from ingest.delta.our_commits import newest_first
from ingest.ledger.ledger_reader import LedgerState
from ingest.recovery import refusals
from ingest.recovery.state_reader import read_target
from ingest.run import table_lock
from ingest.run.writer_setting import Writer, writer_setting
from ingest.runtime.errors import InvalidInput
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
    last = next((batch_commit.contract_hash for _, batch_commit in newest_first(log, places.name, *POSITIONED)), None)
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


def alter(start: Callable[[], SparkSession], contract: Contract, places: Places) -> list[Change]:
    """Apply the changes that can be made in place, and return them. `start` is called if Spark has to make them.

    Raises Refused TABLE_FOREIGN, LOCKED, CONTRACT_CHANGED, InvalidInput RULE_INVALID.
    """
    from ingest.delta.direct_writer import DirectWriter
    from ingest.run.writer_choice import refuse_direct

    if writer_setting() is not Writer.SPARK:
        try:
            refuse_direct(contract, places)  # its rules are right, too: it has compiled them
            return _altered(None, contract, places, lambda _: DirectWriter().alter(contract, places))
        except InvalidInput as error:
            if error.code != "DIRECT_UNFIT":
                raise
    return _altered_by_spark(start(), contract, places)


def _altered_by_spark(session: SparkSession, contract: Contract, places: Places) -> list[Change]:
    from ingest.decode.rule_check import check_rules
    from ingest.delta import writer

    def run(due: Sequence[Change]) -> None:
        writer.alter(session, contract, places.target, [change.statement for change in due])

    refuse_foreign(files_of(places.lake, session), places)  # before the rules: it takes no time
    check_rules(session, contract)
    return _altered(session, contract, places, run)


def _altered(session: SparkSession | None, contract: Contract, places: Places, change: Callable[[Sequence[Change]], None]) -> list[Change]:
    refuse_foreign(files_of(places.lake, session), places)
    with table_lock.holding(session, places):
        found = differences(session, contract, places)
        contract_change.refuse_impossible(contract, places.target, found)
        if due := [each for each in found if each.effect == "apply"]:
            change(due)
        return due
