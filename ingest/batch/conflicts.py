"""Conflicting duplicates: copies of an event id whose payloads differ. The first wins, the later ones go to quarantine (I3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.batch.dedup import POSITION
from ingest.contract.columns import PAYLOAD_HASH, event_id_columns
from ingest.contract.definition import Contract
from ingest.delta.stored_rows import TARGET, in_ranges
from ingest.kafka.offsets import OffsetRange

CONFLICT = "conflicting_duplicate"
RAW = ("__key", "__value", "__headers")
# Ranks of records that are no new rows: later copies of an event id inside the batch, and records that the target has.
DUPLICATE, PRESENT = 2, 3


def mark_conflicts(ranked: DataFrame, contract: Contract, target: str, bounds: Mapping[str, tuple[Column, Column]]) -> DataFrame:
    """Compare the batch with the target: if the target contains an event id, the row's payload decides about every copy in the batch.

    A copy with another payload is refused, unless it is that row itself. A copy with the same payload is a duplicate, even if it was
    refused before because it differs from an earlier copy in the batch.
    """
    refused = F.coalesce(F.col("__reason") == CONFLICT, F.lit(False))
    row = F.struct(*POSITION, F.col(PAYLOAD_HASH).alias("hash"))
    found = _with_row(ranked, contract, target, bounds, F.col("__reason").isNull() | refused, F.when(F.col(PAYLOAD_HASH).isNotNull(), row))
    there = F.col("__there")
    itself = reduce(and_, (there[name] == F.col(name) for name in POSITION))
    equal = F.coalesce((there["hash"] == F.col(PAYLOAD_HASH)) | itself, F.lit(False))
    found = found.withColumn("__pardoned", refused & equal)
    found = found.withColumn("__reason", F.when(~F.col("__pardoned"), F.col("__reason")))
    found = found.withColumn("__rank", F.when(F.col("__pardoned"), F.lit(PRESENT)).otherwise(F.col("__rank")))
    of = F.when(there["_source"] == 0, F.lit("")).otherwise(F.concat(there["_source"], F.lit("/")))
    where = F.concat(F.lit("differs from partition "), of, there["_partition"], F.lit(" offset "), there["_offset"])
    conflict = there.isNotNull() & ~equal
    return _refuse(found, conflict, where).drop("__there", "__pardoned")


def without_rows(ranked: DataFrame, target: str, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Records for quarantine that are already rows of the target, by their position, stay rows: they count as duplicates.

    This is for offsets that were read before: a changed contract, or other copies in the batch, may refuse such a record now.
    """
    rows = ranked.sparkSession.read.format("delta").load(target).where(in_ranges(ranges, TARGET))
    positions = rows.select(*POSITION).distinct().withColumn("__row", F.lit(True))
    found = ranked.join(positions, list(POSITION), "left")
    row = F.col("__row").isNotNull() & F.col("__reason").isNotNull()
    found = found.withColumn("__rank", F.when(row, F.lit(PRESENT)).otherwise(F.col("__rank")))
    return found.withColumn("__reason", F.when(~row, F.col("__reason"))).drop("__row")


def _with_row(
    ranked: DataFrame, contract: Contract, target: str, bounds: Mapping[str, tuple[Column, Column]], which: Column, what: Column
) -> DataFrame:
    """Add `__there` to the records that meet `which`: the least `what` of the target's rows with their event id. NULL for all others."""
    ids = event_id_columns(contract)
    table = ranked.sparkSession.read.format("delta").load(target)
    for name, (least, greatest) in bounds.items():
        table = table.where(F.col(f"`{name}`").between(least, greatest))
    # Another writer's INSERT may have doubled an id; the join must not double records.
    rows = table.groupBy(*(F.col(f"`{name}`").alias(f"__id{number}") for number, name in enumerate(ids))).agg(F.min(what).alias("__there"))
    for number, name in enumerate(ids):
        which &= F.col(f"`{name}`") == F.col(f"__id{number}")
    return ranked.join(rows, which, "left").drop(*(f"__id{number}" for number in range(len(ids))))


def with_bytes(ranked: DataFrame, records: DataFrame, conflicts: int) -> DataFrame:
    """Read the raw bytes of conflicting records again: only records that fail in decoding carry them through the batch."""
    if conflicts == 0:
        return ranked
    same = {"_source": "source", "_partition": "partition", "_offset": "offset", "_kafka_timestamp": "timestamp"}
    raw = records.select(
        *(F.col(there).alias(here) for here, there in same.items()), *(F.col(name[2:]).alias(f"{name}_again") for name in RAW)
    )
    conflicting = ranked.where(F.col("__reason") == CONFLICT).drop(*RAW)
    # Between the two reads compaction may remove a record, or the topic may be recreated with another record at this offset. The
    # conflict was found all the same, so it is kept without its bytes.
    again = conflicting.join(raw, list(same), "left").withColumnsRenamed({f"{name}_again": name for name in RAW})
    others = ranked.where(F.col("__reason").isNull() | (F.col("__reason") != CONFLICT))
    return others.unionByName(again)


def _refuse(frame: DataFrame, conflict: Column, detail: Column) -> DataFrame:
    return (
        frame.withColumn("__conflict", conflict)
        .withColumn("__reason", F.when(F.col("__conflict"), F.lit(CONFLICT)).otherwise(F.col("__reason")))
        .withColumn("__detail", F.when(F.col("__conflict"), detail).otherwise(F.col("__detail")))
        .withColumn("__rank", F.when(~F.col("__conflict"), F.col("__rank")))
        .drop("__conflict")
    )
