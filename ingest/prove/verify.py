"""Verify a table: count what target and quarantine hold of each range, and hold it against ledger and commits (I4).

It does not re-add what the ledger says of itself: rows are counted by their provenance. It reads only; on the machine's own disk
with another engine than the one that wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ingest.contract import Contract
from ingest.delta_sql import At, Engine, quoted
from ingest.errors import InvalidInput
from ingest.files import files_of
from ingest.places import Places
from ingest.prove.against_kafka import Reread
from ingest.prove.balance import Finding, Total, check, total
from ingest.prove.count import QUARANTINE_POSITION, Counted, Rows, both, count, doubled, doubled_records
from ingest.prove.done import done_of, not_kept, not_written
from ingest.prove.piece import pieces
from ingest.prove.standing import Standing, Tables
from ingest.sql_type import Atomic
from ingest.stream.columns import event_id_columns, target_columns
from ingest.stream.delta_log import Commit, DeltaLog
from ingest.stream.in_force import InForce
from ingest.stream.ledger_row import LedgerRow, count_rows
from ingest.stream.ledger_summary import LedgerSummary, summary_of
from ingest.stream.mark import Counts, Mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# By name: somebody may have added a column of his own.
LEDGER = f"SELECT {', '.join(f'`{column.name}`' for column in fields(LedgerRow))} FROM {{ledger}}"
LEDGER += " ORDER BY query_id, batch_id, kind, topic_id, partition, start_offset"


@dataclass(frozen=True)
class Verified:
    """What was found of one table: the sums, the rows counted, those that a DELETE removed, gaps that somebody accepted, findings.

    `epochs` is how many checkpoints have written the table; `rows` are the ledger rows of all batches in force.
    """

    table: str
    total: Total
    target_rows: int
    quarantine_rows: int
    removed: int
    unledgered_batches: int
    epochs: int
    gaps_accepted: tuple[tuple[int, int, int], ...]
    rows: tuple[LedgerRow, ...]
    findings: tuple[Finding, ...]
    kafka: Reread | None = None


def verify(engine: Engine, contract: Contract, places: Places) -> Verified:
    """Hold ledger, commits, target, quarantine and checkpoint of one table against each other.

    Raises InvalidInput TABLE_MISSING, Refused LOG_TORN for a table that Delta does not open, and Unreadable.
    """
    files = files_of(places.lake, engine.session)
    log = DeltaLog(files, places.target)
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
    # What a run commits while we look must not look like a fault: each follows on what it was read after, the checkpoint on the
    # ledger's rows (read once), these on the target at one version, and the target on the quarantine.
    done = done_of(engine.session, places)
    kept = [LedgerRow(**row) for row in engine.ask(LEDGER, ledger=At(places.ledger))]
    summary = _summary(kept)
    told = [row for row in kept if row.kind == "rebase" and row.partition >= 0]
    epochs = [row for row in told if row.batch_id <= summary.ended.get(row.query_id, row.batch_id)]
    accepted = [row for row in kept if row.kind == "gap_accepted"]
    version = log.versions()[-1]
    commits = [(each, each.mark) for each in InForce(log, version).commits()]
    ours = [(each, mark) for each, mark in commits if mark is not None and f"{mark.pipeline}.{mark.table}" == places.name]
    late = _unledgered(engine.session, places, ours, summary)
    batches = [row for row in kept if row.kind == "batch"] + late

    # A rebase has said up to where the batches of the epochs before have no hole; the others are read again by a later one. One
    # that slipped in behind a RESTORE is in force all the same, and so are the rows that it brought.
    def ended(row: LedgerRow) -> bool:
        return row.batch_id > summary.ended.get(row.query_id, row.batch_id)

    rows = [row for row in batches if not ended(row)]
    in_force = {(mark.id.query_id, mark.id.number, commit.version) for commit, mark in ours}
    behind = [row for row in batches if ended(row) and (row.query_id, row.batch_id, row.target_version) in in_force]
    target = Rows(At(places.target, version))
    # At the version of this moment, so that it is one quarantine that is counted and compared.
    records = Rows(At(places.quarantine, DeltaLog(files, places.quarantine).newest()), QUARANTINE_POSITION, _of_batches(rows, behind))
    everything = replace(records, where="true")
    parts = pieces(rows + behind)
    in_target = count(engine, target, parts)
    in_quarantine = count(engine, records, parts)
    differ, removed = Standing(engine, Tables(target, records, everything), parts, in_target, in_quarantine).findings(log)
    of_bytes = {field.name: field.type == Atomic("BINARY") for field in target_columns(contract)}
    findings = [
        *check(rows, epochs, accepted),
        *_differs(rows + behind, ours),
        *differ,
        *_outside(in_target, in_quarantine),
        *doubled(engine, target.table, {name: of_bytes[name] for name in event_id_columns(contract)}),
        *doubled_records(engine, everything),
        *both(engine, target, replace(everything, where="state <> 'replayed'")),
        *not_written(done, rows, summary),
        *not_kept(before.pairs, done, places, rows, summary, log, max((row.target_version for row in told), default=-1)),
    ]
    return Verified(
        places.name,
        total(rows + behind),
        in_target.inside + in_target.outside,
        in_quarantine.inside + in_quarantine.outside,
        removed,
        len({(row.query_id, row.batch_id) for row in late}),
        len({row.query_id for row in (*rows, *epochs)}),
        tuple((row.partition, row.start_offset, row.end_offset) for row in accepted),
        tuple(rows + behind),
        tuple(findings),
    )


def _summary(kept: Sequence[LedgerRow]) -> LedgerSummary:
    """What these very rows say of each checkpoint; a summary of the ledger read at another moment could know more batches."""
    batches = [asdict(row) for row in kept if row.kind == "batch"]
    newest: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in sorted(batches, key=lambda row: int(row["batch_id"])):
        key = (row["query_id"], row["topic_id"], row["partition"])
        newest[key] = {**row, "reached": max(row["end_offset"], newest.get(key, row).get("reached", 0))}
    return summary_of(newest.values(), [asdict(row) for row in kept if row.kind == "rebase"], ())


def _of_batches(rows: Sequence[LedgerRow], behind: Sequence[LedgerRow]) -> str:
    """The quarantine up to the last batch of each checkpoint that the target holds, and of those behind a hole, as a condition.

    The quarantine is committed before the target (I7): a batch at hand, or one that a kill cut off in between, stands there already.
    """
    last: dict[str, int] = {}
    for row in rows:
        last[row.query_id] = max(last.get(row.query_id, -1), row.batch_id)
    known = [f"query_id = {quoted(query_id)} AND batch_id <= {number}" for query_id, number in last.items()]
    known += [f"query_id = {quoted(query)} AND batch_id = {batch}" for query, batch in sorted({(r.query_id, r.batch_id) for r in behind})]
    return " OR ".join(f"({each})" for each in known) or "false"


def _unledgered(
    session: SparkSession | None, places: Places, ours: Sequence[tuple[Commit, Mark]], summary: LedgerSummary
) -> list[LedgerRow]:
    """Rows of batches that the target's log has and the ledger has not yet: a run that was killed left them to the next one."""
    late: list[LedgerRow] = []
    for commit, mark in ours:
        if mark.id.number > summary.last_batch(mark.id.query_id):
            late += count_rows(session, places, commit, mark)
    return late


