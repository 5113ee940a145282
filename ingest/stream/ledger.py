"""The ledger: one row a batch and partition, a projection of the target's commits (I7).

Delta deletes old log files, and with them the ranges in the commits; the ledger keeps them. It may lag behind the target and
is completed from the target's log at every start; it never leads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.errors import Refused
from ingest.files import Files
from ingest.places import Places
from ingest.stream import commit as commits
from ingest.stream.decide import LastWritten
from ingest.stream.delta_log import Commit, DeltaLog
from ingest.stream.mark import Counts, Mark
from ingest.stream.offsets import BatchId, OffsetRange
from ingest.stream.tables import LEDGER_FIELDS

SCHEMA_VERSION = 1
APPEND_EVERY_S = 60


@dataclass(frozen=True)
class LedgerRow:
    """What became of the offsets [start_offset, end_offset) of one partition in one batch (columns of the ledger, in order)."""

    schema_version: int
    kind: str
    pipeline: str
    table: str
    epoch: int
    query_id: str
    batch_id: int
    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    records_read: int
    inserted: int
    duplicate: int
    quarantined: int
    replayed: int
    gap: int
    target_version: int
    contract_hash: str
    committed_at: datetime


def project(commit: Commit, mark: Mark, inserted: Mapping[int, int]) -> list[LedgerRow]:
    """The ledger rows of one commit; `inserted` is by partition."""
    counts = dict(mark.counts)
    rows = []
    for each in mark.ranges:
        count, new = counts.get(each.partition, Counts()), inserted.get(each.partition, 0)
        rows.append(
            LedgerRow(
                SCHEMA_VERSION,
                "batch",
                mark.pipeline,
                mark.table,
                mark.epoch,
                mark.id.query_id,
                mark.id.number,
                mark.topic,
                mark.topic_id,
                each.partition,
                each.start,
                each.end,
                count.read,
                new,
                count.losers + count.winners - new,
                count.quarantined,
                count.replayed,
                len(each) - count.read,
                commit.version,
                mark.contract_hash,
                commit.committed_at,
            )
        )
    return rows


def inserted_by_partition(session: SparkSession, table: str, commit: Commit, offered: Mapping[int, int], column: str) -> dict[int, int]:
    """How many rows of each Kafka partition the commit added, out of the `offered` ones; `column` names the partition's column.

    The files' numRecords tell the sum. If it is what was offered, or nothing, that is the answer by partition too; else the
    partition column of just these files is read (docs/decisions/inserted-by-partition.md).
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
    counted = session.read.parquet(*paths).groupBy(column).count().collect()
    return {row[column]: row["count"] for row in counted}


def count_rows(session: SparkSession, places: Places, commit: Commit, mark: Mark) -> list[LedgerRow]:
    """The ledger rows of a target commit, with `inserted` counted from its files."""
    offered = {partition: counts.winners for partition, counts in mark.counts}
    return project(commit, mark, inserted_by_partition(session, places.target, commit, offered, "_partition"))


