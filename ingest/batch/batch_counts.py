"""Ranks the copies of an event id inside a batch, and counts the outcomes of its records (I3, I4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.batch.conflicts import CONFLICT, DUPLICATE
from ingest.batch.dedup import DIFFERS, POSITION, later_copies, twice
from ingest.contract.columns import event_id_columns, target_fields
from ingest.contract.definition import Contract
from ingest.decode.decoder import with_payload
from ingest.decode.payload import PAYLOAD
from ingest.delta.posting import NOTHING, Key, Posting, Sums, Why
from ingest.kafka.offsets import OffsetRange, Partition


def rank(events: DataFrame, contract: Contract) -> tuple[DataFrame, BatchCounts]:
    """Add `__rank` to decoded events, and count them.

    `__rank` is 1 for the copy of an event id that wins inside the batch (least partition and offset), more for the other copies, and NULL
    for records that go to quarantine. Copies whose payload differs from the winner's go there too.

    The driver compares only ids whose 64-bit hash occurs twice: it collects 8 bytes per record, and the ids themselves only for these.
    A shuffle would cost four times as much. All other rows stay on the executors.
    """
    good = F.col("__reason").isNull()
    ranked = events.withColumn("__rank", F.when(good, F.lit(1)))
    if contract.event_id.kind == "position":
        return ranked, count_batch(ranked, contract)
    ids = event_id_columns(contract)
    hashed = F.xxhash64(*(f"`{name}`" for name in ids))
    batch_counts = count_batch(ranked, contract)
    hashes = events.where(good).select(hashed.alias("__hash")).toArrow().column(0).to_numpy()
    if not (rows := twice(hashes)).size:
        return ranked, batch_counts
    session = events.sparkSession
    again = session.createDataFrame(pa.table({"__hash": np.unique(hashes[rows])}))
    copies = events.where(good).join(F.broadcast(again), hashed == F.col("__hash"), "left_semi")
    columns = [F.col(f"`{name}`").alias(f"__id{number}") for number, name in enumerate(ids)]
    later = later_copies(with_payload(copies, contract).select(*columns, *POSITION, PAYLOAD).toArrow()).select([*POSITION, DIFFERS])
    if later.num_rows == 0:
        return ranked, batch_counts
    duplicates = session.createDataFrame(later).withColumn("__copy", F.lit(DUPLICATE))
    found = ranked.join(F.broadcast(duplicates), list(POSITION), "left")
    differs = F.col("__differs").isNotNull()
    marked = found.withColumns(
        {
            "__rank": F.when(~differs, F.coalesce("__copy", "__rank")),
            "__reason": F.when(differs, F.lit(CONFLICT)).otherwise(F.col("__reason")),
            "__detail": F.when(differs, F.col("__differs")).otherwise(F.col("__detail")),
        }
    )
    return marked.drop("__copy", "__differs"), batch_counts.without(later)


@dataclass(frozen=True)
class PartitionCounts:
    """Counts of one partition's records in a batch.

    `read` are all records, `failed` those for quarantine, `duplicates` later copies of an event id in the batch.
    """

    read: int
    failed: int
    duplicates: int


@dataclass(frozen=True)
class BatchCounts:
    """Counts by partition, the bounds of the winners' event ids, and the number of conflicts.

    `bounds` has the least and greatest value of each id column as typed literals.
    """

    counts: dict[Partition, PartitionCounts]
    bounds: dict[str, tuple[Column, Column]]
    conflicts: int

    @property
    def failed(self) -> int:
        """Records for quarantine."""
        return sum(each.failed for each in self.counts.values())

    @property
    def read(self) -> int:
        """All records."""
        return sum(each.read for each in self.counts.values())

    def posting(self, key: Key, at: OffsetRange, stored: Mapping[Key, Sums], why: Why = "batch") -> Posting:
        """What is known of a partition before the target's commit. `stored` are the records that the quarantine did not contain before."""
        counts = self.counts.get(key.of, PartitionCounts(0, 0, 0))
        quarantined = stored.get(key, NOTHING)
        return Posting(key, why, at, counts.read, None, quarantined, None, counts.duplicates)

    def without(self, later: pa.Table) -> BatchCounts:
        """The counts without these rows (from `later_copies`) among the winners."""
        counts, conflicts = dict(self.counts), self.conflicts
        for found in later.group_by(["_source", "_partition"]).aggregate([("_offset", "count"), (DIFFERS, "count")]).to_pylist():
            of = found["_source"], found["_partition"]
            before, differ = counts[of], found["__differs_count"]
            later_copies_here = found["_offset_count"] - differ
            counts[of] = PartitionCounts(before.read, before.failed + differ, before.duplicates + later_copies_here)
            conflicts += differ
        return BatchCounts(counts, self.bounds, conflicts)


def count_batch(ranked: DataFrame, contract: Contract) -> BatchCounts:
    """Count ranked events, with one ordinary aggregation so that retried tasks count once."""
    fields = {field.name: field.dataType for field in target_fields(contract)}
    # Delta keeps no minimum and maximum of BINARY columns.
    ids = [name for name in event_id_columns(contract) if not isinstance(fields[name], T.BinaryType)]
    winner = F.col("__rank") == 1
    aggregates = [
        F.count("*").alias("read"),
        F.count("__reason").alias("failed"),
        F.count_if(F.col("__rank") == DUPLICATE).alias("duplicates"),
    ]
    aggregates += [F.count_if(F.col("__reason") == CONFLICT).alias("conflicts")]
    for position, name in enumerate(ids):
        plain = _countable(F.col(f"`{name}`"), fields[name])
        aggregates += [F.min(F.when(winner, plain)).alias(f"least{position}"), F.max(F.when(winner, plain)).alias(f"greatest{position}")]
    rows = ranked.groupBy("_source", "_partition").agg(*aggregates).collect()
    counts = {(row["_source"], row["_partition"]): PartitionCounts(row["read"], row["failed"], row["duplicates"]) for row in rows}
    bounds = {}
    for position, name in enumerate(ids):
        least = [row[f"least{position}"] for row in rows if row[f"least{position}"] is not None]
        greatest = [row[f"greatest{position}"] for row in rows if row[f"greatest{position}"] is not None]
        if least:
            bounds[name] = (_literal(min(least), fields[name]), _literal(max(greatest), fields[name]))
    return BatchCounts(counts, bounds, sum(row["conflicts"] for row in rows))


def _countable(column: Column, kind: T.DataType) -> Column:
    """Dates and timestamps as numbers: Python's own values would pass through zones, calendars and texts on their way back to the JVM."""
    if isinstance(kind, T.DateType):
        return F.unix_date(column)
    return F.unix_micros(column) if isinstance(kind, T.TimestampType) else column


def _literal(value: object, kind: T.DataType) -> Column:
    """The typed literal of a value from `_countable`: never text pasted into SQL."""
    if isinstance(kind, T.DateType):
        return F.date_from_unix_date(F.lit(value))
    return F.timestamp_micros(F.lit(value)) if isinstance(kind, T.TimestampType) else F.lit(value).cast(kind)
