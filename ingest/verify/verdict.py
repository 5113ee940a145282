"""Verify a table: count the rows of target and quarantine by batch, and compare the counts with ledger and commits (I4).

It counts rows instead of adding up the ledger's own numbers, and writes nothing. On a local disk it uses another engine than the writer's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.delta.batch_commit import FIRST_BATCH, BatchId, Snapshot, app_id
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import Engine
from ingest.delta.log_errors import table_missing
from ingest.kafka.intervals import Intervals
from ingest.ledger.batch_history import BatchHistory, batch_history
from ingest.ledger.ledger_row import LedgerRow
from ingest.runtime.files import files_of
from ingest.runtime.places import Places
from ingest.verify.against_kafka import Reread
from ingest.verify.balance import Finding, Total, check, pending, total
from ingest.verify.count import Account, TableRows, account
from ingest.verify.deletions import Removed
from ingest.verify.duplicates import doubled

# Why an epoch began, if it may begin before the offset that earlier epochs have reached.
GOES_BACK = ("seek", "rebuild")


@dataclass(frozen=True)
class Uncommitted:
    """Quarantined records of a batch that is not committed: it is in progress, or was cut off."""

    epoch: int
    batch: int
    records: int


@dataclass(frozen=True)
class Verified:
    """The result of verifying one table.

    `deletes` are the DELETE commits that removed rows. `pending` are the offsets that the newest epoch has yet to read again,
    `gaps_accepted` the offsets that seeks left out, both as (partition, start, end). `unledgered_batches` counts the batches that only the
    target's log has. `rows` are the ledger rows of all batches, `retired` those that count what retention and erasures removed. `rebuilt`
    is the first epoch of the newest rebuild (0: none); everything else is about the epochs from there on, but for earlier gaps that the
    rebuild did not read either. `topics` has the topic id of each epoch.
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
    tables: Mapping[str, Snapshot]
    seeks: int
    findings: tuple[Finding, ...]
    kafka: Reread | None = None
    retired: tuple[LedgerRow, ...] = ()
    rebuilt: int = 0
    topics: Mapping[int, str] = field(default_factory=dict)


def verify(engine: Engine, contract: Contract, places: Places) -> Verified:
    """Compare ledger, commits, target and quarantine of one table.

    Raises InvalidInput TABLE_MISSING, Refused LOG_TORN for a table that Delta cannot open, and Unreadable.
    """
    files = files_of(places.lake, engine.session)
    states = {path: DeltaLog(files, path).state() for path in (places.target, places.quarantine, places.ledger)}
    missing = [path for path, state in states.items() if state is None]
    before, ledger = states[places.target], states[places.ledger]
    if missing or before is None or ledger is None:
        raise table_missing(contract.name, ", ".join(missing))
    # Commits of a run in the meantime must not look like faults. So each table is read after those that it may be ahead of.
    read = batch_history(engine, places)
    counted = account(engine, places, read)
    findings = [
        *check(read),
        *_not_known(before.transactions, places, read),
        *(finding for each in counted.judged for finding in each.findings()),
        *counted.unknown,
        *doubled(engine, counted, event_id_columns(contract), read.topics),
    ]
    tables = {"ledger": ledger.snapshot}
    for name, at in (("target", counted.target), ("quarantine", counted.quarantine)):
        version, state = at.version or 0, states[at.path]
        tables[name] = Snapshot(state.id if state else "", version, DeltaLog(files, at.path).stamp(version))
    return _verified(places, read, counted, tables, findings)


def _not_known(transactions: dict[str, int], places: Places, read: BatchHistory) -> Iterator[Finding]:
    """BATCH_MISSING for the last batch by Delta's transaction id, if neither ledger nor log has it."""
    last = BatchId.of(transactions.get(app_id(places.pipeline, places.table), 0))
    if last.number >= FIRST_BATCH and read.last.get(last.epoch, -1) < last.number:
        yield Finding("BATCH_MISSING", "is committed by its transaction id, but is in neither ledger nor log", last.epoch, last.number)


def _verified(places: Places, read: BatchHistory, counted: Account, tables: Mapping[str, Snapshot], findings: list[Finding]) -> Verified:
    newest = max(read.topics.items(), default=(0, ""))[1]
    uncommitted: dict[tuple[int, int], int] = {}
    for (epoch, batch, _), records in counted.uncommitted.items():
        uncommitted[epoch, batch] = uncommitted.get((epoch, batch), 0) + records
    return Verified(
        places.name,
        total(read.batches, read.replays),
        len(read.topics),
        counted.held("target"),
        counted.held("quarantine"),
        counted.removed,
        tuple(Uncommitted(*id, records) for id, records in sorted(uncommitted.items())),
        tuple((partition, *offsets) for (topic, partition), offsets in sorted(pending(read).items()) if topic == newest),
        (*_former_gaps(read, newest), *((row.partition, row.start_offset, row.end_offset) for row in read.gaps)),
        len(read.late),
        read.batches,
        tables,
        len({row.epoch for row in read.begins if row.why in GOES_BACK}),
        tuple(findings),
        retired=read.retired,
        rebuilt=read.rebuilt,
        topics=read.topics,
    )


def _former_gaps(read: BatchHistory, topic_id: str) -> Iterator[tuple[int, int, int]]:
    """The gaps that were accepted before a rebuild, as far as the rebuild did not read them."""
    for row in read.former_gaps:
        if row.topic_id == topic_id:
            left_out = Intervals.of([(row.start_offset, row.end_offset)]).minus(read.covered(topic_id, row.partition))
            yield from ((row.partition, start, end) for start, end in left_out)
