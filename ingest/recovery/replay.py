"""Quarantined records that a re-read has made rows become `replayed` (I4). Repeating it changes nothing, so a start does it once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ingest.delta.batch_commit import Mark
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, quoted
from ingest.kafka.offsets import OffsetRange
from ingest.ledger.ledger_reader import Newest
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def unfinished(engine: Engine, places: Places, log: DeltaLog, newest: Newest | None) -> Mark | None:
    """The mark of the target's newest batch, if it inserted rows that stand in the quarantine, too; `log` is the target's.

    Raises Unreadable.
    """
    if newest is None or newest.looked is None or newest.version is None:
        return None
    mark = log.commit(newest.version).mark
    return mark if mark is not None and mark.kind == "batch" and pending(engine, places, mark) else None


def pending(engine: Engine, places: Places, mark: Mark) -> bool:
    """Whether a row that this batch inserted stands in the quarantine, too. Raises Unreadable."""
    if not any(len(each) for each in mark.ranges):
        return False
    rows = f"SELECT _partition AS p, _offset AS o FROM {{target}} WHERE {_of_batch(mark)}"
    inside = _inside(mark.ranges, "`partition`", "`offset`")
    records = "SELECT `partition` AS p, `offset` AS o FROM {quarantine} "
    records += f"WHERE state <> 'replayed' AND topic_id = {quoted(mark.topic.id)} AND ({inside})"
    sql = f"SELECT q.p FROM ({records}) q LEFT SEMI JOIN ({rows}) r ON q.p = r.p AND q.o = r.o LIMIT 1"
    return bool(engine.ask(sql, target=At(places.target), quarantine=At(places.quarantine)))


def replay(session: SparkSession, places: Places, mark: Mark) -> None:
    """Let them be `replayed`; `mark` is that of the batch's commit on the target."""
    from pyspark.sql import functions as F

    from ingest.delta import writer as commits

    rows = session.read.format("delta").load(places.target).where(_of_batch(mark))
    names = {"_partition": "partition", "_offset": "offset", "_ingested_at": "at"}
    positions = rows.select(F.lit(mark.topic.id).alias("topic_id"), *(F.col(name).alias(to) for name, to in names.items()))
    commits.mark_replayed(positions, places.quarantine, replace(mark, kind="replayed"))


def _of_batch(mark: Mark) -> str:
    inside = _inside(mark.ranges, "_partition", "_offset")
    return f"_epoch = {mark.id.epoch} AND _batch = {mark.id.number} AND ({inside})"


def _inside(ranges: Sequence[OffsetRange], partition: str, offset: str) -> str:
    return " OR ".join(f"({partition} = {r.partition} AND {offset} >= {r.start} AND {offset} < {r.end})" for r in ranges) or "false"
