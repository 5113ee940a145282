"""Verify a table: count what target and quarantine hold of each range, and hold it against ledger and commits (I4).

It does not re-add what the ledger says of itself: rows are counted by their provenance. It reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.contract import Contract
from ingest.errors import InvalidInput, Refused
from ingest.files import files_of
from ingest.places import Places
from ingest.prove.balance import Finding, Segment, Total, check, segments, total
from ingest.stream.decode import event_id_columns
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger import LedgerRow, count_rows
from ingest.stream.offsets import CheckpointFiles

# A list of a thousand broken ids helps nobody; the first ones lead to the cause.
SHOWN_MAX = 20
POSITION = ("_topic_id", "_partition", "_offset")


@dataclass(frozen=True)
class Verified:
    """What was found of one table: the sums, the rows in the target, those that a DELETE removed, and the findings."""

    table: str
    total: Total
    target_rows: int
    quarantine_rows: int
    removed: int
    unledgered_batches: int
    findings: tuple[Finding, ...]


def verify(session: SparkSession, contract: Contract, places: Places) -> Verified:
    """Hold ledger, commits, target, quarantine and checkpoint of one table against each other. Raises InvalidInput TABLE_MISSING."""
    files = files_of(places.lake, session)
    log = DeltaLog(files, places.target)
    missing = [path for path in (places.target, places.quarantine, places.ledger) if not DeltaLog(files, path).exists()]
    if missing:
        raise InvalidInput(
            "TABLE_MISSING",
            f"there is no Delta table at {', '.join(missing)}.",
            expected="a table that `ingest run` has made.",
            remedy=f"run `ingest run {contract.name}` first, or name the right --lake.",
        )
    # What a run commits while we look must not look like a fault: the checkpoint is read first, the target at one version.
    done = _done(session, places)
    kept = [LedgerRow(**row.asDict()) for row in session.read.format("delta").load(places.ledger).where("kind = 'batch'").collect()]
    version = log.versions()[-1]
    late = _unledgered(session, places, log, kept, version)
    rows = kept + late
    target = session.read.format("delta").option("versionAsOf", version).load(places.target)
    quarantine = _of_batches(session.read.format("delta").load(places.quarantine), rows)
    parts = segments(rows)
    positions = target.select(*POSITION)
    in_target = _count(session, positions, parts)
    open_records = quarantine.where("state != 'replayed'").select(*(F.col(name[1:]).alias(name) for name in POSITION))
    in_quarantine = _count(session, open_records, parts)
    removed = _removed(session, log, places, [p for i, p in enumerate(parts) if in_target.get(i, 0) < p.inserted])
    findings = [
        *check(rows),
        *_compare(parts, in_target, in_quarantine, removed),
        *_outside(in_target, in_quarantine),
        *_doubled(target, event_id_columns(contract)),
        *_both(positions, open_records),
        *_checkpoint(done, rows),
    ]
    batches = len({(row.query_id, row.batch_id) for row in late})
    here, there = sum(in_target.values()), sum(in_quarantine.values())
    return Verified(places.name, total(rows), here, there, sum(removed.values()), batches, tuple(findings))


def _of_batches(quarantine: DataFrame, rows: Sequence[LedgerRow]) -> DataFrame:
    """The quarantine up to the last batch of each checkpoint that the target holds.

    The quarantine is committed before the target (I7): a batch at hand, or one that a kill cut off in between, stands there already.
    """
    last: dict[str, int] = {}
    for row in rows:
        last[row.query_id] = max(last.get(row.query_id, -1), row.batch_id)
    known = F.lit(False)
    for query_id, number in last.items():
        known |= (F.col("query_id") == query_id) & (F.col("batch_id") <= number)
    return quarantine.where(known)


def _unledgered(session: SparkSession, places: Places, log: DeltaLog, kept: Sequence[LedgerRow], version: int) -> list[LedgerRow]:
    """Rows of batches that the target's log has and the ledger has not yet: a run that was killed left them to the next one."""
    known = {(row.query_id, row.batch_id) for row in kept}
    late: list[LedgerRow] = []
    for commit in log.newest_first():
        mark = commit.mark
        if mark is None or commit.version > version:
            continue
        if (mark.id.query_id, mark.id.number) in known:
            break
        late += count_rows(session, places, commit, mark)
    return late


