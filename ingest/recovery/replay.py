"""Set quarantined records to `replayed` once a re-read has inserted them as rows (I4). Repeating it is harmless, so a start repeats it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ingest.delta.batch_commit import BatchCommit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, quoted
from ingest.kafka.offsets import OffsetRange
from ingest.ledger.ledger_reader import Newest
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def unfinished(engine: Engine, places: Places, log: DeltaLog, newest: Newest | None) -> BatchCommit | None:
    """The BatchCommit of the target's newest batch, if quarantined records that it inserted are not `replayed` yet; else None.

    `log` is the target's. Raises Unreadable.
    """
    if newest is None or newest.snapshots is None or newest.version is None:
        return None
    batch_commit = log.commit(newest.version).batch_commit
    return batch_commit if batch_commit is not None and pending(engine, places, batch_commit) else None


def pending(engine: Engine, places: Places, batch_commit: BatchCommit) -> bool:
    """Whether the quarantine contains a record that this batch inserted as a row, and that is not `replayed` yet. Raises Unreadable."""
    if not any(len(each) for each in batch_commit.positions):
        return False
    rows = f"SELECT _partition AS p, _offset AS o FROM {{target}} WHERE {_of_batch(batch_commit)}"
    inside = _inside(batch_commit.positions, "`partition`", "`offset`")
    records = "SELECT `partition` AS p, `offset` AS o FROM {quarantine} "
    records += f"WHERE state <> 'replayed' AND topic_id = {quoted(batch_commit.topic.id)} AND ({inside})"
    sql = f"SELECT q.p FROM ({records}) q LEFT SEMI JOIN ({rows}) r ON q.p = r.p AND q.o = r.o LIMIT 1"
    return bool(engine.ask(sql, target=At(places.target), quarantine=At(places.quarantine)))


def replay(session: SparkSession, places: Places, batch_commit: BatchCommit) -> None:
    """Set the quarantined records that a batch inserted as rows to `replayed`. `batch_commit` is the one of its commit on the target."""
    from pyspark.sql import functions as F

    from ingest.delta import writer as commits

    rows = session.read.format("delta").load(places.target).where(_of_batch(batch_commit))
    names = {"_partition": "partition", "_offset": "offset", "_ingested_at": "at"}
    positions = rows.select(F.lit(batch_commit.topic.id).alias("topic_id"), *(F.col(name).alias(to) for name, to in names.items()))
    commits.mark_replayed(positions, places.quarantine, replace(batch_commit, kind="replayed"), batch_commit.reason or "ingest run")


def _of_batch(batch_commit: BatchCommit) -> str:
    inside = _inside(batch_commit.positions, "_partition", "_offset")
    return f"_epoch = {batch_commit.id.epoch} AND _batch = {batch_commit.id.number} AND ({inside})"


def _inside(ranges: Sequence[OffsetRange], partition: str, offset: str) -> str:
    return " OR ".join(f"({partition} = {r.partition} AND {offset} >= {r.start} AND {offset} < {r.end})" for r in ranges) or "false"