def _differs(rows: Sequence[LedgerRow], ours: Sequence[tuple[Commit, Mark]]) -> Iterator[Finding]:
    """The ledger against the commits that the log still has: ranges and counts of each partition, rows added by the whole batch."""
    by_batch: dict[tuple[str, int], list[LedgerRow]] = {}
    for row in rows:
        by_batch.setdefault((row.query_id, row.batch_id), []).append(row)
    for commit, mark in ours:
        kept = by_batch.get((mark.id.query_id, mark.id.number), [])
        counts = dict(mark.counts)
        told = {(r.partition, r.start, r.end, *_figures(counts.get(r.partition, Counts()))) for r in mark.ranges}
        has = {(r.partition, r.start_offset, r.end_offset, r.records_read, r.quarantined, r.replayed) for r in kept}
        if kept and (told != has or {r.target_version for r in kept} != {commit.version}):
            yield Finding("LEDGER_DIFFERS", f"has other ranges or counts in the ledger than in version {commit.version}", mark.id.number)
        added = [file.records for file in commit.added]
        inserted = sum(row.inserted for row in kept)
        if kept and None not in added and inserted != sum(number or 0 for number in added):
            what = f"inserted {inserted} rows by the ledger, version {commit.version} added {sum(number or 0 for number in added)}"
            yield Finding("LEDGER_DIFFERS", what, mark.id.number)


def _figures(counts: Counts) -> tuple[int, int, int]:
    return counts.read, counts.quarantined, counts.replayed


def _outside(target: Counted, quarantine: Counted) -> Iterator[Finding]:
    for name, counted in (("target", target), ("quarantine", quarantine)):
        if counted.outside:
            at = ", ".join(f"partition {partition} offset {offset} of topic id {topic}" for topic, partition, offset in counted.shown)
            yield Finding("ROWS_OF_NO_BATCH", f"the {name} holds {counted.outside} rows whose positions no batch covers: {at}")