def _count(session: SparkSession, positions: DataFrame, parts: Sequence[Segment]) -> dict[int, int]:
    """How many of the positions lie in each segment, by its index; -1 counts those in none.

    Both sides are cut into buckets of offsets, so that an ordinary hash join finds the segment of a position.
    """
    lengths = sum(part.end - part.start for part in parts)
    width = max(1, lengths // max(1, len(parts)))
    cut = [
        (part.topic_id, part.partition, bucket, part.start, part.end, index)
        for index, part in enumerate(parts)
        for bucket in range(part.start // width, (part.end - 1) // width + 1)
    ]
    schema = "_topic_id string, _partition int, bucket bigint, start bigint, end bigint, segment int"
    ranges = session.createDataFrame(cut, schema) if cut else session.createDataFrame([], schema)
    found = positions.withColumn("bucket", F.expr(f"_offset div {width}"))
    same = ["_topic_id", "_partition", "bucket"]
    on = [found[name] == ranges[name] for name in same] + [found["_offset"] >= ranges["start"], found["_offset"] < ranges["end"]]
    joined = found.join(F.broadcast(ranges), on, "left")
    counted = joined.groupBy(F.coalesce("segment", F.lit(-1)).alias("segment")).count().collect()
    return {row["segment"]: row["count"] for row in counted}


def _removed(session: SparkSession, log: DeltaLog, places: Places, short: Sequence[Segment]) -> dict[Segment, int]:
    """Rows that DELETE commits took out of segments that lack some, counted from the versions before and after."""
    if not short:
        return {}
    removed = dict.fromkeys(short, 0)
    deletes = [commit for commit in log.newest_first() if commit.operation == "DELETE" and commit.version > 0]
    for commit in deletes:
        before, after = (
            session.read.format("delta").option("versionAsOf", version).load(places.target).select(*POSITION)
            for version in (commit.version - 1, commit.version)
        )
        gone = _count(session, before.join(after, list(POSITION), "leftanti"), short)
        for index, count in gone.items():
            if index >= 0:
                removed[short[index]] += count
    return removed


def _compare(
    parts: Sequence[Segment], in_target: dict[int, int], in_quarantine: dict[int, int], removed: dict[Segment, int]
) -> Iterator[Finding]:
    for index, part in enumerate(parts):
        rows, gone, records = in_target.get(index, 0), removed.get(part, 0), in_quarantine.get(index, 0)
        if rows + gone != part.inserted:
            lost = f" and DELETE commits removed {gone}" if gone else ""
            yield part.finding("ROWS_DIFFER", f"the ledger says {part.inserted} rows were inserted, the target holds {rows}{lost}")
        if records != part.quarantined:
            what = f"the ledger says {part.quarantined} records went to quarantine, it holds {records}"
            yield part.finding("QUARANTINE_DIFFERS", what)


def _outside(in_target: dict[int, int], in_quarantine: dict[int, int]) -> Iterator[Finding]:
    for name, counted in (("target", in_target), ("quarantine", in_quarantine)):
        if counted.get(-1):
            yield Finding("ROWS_OF_NO_BATCH", f"the {name} holds {counted[-1]} rows whose positions no batch covers")


def _doubled(target: DataFrame, ids: Sequence[str]) -> Iterator[Finding]:
    for columns, noun in ((tuple(ids), "event id"), (POSITION, "position")):
        names = [F.col(f"`{name}`") for name in columns]
        where = F.slice(F.collect_list(F.struct("_partition", "_offset")), 1, SHOWN_MAX).alias("at")
        doubled = target.groupBy(*names).agg(F.count("*").alias("rows"), where).where("rows > 1").limit(SHOWN_MAX)
        for row in doubled.collect():
            values = ", ".join(str(row[name]) for name in columns)
            at = ", ".join(f"partition {p} offset {o}" for p, o in sorted(row["at"]))
            yield Finding("ROW_TWICE", f"{noun} ({values}) has {row['rows']} rows in the target: {at}")


def _both(positions: DataFrame, open_records: DataFrame) -> Iterator[Finding]:
    for row in positions.join(open_records, list(POSITION), "leftsemi").limit(SHOWN_MAX).collect():
        where = f"partition {row['_partition']} offset {row['_offset']} of topic id {row['_topic_id']}"
        yield Finding("IN_BOTH", f"{where} is a row of the target and stands in quarantine too")


def _done(session: SparkSession, places: Places) -> tuple[str | None, int] | Finding:
    """The checkpoint's query id and the last batch that Spark counts as done (-1: none); a finding if it cannot be read."""
    checkpoint = CheckpointFiles(files_of(places.checkpoint, session), places.checkpoint)
    try:
        return checkpoint.query_id(), max(checkpoint.numbers("commits"), default=-1)
    except Refused as error:
        return Finding(error.code, error.found)


def _checkpoint(done: tuple[str | None, int] | Finding, rows: Sequence[LedgerRow]) -> Iterator[Finding]:
    """What Spark counts as done must be in the table; a checkpoint that is not there is nothing to compare with."""
    if isinstance(done, Finding):
        yield done
        return
    query_id, last = done
    written = max((row.batch_id for row in rows if row.query_id == query_id), default=-1)
    if query_id is not None and last > written:
        there = "none" if written < 0 else str(written)
        yield Finding("BATCH_MISSING", f"is done in the checkpoint, but the last one that the table holds is {there}", last)
