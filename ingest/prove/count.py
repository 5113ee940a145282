"""Counts rows of target and quarantine by their provenance, in the offset ranges that batches cover. It reads only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.prove.balance import Finding, Segment
from ingest.stream.delta_log import Commit, DeltaLog
from ingest.stream.in_force import InForce, leaves_out

# A list of a thousand broken ids helps nobody; the first ones lead to the cause.
SHOWN_MAX = 20
POSITION = ("_topic_id", "_partition", "_offset")


@dataclass(frozen=True)
class Counted:
    """How many rows lie in each segment, by its index, and the positions of some that lie in none with their number."""

    by_segment: dict[int, int]
    outside: int
    shown: tuple[tuple[str, int, int], ...]

    @property
    def inside(self) -> int:
        """Rows in any segment."""
        return sum(self.by_segment.values())


def count(session: SparkSession, positions: DataFrame, parts: Sequence[Segment]) -> Counted:
    """Count `positions` (columns of POSITION) by segment.

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
    joined = found.join(F.broadcast(ranges), on, "left").select(*(found[name] for name in POSITION), "segment")
    rows = joined.groupBy(F.coalesce("segment", F.lit(-1)).alias("segment")).count().collect()
    counted = {row["segment"]: row["count"] for row in rows}
    outside = counted.pop(-1, 0)
    strays = joined.where("segment IS NULL").orderBy(*POSITION).limit(SHOWN_MAX).collect() if outside else []
    return Counted(counted, outside, tuple((row["_topic_id"], row["_partition"], row["_offset"]) for row in strays))


@dataclass(frozen=True)
class Removed:
    """Rows that DELETE commits took, by segment; `untold` is the number of those that only a commit's own figure tells of."""

    by_segment: dict[Segment, int]
    untold: int


def deletes(log: DeltaLog, version: int | None = None) -> Iterator[Commit]:
    """The DELETE commits up to `version` (None: the newest) but for those that a RESTORE undid, which have taken nothing.

    Behind a replacement or an overwrite, which end the chain of commits in force, they still have: it was made of what they left.
    """
    while version is None or version >= 0:
        last: Commit | None = None
        for last in InForce(log, version).commits():
            if last.operation == "DELETE" and last.version > 0:
                yield last
        if last is None or last.operation == "RESTORE" or not leaves_out(last):
            return
        version = last.version - 1


def removed(session: SparkSession, table: str, commits: Iterable[Commit], short: Sequence[Segment]) -> Removed:
    """Rows that the DELETE `commits` took out of segments that lack some, counted from the versions before and after.

    Where VACUUM has taken the files of those versions, the figure in the commit has to do.
    """
    if not short:
        return Removed({}, 0)
    found = dict.fromkeys(short, 0)
    untold = 0
    for commit in commits:
        try:
            gone = count(session, taken(session, table, commit), short).by_segment
        except PySparkException:
            untold += int(commit.metrics.get("numDeletedRows") or 0)
            continue
        for index, number in gone.items():
            found[short[index]] += number
    return Removed(found, untold)


def taken(session: SparkSession, table: str, commit: Commit) -> DataFrame:
    """The positions (columns of POSITION) that a DELETE commit took: in the version before it and not in its own."""
    before, after = (
        session.read.format("delta").option("versionAsOf", version).load(table).select(*POSITION)
        for version in (commit.version - 1, commit.version)
    )
    return before.join(after, list(POSITION), "leftanti")


def doubled(target: DataFrame, ids: Sequence[str]) -> Iterator[Finding]:
    """Event ids and positions that more than one row has."""
    for columns, noun in ((tuple(ids), "event id"), (POSITION, "position")):
        names = [F.col(f"`{name}`") for name in columns]
        where = F.slice(F.collect_list(F.struct("_partition", "_offset")), 1, SHOWN_MAX).alias("at")
        twice = target.groupBy(*names).agg(F.count("*").alias("rows"), where).where("rows > 1").limit(SHOWN_MAX)
        for row in twice.collect():
            values = ", ".join(str(row[name]) for name in columns)
            at = ", ".join(f"partition {p} offset {o}" for p, o in sorted(row["at"]))
            yield Finding("ROW_TWICE", f"{noun} ({values}) has {row['rows']} rows in the target: {at}")


def both(positions: DataFrame, open_records: DataFrame) -> Iterator[Finding]:
    """Positions that stand in the target and, open, in quarantine."""
    for row in positions.join(open_records, list(POSITION), "leftsemi").limit(SHOWN_MAX).collect():
        where = f"partition {row['_partition']} offset {row['_offset']} of topic id {row['_topic_id']}"
        yield Finding("IN_BOTH", f"{where} is a row of the target and stands in quarantine too")
