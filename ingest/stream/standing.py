"""What stands already at a record's own position: what stands stays, whatever a second look would make of it (I3, I4, I7).

Two ways lead to it. A batch was cut off between the commit of its quarantine and that of its target: since then a row that a
record conflicts with may have been deleted, or Kafka may have compacted the copy before it. Or another checkpoint has read
these offsets before a rebase, in other batches, where other copies of an event id met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.contract import Contract
from ingest.places import Places
from ingest.stream.conflict import CONFLICT, with_row
from ingest.stream.offsets import BatchId, OffsetRange

# In `__stands`: the quarantine holds the record by this very batch, or by another.
BATCH, BEFORE = "batch", "before"


def mark_standing(
    events: DataFrame,
    places: Places,
    batch: BatchId,
    topic_id: str,
    ranges: Sequence[OffsetRange],
    *,
    begun: bool,
    read_before: bool,
) -> DataFrame:
    """Add `__own` (the target holds the record at its own position) and `__stands` (BATCH, BEFORE or NULL) to decoded events.

    `begun`: the quarantine of this batch is committed; `read_before`: another checkpoint has read some of these offsets. A
    record that this batch has quarantined, or that stands there for its conflict with another copy, gets that reason again.
    """
    session = events.sparkSession
    if begun or read_before:
        rows = session.read.format("delta").load(places.quarantine).where(_inside(topic_id, ranges, "topic_id", "partition", "offset"))
        ours = (F.col("query_id") == batch.query_id) & (F.col("batch_id") == batch.number)
        rows = rows.where(ours | F.lit(read_before)).where("state <> 'replayed'")
        there = rows.select(
            F.col("partition").alias("_partition"),
            F.col("offset").alias("_offset"),
            F.when(ours, F.lit(BATCH)).otherwise(F.lit(BEFORE)).alias("__stands"),
            F.col("reason_code").alias("__code"),
            F.col("reason_detail").alias("__told"),
        ).dropDuplicates(["_partition", "_offset"])
        events = events.join(there, ["_partition", "_offset"], "left")
    else:
        events = events.withColumn("__stands", F.lit(None).cast("string"))
    if read_before:
        target = session.read.format("delta").load(places.target).where(_inside(topic_id, ranges, "_topic_id", "_partition", "_offset"))
        positions = target.select("_partition", "_offset").distinct().withColumn("__own", F.lit(True))
        events = events.join(positions, ["_partition", "_offset"], "left").withColumn("__own", F.coalesce("__own", F.lit(False)))
    else:
        events = events.withColumn("__own", F.lit(False))
    if not (begun or read_before):
        return events
    stays = F.coalesce((F.col("__stands") == BATCH) | (F.col("__code") == CONFLICT), F.lit(False)) & ~F.col("__own")
    events = events.withColumn("__reason", F.when(stays, F.col("__code")).otherwise(F.col("__reason")))
    return events.withColumn("__detail", F.when(stays, F.col("__told")).otherwise(F.col("__detail"))).drop("__code", "__told")


def mark_known(ranked: DataFrame, contract: Contract, target: str, bounds: Mapping[str, tuple[Column, Column]]) -> DataFrame:
    """`__rank` 0 for winners that stand in quarantine by another batch and whose event id the target holds: they are no rows, and stay
    where they are. Others of them are rows from now on, as the contract of today lets them pass."""
    winner = (F.col("__rank") == 1) & F.col("__stands").isNotNull()
    found = with_row(ranked, contract, target, bounds, winner, F.first(F.lit(True)).alias("__known"))
    return found.withColumn("__rank", F.when(F.col("__known"), F.lit(0)).otherwise(F.col("__rank"))).drop("__known")


def quarantined_by(events: DataFrame, places: Places, batch: BatchId) -> dict[int, int]:
    """How many records of each partition the quarantine holds by this batch, also those that Kafka no longer has."""
    rows = events.sparkSession.read.format("delta").load(places.quarantine)
    ours = rows.where((F.col("query_id") == batch.query_id) & (F.col("batch_id") == batch.number))
    return {row["partition"]: row["count"] for row in ours.groupBy("partition").count().collect()}


def quarantined_ahead(
    session: SparkSession, places: Places, query_id: str | None, ends: Mapping[int, int]
) -> dict[tuple[str, str, int], int]:
    """Up to where checkpoints other than `query_id` have put records into quarantine that lie behind `ends` (offsets by partition, 0 where
    none is named): by query id, topic id and partition.

    Such a batch was cut off between its two commits, and its checkpoint never came back: neither target nor ledger tell of it.
    """
    rows = session.read.format("delta").load(places.quarantine)
    ahead = F.lit(True)
    for partition, end in ends.items():
        ahead &= (F.col("partition") != partition) | (F.col("offset") >= end)
    if query_id is not None:
        ahead &= F.col("query_id") != query_id
    found = rows.where(ahead).groupBy("query_id", "topic_id", "partition").agg(F.max("offset").alias("last")).collect()
    return {(row["query_id"], row["topic_id"], row["partition"]): row["last"] + 1 for row in found}


def _inside(topic_id: str, ranges: Sequence[OffsetRange], topic: str, partition: str, offset: str) -> Column:
    """Positions in the ranges, as a condition by which Delta skips files."""
    inside = F.lit(False)
    for each in ranges:
        inside |= (F.col(partition) == each.partition) & (F.col(offset) >= each.start) & (F.col(offset) < each.end)
    return (F.col(topic) == topic_id) & inside
