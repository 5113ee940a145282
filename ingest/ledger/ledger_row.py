"""A ledger row: the outcome of one partition's offsets in one batch, projected from the target's commits (I4, I7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.delta.batch_commit import BatchCommit, BatchId, Counts
from ingest.delta.commit import Commit
from ingest.delta.delta_sql import At, DataFusion, Spark
from ingest.kafka.offsets import OffsetRange
from ingest.runtime.files import is_local, local_path
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class LedgerRow:
    """The outcome of the offsets [start_offset, end_offset) of one partition. The fields are the ledger's columns, in order.

    Kind `batch` is one batch of the target. Kind `epoch` is the start of an epoch (start_offset = end_offset), with `why` first, start,
    seek, replay, or rebuild with the rebuild's first epoch (`rebuild:7`). Kind `gap_accepted` is offsets that a seek skipped on purpose.
    Kind `replay` is quarantined records that `ingest quarantine replay` accepted: `inserted` became rows, `duplicate` have an event id that
    the target contains, and the range spans their positions. Kind `retention` counts records of a batch that `ingest maintain` or `ingest
    erase` removed from the quarantine: `quarantined` records at offsets in the range, `inserted` of which had become rows, by the statement
    that `why` names. Kind `erased` counts `inserted` rows of a batch that `ingest erase` removed from the target. `stood` is set on a batch
    or replay that a later seek re-reads or skips: how many of its rows and quarantined records existed when that seek read the tables.
    """

    schema_version: int
    kind: str
    pipeline: str
    table: str
    epoch: int
    batch: int
    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    records_read: int
    inserted: int
    duplicate: int
    quarantined: int
    gap: int
    stood: int | None
    why: str | None
    target_version: int
    contract_hash: str
    committed_at: datetime

    @property
    def nowhere(self) -> int:
        """For a row of kind `retention` or `erased`: how many of the positions that it counts are in neither target nor quarantine now."""
        return self.inserted if self.kind == "erased" else self.quarantined - self.inserted

    @property
    def key(self) -> tuple[str, int, int, int, int]:
        """The columns that the ledger's MERGE compares: kind, epoch, batch, partition, start_offset."""
        return self.kind, self.epoch, self.batch, self.partition, self.start_offset


def project(commit: Commit, batch_commit: BatchCommit, inserted: Mapping[int, int]) -> list[LedgerRow]:
    """The ledger rows of the commit of a batch or a seek. `inserted` is the number of inserted rows by partition."""

    def row(kind: str, at: OffsetRange, figures: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0), why: str | None = None) -> LedgerRow:
        identity = (
            SCHEMA_VERSION,
            kind,
            batch_commit.pipeline,
            batch_commit.table,
            batch_commit.id.epoch,
            batch_commit.id.number,
            batch_commit.topic.name,
            batch_commit.topic.id,
        )
        place = (at.partition, at.start, at.end)
        return LedgerRow(*identity, *place, *figures, None, why, commit.version, batch_commit.contract_hash, commit.committed_at)

    if batch_commit.kind == "seek":
        rows = [row("epoch", each, why=batch_commit.why) for each in batch_commit.ranges]
        rows += [row("gap_accepted", each, (0, 0, 0, 0, len(each))) for each in batch_commit.gaps]
        for each in batch_commit.replayed:
            count, new = dict(batch_commit.counts)[each.partition], inserted.get(each.partition, 0)
            rows.append(row("replay", each, (count.read, new, count.read - new - count.quarantined, count.quarantined, 0)))
        return rows
    counts, rows = dict(batch_commit.counts), []
    for each in batch_commit.ranges:
        count, new = counts.get(each.partition, Counts()), inserted.get(each.partition, 0)
        figures = (count.read, new, count.read - new - count.quarantined, count.quarantined, len(each) - count.read)
        rows.append(row("batch", each, figures))
    return rows


def epoch_begin(commit: Commit, batch_commit: BatchCommit) -> list[LedgerRow]:
    """The ledger rows for the start of an epoch without a seek, derived from its first batch."""
    begin = tuple(OffsetRange(each.partition, each.start, each.start) for each in batch_commit.ranges)
    return project(commit, replace(batch_commit, kind="seek", id=BatchId(batch_commit.id.epoch, 0), ranges=begin, gaps=(), why="start"), {})


