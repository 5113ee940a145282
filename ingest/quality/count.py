"""How many rows the target should hold by the ledger: what the expectation on the row count is held against."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.places import Places
from ingest.stream.delta_log import DeltaLog
from ingest.stream.in_force import InForce
from ingest.stream.ledger_reader import summarise


def ledger_rows(session: SparkSession, places: Places, log: DeltaLog, version: int) -> int:
    """Rows inserted by the batches in force up to `version` of the target, less those that DELETE commits say they removed.

    The ledger may lag (I7): batches that only the target's log has yet count by the records of their files. DELETE commits that
    Delta has cleaned out of its log (30 days) are not known here.
    """
    summary = summarise(session, places)
    in_force = F.col("kind") == "batch"
    for query_id, last in summary.ended.items():
        # A rebase has said which batches of the epochs before were in force.
        in_force &= (F.col("query_id") != query_id) | (F.col("batch_id") <= last)
    ledger = session.read.format("delta").load(places.ledger).where(in_force & (F.col("target_version") <= version))
    expected = int(ledger.agg(F.coalesce(F.sum("inserted"), F.lit(0))).first()[0])  # type: ignore[index]
    for commit in InForce(log).commits():
        if commit.version > version:
            continue
        mark = commit.mark
        if mark is not None and mark.id.number > summary.last_batch(mark.id.query_id):
            expected += sum(file.records or 0 for file in commit.added)
        elif commit.operation == "DELETE":
            expected -= int(commit.metrics.get("numDeletedRows") or 0)
    return expected
