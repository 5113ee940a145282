"""Verify a table: count target and quarantine by the batch that put each row there, and hold that against ledger and commits (I4).

It does not re-add what the ledger says of itself, and it reads only; on the machine's own disk with another engine than the one that wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.delta.batch_commit import FIRST_BATCH, BatchId, app_id
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import Engine
from ingest.ledger.batch_history import BatchHistory, batch_history
from ingest.ledger.ledger_row import LedgerRow
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import files_of
from ingest.runtime.places import Places
from ingest.verify.against_kafka import Reread
from ingest.verify.balance import Finding, Total, check, pending, total
from ingest.verify.count import Account, TableRows, account
from ingest.verify.deletions import Removed
from ingest.verify.duplicates import doubled


@dataclass(frozen=True)
class Uncommitted:
    """Records in quarantine of a batch that is not committed: one at hand, or cut off."""

    epoch: int
    batch: int
    records: int


@dataclass(frozen=True)
class Verified:
    """What was found of one table. `deletes` are the DELETE commits that took rows, `pending` and `gaps_accepted` are (partition, start,
    end): offsets that the newest epoch has still to read again, and those that seeks left out. `rows` are the ledger rows of all batches.
    """

    table: str
    total: Total
    epochs: int
    target: TableRows
    quarantine: TableRows
    deletes: tuple[Removed, ...]
    uncommitted: tuple[Uncommitted, ...]
    pending: tuple[tuple[int, int, int], ...]
    gaps_accepted: tuple[tuple[int, int, int], ...]
    unledgered_batches: int
    rows: tuple[LedgerRow, ...]
    findings: tuple[Finding, ...]
    kafka: Reread | None = None


def verify(engine: Engine, contract: Contract, places: Places) -> Verified:
    """Hold ledger, commits, target and quarantine of one table against each other.

    Raises InvalidInput TABLE_MISSING, Refused LOG_TORN for a table that Delta does not open, and Unreadable.
    """
    files = files_of(places.lake, engine.session)
    states = {path: DeltaLog(files, path).state() for path in (places.target, places.quarantine, places.ledger)}
    missing = [path for path, state in states.items() if state is None]
    before = states[places.target]
    if missing or before is None:
        raise InvalidInput(
            "TABLE_MISSING",
            f"there is no Delta table at {', '.join(missing)}.",
            expected="a table that `ingest run` has made.",
            remedy=f"run `ingest run {contract.name}` first, or name the right --lake.",
        )
    # What a run commits while we look must not look like a fault: each is read after what it may be ahead of.
    read = batch_history(engine, places)
    counted = account(engine, places, read)
    findings = [
        *check(read),
        *_not_known(before.transactions, places, read),
        *(finding for each in counted.judged for finding in each.findings()),
        *counted.unknown,
        *doubled(engine, counted, event_id_columns(contract), read.topics),
    ]
    return _verified(places, read, counted, findings)


def _not_known(transactions: dict[str, int], places: Places, read: BatchHistory) -> Iterator[Finding]:
    """The batch that Delta keeps as the last one under our transaction id, where ledger and log have both lost it."""
    last = BatchId.of(transactions.get(app_id(places.pipeline, places.table), 0))
    if last.number >= FIRST_BATCH and read.last.get(last.epoch, -1) < last.number:
        yield Finding("BATCH_MISSING", "is committed by its transaction id, and in neither ledger nor log", last.epoch, last.number)


def _verified(places: Places, read: BatchHistory, counted: Account, findings: list[Finding]) -> Verified:
    newest = max(read.topics.items(), default=(0, ""))[1]
    uncommitted: dict[tuple[int, int], int] = {}
    for (epoch, batch, _), records in counted.uncommitted.items():
        uncommitted[epoch, batch] = uncommitted.get((epoch, batch), 0) + records
    return Verified(
        places.name,
        total(read.batches),
        len(read.topics),
        counted.held("target"),
        counted.held("quarantine"),
        counted.removed,
        tuple(Uncommitted(*id, records) for id, records in sorted(uncommitted.items())),
        tuple((partition, *offsets) for (topic, partition), offsets in sorted(pending(read).items()) if topic == newest),
        tuple((row.partition, row.start_offset, row.end_offset) for row in read.gaps),
        len(read.late),
        read.batches,
        tuple(findings),
    )