def count_rows(session: SparkSession | None, places: Places, commit: Commit, batch_commit: BatchCommit) -> list[LedgerRow]:
    """The ledger rows of a target commit, with `inserted` counted from its files. A local lake needs no session."""
    if not batch_commit.positions:
        return project(commit, batch_commit, {})
    offered = {partition: counts.offered for partition, counts in batch_commit.counts}
    try:
        inserted = inserted_by_partition(session, places.target, commit, offered, "_partition")
    except FileNotFoundError:
        inserted = _counted_in_target(session, places, commit, batch_commit, offered)
    return project(commit, batch_commit, inserted)


def inserted_by_partition(
    session: SparkSession | None, table: str, commit: Commit, offered: Mapping[int, int], column: str
) -> dict[int, int]:
    """How many of the `offered` rows the commit added, by Kafka partition. `column` is the name of the partition column.

    The files' numRecords give the sum. If the sum equals the offered rows, or zero, it also gives the answer by partition. Otherwise the
    partition column of just these files is read (docs/decisions/inserted-by-partition.md). Raises FileNotFoundError if they are gone.
    """
    records = [added.records for added in commit.added]
    total = None if None in records else sum(number or 0 for number in records)
    if total == sum(offered.values()):
        return dict(offered)
    if total == 0:
        return {}
    by_name = [int(added.partition_values[column]) for added in commit.added if column in added.partition_values]
    if by_name:
        return {p: sum(a.records or 0 for a in commit.added if int(a.partition_values[column]) == p) for p in set(by_name)}
    paths = [added.path if "://" in added.path or added.path.startswith("/") else f"{table}/{added.path}" for added in commit.added]
    if all(is_local(path) for path in paths):
        return _count_here([local_path(path) for path in paths], column)
    assert session is not None, "a remote lake needs a session"
    return _count_in_spark(session, paths, column)


def _count_here(paths: Sequence[Path], column: str) -> dict[int, int]:
    import pyarrow.parquet as parquet  # takes half a second, which most verbs need not wait for

    found: Counter[int] = Counter()
    for path in paths:
        found.update(parquet.ParquetFile(path).read(columns=[column])[column].to_pylist())
    return dict(found)


def _count_in_spark(session: SparkSession, paths: Sequence[str], column: str) -> dict[int, int]:
    from pyspark.errors import AnalysisException

    try:
        counted = session.read.parquet(*paths).groupBy(column).count().collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise FileNotFoundError(str(error)) from error
        raise
    return {row[column]: row["count"] for row in counted}


def _counted_in_target(
    session: SparkSession | None, places: Places, commit: Commit, batch_commit: BatchCommit, offered: Mapping[int, int]
) -> dict[int, int]:
    """As `inserted_by_partition`, for a commit whose files OPTIMIZE and VACUUM have removed: its rows are in other files now."""
    # Spark if possible: a run has a session, and Spark reads tables that deltalake may not support.
    engine = DataFusion() if session is None else Spark(session)
    condition = f"_epoch = {batch_commit.id.epoch} AND _batch = {batch_commit.id.number}"
    sql = f"SELECT _partition AS p, count(*) AS n FROM {{target}} WHERE {condition} GROUP BY _partition"
    found = {row["p"]: row["n"] for row in engine.ask(sql, target=At(places.target))}
    return share(sum(added.records or 0 for added in commit.added), offered, found)


def share(total: int, offered: Mapping[int, int], found: Mapping[int, int]) -> dict[int, int]:
    """Split the `total` rows of a commit by partition: as `found` in the table now, between 0 and the number `offered` by the batch.

    The commit gives the sum, but not always the share of each partition. A DELETE may have removed rows since, and a batch that read the
    same offsets earlier or later may have added rows. Missing rows are added where there is room, and surplus rows are taken off, lowest
    partition first.
    """
    shares = {partition: min(found.get(partition, 0), number) for partition, number in sorted(offered.items())}
    missing = total - sum(shares.values())
    for partition, number in shares.items():
        change = max(-number, min(offered[partition] - number, missing))
        shares[partition] += change
        missing -= change
    return shares
