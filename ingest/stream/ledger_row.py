"""A ledger row: what became of one partition's offsets in one batch, projected from the target's commit (I7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.delta_sql import At, DataFusion, Spark, quoted
from ingest.files import is_local, local_path
from ingest.places import Places
from ingest.stream.binding import Binding, Gap
from ingest.stream.delta_log import Commit
from ingest.stream.mark import Counts, Mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA_VERSION = 1
# DataFusion descends a chain of conditions by recursion: some thousands of them end the process.
RANGES_AT_ONCE = 200


@dataclass(frozen=True)
class LedgerRow:
    """What became of the offsets [start_offset, end_offset) of one partition in one batch (columns of the ledger, in order).

    `kind` batch: a batch of the target. rebase: an epoch's end (query id of the former, its last batch in force, where that
    ended) or begin (the new query id, batch 0, the baseline). gap_accepted: offsets that a rebase jumped over on purpose.
    """

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


def project_rebase(
    binding: Binding, query_id: str, places: Places, contract_hash: str, at: datetime, known: Mapping[str, Collection[Gap]]
) -> list[LedgerRow]:
    """The ledger rows that a rebase leaves: where the former epoch ended, where the new one begins, what was jumped over.

    What former ones had jumped over too, but for the gaps that the ledger knows, by query id: it may have been lost since, and made again
    by another rebase.
    """
    rebase = binding.rebase
    assert rebase is not None

    def row(kind: str, query: str, epoch: int, batch: int, topic: tuple[str, str], partition: int, start: int, end: int) -> LedgerRow:
        head = (SCHEMA_VERSION, kind, places.pipeline, places.table, epoch, query, batch, *topic, partition, start, end)
        return LedgerRow(*head, 0, 0, 0, 0, 0, end - start, rebase.table_version, contract_hash, at)

    ours = (binding.topic, binding.topic_id)
    rows = []
    for former in rebase.former:
        theirs = (former.topic, former.topic_id)
        rows += [row("rebase", former.query_id, former.epoch, former.last_batch, theirs, p, end, end) for p, end in former.ends]
        if not former.ends:  # none of its batches is in force
            rows.append(row("rebase", former.query_id, former.epoch, former.last_batch, theirs, -1, 0, 0))
        for gap in former.gaps:
            if gap not in known.get(former.query_id, ()):
                topic_id, p, start, end = gap
                rows.append(row("gap_accepted", former.query_id, former.epoch, 0, (binding.topic, topic_id), p, start, end))
    rows += [row("rebase", query_id, binding.epoch, 0, ours, p, offset, offset) for p, offset in rebase.baseline]
    own = [gap for gap in rebase.gaps if (binding.topic_id, *gap) not in known.get(query_id, ())]
    rows += [row("gap_accepted", query_id, binding.epoch, 0, ours, p, start, end) for p, start, end in own]
    return rows


def count_rows(session: SparkSession | None, places: Places, commit: Commit, mark: Mark) -> list[LedgerRow]:
    """The ledger rows of a target commit, with `inserted` counted from its files; a lake on the machine's own disk needs no session."""
    offered = {partition: counts.winners for partition, counts in mark.counts}
    try:
        inserted = inserted_by_partition(session, places.target, commit, offered, "_partition")
    except FileNotFoundError:
        inserted = _by_position(session, places, commit, mark, offered)
    return project(commit, mark, inserted)


def inserted_by_partition(
    session: SparkSession | None, table: str, commit: Commit, offered: Mapping[int, int], column: str
) -> dict[int, int]:
    """How many rows of each Kafka partition the commit added, out of the `offered` ones; `column` names the partition's column.

    The files' numRecords tell the sum. If it is what was offered, or nothing, that is the answer by partition too; else the
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
    assert session is not None, "a lake that only Spark reaches"
    return _count_in_spark(session, paths, column)


def _count_here(paths: Sequence[Path], column: str) -> dict[int, int]:
    import pyarrow.parquet as parquet  # half a second that most verbs need not wait for

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


def _by_position(session: SparkSession | None, places: Places, commit: Commit, mark: Mark, offered: Mapping[int, int]) -> dict[int, int]:
    """The same for a commit whose files OPTIMIZE and VACUUM have taken away: its rows stand elsewhere in the table now."""
    # With a session, since a run has one and it reads what deltalake may not know.
    engine = DataFusion() if session is None else Spark(session)
    found: dict[int, int] = {}
    for begin in range(0, len(mark.ranges), RANGES_AT_ONCE):
        ranges = mark.ranges[begin : begin + RANGES_AT_ONCE]
        inside = " OR ".join(f"(_partition = {each.partition} AND _offset >= {each.start} AND _offset < {each.end})" for each in ranges)
        condition = f"_topic_id = {quoted(mark.topic_id)} AND ({inside})"
        sql = f"SELECT _partition AS p, count(*) AS n FROM {{target}} WHERE {condition} GROUP BY _partition"
        found |= {row["p"]: row["n"] for row in engine.ask(sql, target=At(places.target))}
    return share(sum(added.records or 0 for added in commit.added), offered, found)


def share(total: int, offered: Mapping[int, int], found: Mapping[int, int]) -> dict[int, int]:
    """`total` rows of a commit by partition: as `found` in the table now, at least 0 and at most what the batch `offered`.

    The sum is known from the commit, the share of each partition need not be: a DELETE may have taken rows since, and a batch
    that read the same offsets before or since may have put rows there. Too few are filled up where there is room, too many
    are taken off, least partition first.
    """
    shares = {partition: min(found.get(partition, 0), number) for partition, number in sorted(offered.items())}
    missing = total - sum(shares.values())
    for partition, number in shares.items():
        change = max(-number, min(offered[partition] - number, missing))
        shares[partition] += change
        missing -= change
    return shares
