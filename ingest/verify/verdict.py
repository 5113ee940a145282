"""Verify a table: add up the rows of target and quarantine by batch, and compare the sums with the postings in commits and ledger (I4).

It writes nothing. On a local disk it uses another engine than the writer's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.decode.row_hash import Hashes
from ingest.delta.batch_commit import FIRST_BATCH, NO_BATCH, BatchId, Snapshot, app_id
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import Engine
from ingest.delta.log_errors import table_missing
from ingest.kafka.intervals import Intervals
from ingest.kafka.offsets import OffsetRange
from ingest.ledger.books import BEGIN, Books, read_books
from ingest.runtime.files import files_of
from ingest.runtime.places import Places
from ingest.verify.against_kafka import Reread
from ingest.verify.balance import Finding, Total, check, pending, total
from ingest.verify.count import Account, TableRows, account
from ingest.verify.deletions import Removed
from ingest.verify.duplicates import AT_ONCE, doubled


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
    `gaps_accepted` those that seeks left out. `unledgered` counts the statements that only the tables' logs have. `rebuilt` is the first
    epoch of the newest rebuild (0: none); everything else is about the epochs from there on, but for earlier gaps that the rebuild did not
    read either.
    """

    table: str
    total: Total
    epochs: int
    target: TableRows
    quarantine: TableRows
    deletes: tuple[Removed, ...]
    uncommitted: tuple[Uncommitted, ...]
    pending: tuple[OffsetRange, ...]
    gaps_accepted: tuple[OffsetRange, ...]
    unledgered: int
    books: Books
    tables: Mapping[str, Snapshot]
    seeks: int
    findings: tuple[Finding, ...]
    kafka: Reread | None = None
    rebuilt: int = 0


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
    books = read_books(engine, places)
    hashes: list[Hashes] | None = [] if sum(line.posting.inserted for line in books.lines) <= AT_ONCE else None
    counted = account(engine, places, books, hashes)
    findings = [
        *check(books),
        *_not_known(before.transactions, places, books),
        *counted.findings(engine),
        *doubled(engine, counted, event_id_columns(contract), hashes),
    ]
    tables = {"ledger": ledger.snapshot}
    for held in (counted.target, counted.quarantine):
        version, state = held.at.version or 0, states[held.at.path]
        tables[held.name] = Snapshot(state.id if state else "", version, DeltaLog(files, held.at.path).stamp(version))
    return _verified(places, counted, tables, findings)


def _not_known(transactions: dict[str, int], places: Places, books: Books) -> Iterator[Finding]:
    """BATCH_MISSING for the last batch by Delta's transaction id, if neither ledger nor log has it."""
    last = BatchId.of(transactions.get(app_id(places.pipeline, places.table), 0))
    known = max((line.id for line in books.lines if line.of_table == "target"), default=NO_BATCH)
    if last.number >= FIRST_BATCH and known < last:
        yield Finding("BATCH_MISSING", "is committed by its transaction id, but is in neither ledger nor log", last.epoch, last.number)


def _verified(places: Places, counted: Account, tables: Mapping[str, Snapshot], findings: list[Finding]) -> Verified:
    books = counted.books
    uncommitted: dict[tuple[int, int], int] = {}
    for key, sums in counted.quarantine.uncommitted.items():
        uncommitted[key.epoch, key.batch] = uncommitted.get((key.epoch, key.batch), 0) + sums.rows
    # The next runs read no other topics than the newest epoch.
    lines = (*books.of(*BEGIN), *books.batches)
    topics = {line.posting.key.source for line in lines if line.posting.key.epoch == books.epochs[-1]}
    to_reread = (OffsetRange(of[1], *offsets, source=of[0]) for of, offsets in sorted(pending(books).items()))
    gaps = (at for line in books.of("gap") if (at := line.posting.range) is not None)
    return Verified(
        places.name,
        total(books),
        len(books.epochs),
        counted.rows("target"),
        counted.rows("quarantine"),
        (*counted.target.removed, *counted.quarantine.removed),
        tuple(Uncommitted(*id, records) for id, records in sorted(uncommitted.items())),
        tuple(each for each in to_reread if each.source in topics),
        (*_former_gaps(books, topics), *gaps),
        books.late,
        books,
        tables,
        len({line.id.epoch for line in books.of("seek", "rebuild")}),
        tuple(findings),
        rebuilt=books.rebuilt,
    )


def _former_gaps(books: Books, topics: Collection[int]) -> Iterator[OffsetRange]:
    """The gaps in these topics that were accepted before a rebuild, as far as the rebuild did not read them."""
    for line in books.former_gaps:
        if (at := line.posting.range) is not None and at.source in topics:
            left_out = Intervals.of([(at.start, at.end)]).minus(books.covered(at.of))
            yield from (OffsetRange(at.partition, *offsets, source=at.source) for offsets in left_out)
