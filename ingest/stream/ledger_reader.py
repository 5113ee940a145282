"""The ledger's summary: what it knows of each checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.delta_sql import At, engine_for
from ingest.files import files_of
from ingest.places import Places
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_summary import LedgerSummary, summary_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEWEST = """\
SELECT * FROM (
  SELECT *, max(end_offset) OVER (PARTITION BY query_id, topic_id, partition) AS reached,
         row_number() OVER (PARTITION BY query_id, topic_id, partition ORDER BY batch_id DESC) AS place
  FROM {ledger} WHERE kind = 'batch'
) WHERE place = 1"""
QUARANTINED = """\
SELECT query_id, topic_id, partition, min(batch_id) AS first_batch, max(batch_id) AS last_batch, min(start_offset) AS start
FROM {ledger} WHERE kind = 'batch' AND quarantined > 0 GROUP BY query_id, topic_id, partition"""
REBASES = "SELECT * FROM {ledger} WHERE kind IN ('rebase', 'gap_accepted')"


def summarise(session: SparkSession | None, places: Places, version: int | None = None) -> LedgerSummary:
    """What the ledger knows of each checkpoint, at a version or now; empty where there is none. A lake on the machine's own disk needs
    no session.

    Raises Refused LOG_TORN, and Unreadable.
    """
    if DeltaLog(files_of(places.lake, session), places.ledger).state() is None:
        return LedgerSummary()
    engine, ledger = engine_for(places.ledger, session), At(places.ledger, version)
    return summary_of(*(engine.ask(sql, ledger=ledger) for sql in (NEWEST, REBASES, QUARANTINED)))