@dataclass
class Ledger:
    """The ledger of one table while a run works on it, and what it and the target's log know of earlier batches."""

    places: Places
    target_log: DeltaLog
    quarantine_log: DeltaLog
    ledger_log: DeltaLog
    query_id: str | None = None
    _last: LastWritten | None = None
    _pending: list[tuple[Commit, Mark]] = field(default_factory=list)
    _appended_at: float = 0.0
    _reached: dict[tuple[str, str, int], int] = field(default_factory=dict)

    @staticmethod
    def of(places: Places, files: Files) -> Ledger:
        """The ledger of the tables at `places`."""
        return Ledger(places, DeltaLog(files, places.target), DeltaLog(files, places.quarantine), DeltaLog(files, places.ledger))

    def complete(self, session: SparkSession, query_id: str | None) -> int:
        """Append what the target's log has and the ledger has not; returns the number of rows. Called before the first batch."""
        self.query_id = query_id
        kept = session.read.format("delta").load(self.places.ledger).where("kind = 'batch'")
        known: dict[str, int] = {}
        groups = kept.groupBy("query_id", "topic_id", "partition").agg(F.max("batch_id").alias("batch"), F.max("end_offset").alias("end"))
        for row in groups.collect():
            known[row["query_id"]] = max(known.get(row["query_id"], -1), row["batch"])
            self._reached[row["query_id"], row["topic_id"], row["partition"]] = row["end"]
        for commit in self.target_log.newest_first():
            mark = commit.mark
            if mark is None:
                continue
            if mark.id.query_id == query_id and self._last is None:
                self._last = LastWritten(mark, commit.version)
            if mark.id.number <= known.get(mark.id.query_id, -1):
                break  # what is older was projected before it
            self._pending.append((commit, mark))
        self._pending.reverse()
        for _, mark in self._pending:
            self._reach(mark)
        if self._last is None and query_id is not None and query_id in known:
            last = _from_rows(kept.where((F.col("query_id") == query_id) & (F.col("batch_id") == known[query_id])).collect())
            versions = self.target_log.versions()
            # The ledger vouches only for what Delta has cleaned up, not for a table that was deleted and made anew.
            if last is not None and versions and versions[0] > 0 and versions[-1] >= last.version:
                self._last = last
        return self.append(session)

    def last_written(self, query_id: str) -> LastWritten | None:
        """The last batch of this query that the target holds. Looks at commits made by others since, too."""
        if self._last is None:
            return None
        for commit in self.target_log.since(self._last.version):
            mark = commit.mark
            if mark is not None and mark.id.query_id == query_id:
                self._last = LastWritten(mark, commit.version)
            elif mark is not None:
                raise Refused(
                    "TABLE_OWNED",
                    f"version {commit.version} of {self.places.target} is a batch of query {mark.id.query_id}, not of ours ({query_id}).",
                    expected="one checkpoint for a table at a time.",
                    remedy="stop the other run; then start this one again.",
                )
        return self._last

    def holds_any(self) -> bool:
        """Whether the table holds any batch of this pipeline, whatever checkpoint wrote it."""
        return bool(self._reached)

    def read_before(self, ranges: Iterable[OffsetRange], topic_id: str) -> bool:
        """Whether another checkpoint's batches have read any of these offsets before."""
        ends = {(topic, p): end for (query, topic, p), end in self._reached.items() if query != self.query_id}
        return any(ends.get((topic_id, each.partition), 0) > each.start for each in ranges)

    def saw(self, commit: Commit) -> None:
        """Take note of a target commit that is to be projected."""
        mark = commit.mark
        assert mark is not None
        self.query_id = mark.id.query_id
        self._last = LastWritten(mark, commit.version)
        self._pending.append((commit, mark))
        self._reach(mark)

    def append_if_due(self, session: SparkSession) -> None:
        """Append what is pending if the last time was a minute ago or more."""
        if time.monotonic() - self._appended_at >= APPEND_EVERY_S:
            self.append(session)

    def append(self, session: SparkSession) -> int:
        """Append what is pending; returns the number of rows. One commit a query id, since a pair belongs to one."""
        self._appended_at = time.monotonic()
        rows = 0
        for query_id in dict.fromkeys(mark.id.query_id for _, mark in self._pending):
            batches = [(commit, mark) for commit, mark in self._pending if mark.id.query_id == query_id]
            projected = [row for commit, mark in batches for row in count_rows(session, self.places, commit, mark)]
            frame = session.createDataFrame([tuple(asdict(row).values()) for row in projected], T.StructType(list(LEDGER_FIELDS)))
            commits.append_ledger(frame, self.ledger_log, batches[-1][1])
            rows += len(projected)
        self._pending.clear()
        return rows

    def _reach(self, mark: Mark) -> None:
        for each in mark.ranges:
            key = (mark.id.query_id, mark.topic_id, each.partition)
            self._reached[key] = max(self._reached.get(key, 0), each.end)


def _from_rows(rows: list[Any]) -> LastWritten | None:
    """The last batch as the ledger keeps it, for a table whose old log files are gone."""
    if not rows:
        return None
    first = rows[0]
    ranges = tuple(sorted(OffsetRange(r["partition"], r["start_offset"], r["end_offset"]) for r in rows))
    counts = tuple((r["partition"], Counts(r["records_read"], r["quarantined"], 0, r["replayed"])) for r in rows)
    id = BatchId(first["query_id"], first["batch_id"])
    mark = Mark(
        first["pipeline"], first["table"], id, first["epoch"], first["contract_hash"], first["topic"], first["topic_id"], ranges, counts
    )
    return LastWritten(mark, first["target_version"])
