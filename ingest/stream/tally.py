"""Ranks the copies of an event id inside a batch, and counts what becomes of each record (I3, I4)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract import Contract
from ingest.stream.columns import event_id_columns, target_fields
from ingest.stream.conflict import CONFLICT, refuse_losers_of_other_payload
from ingest.stream.mark import Counts
from ingest.stream.standing import BATCH


def rank(events: DataFrame, contract: Contract, *, judge: bool = True) -> DataFrame:
    """Add `__rank` to events that `mark_standing` has looked at: 1 for the copy of an event id that wins inside the batch, more for
    the others, 0 for one that stands already (as a row, or in quarantine where it would now be a later copy), NULL in quarantine.

    The row wins, then the least partition and offset. Copies that differ from the winner go to quarantine unless `judge` is False:
    then the quarantine of this batch is committed, and has decided which.
    """
    own = F.col("__own")
    good = F.col("__reason").isNull()
    if contract.event_id.kind == "position":
        ranked = events.withColumn("__rank", F.when(good, F.lit(1)))
    else:
        # Records without a right id must not meet in one partition of the shuffle: each stands alone.
        alone = F.when(~good, F.struct("_partition", "_offset"))
        ids = (F.col(f"`{name}`") for name in event_id_columns(contract))
        window = Window.partitionBy(*ids, alone).orderBy(own.desc(), "_partition", "_offset")
        ranked = events.withColumn("__rank", F.when(good, F.row_number().over(window)))
        if judge:
            ranked = refuse_losers_of_other_payload(ranked, window)
    # A row stays one, also where a contract of today would refuse it. In quarantine stands what a contract of before has refused.
    replayed = own | (F.col("__stands").isNotNull() & (F.col("__rank") > 1))
    ranked = ranked.withColumn("__rank", F.when(replayed, F.lit(0)).otherwise(F.col("__rank")))
    return ranked.withColumn("__reason", F.when(~own, F.col("__reason"))).drop("__own")


@dataclass(frozen=True)
class Tally:
    """Counts by partition, the least and greatest event id of the winners by column as typed literals, the conflicts found.

    `standing` is how many of those for quarantine this very batch has put there before, by partition; `absent` how many of
    them the quarantine does not hold at all; `reconsidered` how many winners it holds by another batch.
    """

    counts: dict[int, Counts]
    bounds: dict[str, tuple[Column, Column]]
    conflicts: int
    standing: dict[int, int]
    absent: int
    reconsidered: int


def tally_of(ranked: DataFrame, contract: Contract) -> Tally:
    """One ordinary aggregation, so that retried tasks count once."""
    fields = {field.name: field.dataType for field in target_fields(contract)}
    # Delta keeps no least and greatest of BINARY columns.
    ids = [name for name in event_id_columns(contract) if not isinstance(fields[name], T.BinaryType)]
    winner = F.col("__rank") <= 1
    failed = F.col("__reason").isNotNull()
    aggregates = [F.count("*").alias("read"), F.count("__reason").alias("quarantined"), F.count_if(F.col("__rank") > 1).alias("losers")]
    aggregates += [F.count_if(F.col("__reason") == CONFLICT).alias("conflicts"), F.count_if(F.col("__rank") == 0).alias("replayed")]
    aggregates += [F.count_if(failed & (F.col("__stands") == BATCH)).alias("standing")]
    aggregates += [F.count_if(failed & F.col("__stands").isNull()).alias("absent")]
    aggregates += [F.count_if((F.col("__rank") == 1) & F.col("__stands").isNotNull()).alias("reconsidered")]
    for position, name in enumerate(ids):
        plain = _countable(F.col(f"`{name}`"), fields[name])
        aggregates += [F.min(F.when(winner, plain)).alias(f"least{position}"), F.max(F.when(winner, plain)).alias(f"greatest{position}")]
    rows = ranked.groupBy("_partition").agg(*aggregates).collect()
    counts = {row["_partition"]: Counts(row["read"], row["quarantined"], row["losers"], row["replayed"]) for row in rows}
    bounds = {}
    for position, name in enumerate(ids):
        least = [row[f"least{position}"] for row in rows if row[f"least{position}"] is not None]
        greatest = [row[f"greatest{position}"] for row in rows if row[f"greatest{position}"] is not None]
        if least:
            bounds[name] = (_literal(min(least), fields[name]), _literal(max(greatest), fields[name]))
    standing = {row["_partition"]: row["standing"] for row in rows}
    conflicts, absent, reconsidered = (sum(row[name] for row in rows) for name in ("conflicts", "absent", "reconsidered"))
    return Tally(counts, bounds, conflicts, standing, absent, reconsidered)


def _countable(column: Column, kind: T.DataType) -> Column:
    """Days and times as numbers: Python's own would pass through zones, calendars and texts on their way back to the JVM."""
    if isinstance(kind, T.DateType):
        return F.unix_date(column)
    return F.unix_micros(column) if isinstance(kind, T.TimestampType) else column


def _literal(value: object, kind: T.DataType) -> Column:
    """The typed literal of what `_countable` gave: never text pasted into SQL."""
    if isinstance(kind, T.DateType):
        return F.date_from_unix_date(F.lit(value))
    return F.timestamp_micros(F.lit(value)) if isinstance(kind, T.TimestampType) else F.lit(value).cast(kind)
