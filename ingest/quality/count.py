"""How many rows the target should hold by the ledger: what the expectation on the row count is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.delta_sql import At, engine_for, quoted
from ingest.files import files_of
from ingest.places import Places
from ingest.stream.delta_log import DeltaLog
from ingest.stream.in_force import InForce
from ingest.stream.ledger_reader import summarise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ledger_rows(session: SparkSession | None, places: Places, log: DeltaLog, version: int) -> int:
    """Rows inserted by the batches in force up to `version` of the target, less those that DELETE commits say they removed.

    The ledger may lag (I7): batches that only the target's log has yet count by the records of their files. DELETE commits that
    Delta has cleaned out of its log (30 days) are not known here. A lake on the machine's own disk needs no session.

    Raises Refused LOG_TORN, and Unreadable.
    """
    # One version of the ledger for both questions: what a run appends in between would count twice, by its rows and by the log.
    ledger = At(places.ledger, DeltaLog(files_of(places.lake, session), places.ledger).newest())
    summary = summarise(session, places, ledger.version)
    in_force = [f"kind = 'batch' AND target_version <= {version}"]
    # A rebase has said which batches of the epochs before were in force.
    in_force += [f"(query_id <> {quoted(query_id)} OR batch_id <= {last})" for query_id, last in summary.ended.items()]
    sql = f"SELECT sum(inserted) AS n FROM {{ledger}} WHERE {' AND '.join(in_force)}"
    rows = engine_for(places.ledger, session).ask(sql, ledger=ledger) if ledger.version != -1 else []
    expected = sum(int(row["n"] or 0) for row in rows)
    for commit in InForce(log, version).commits():
        mark = commit.mark
        if mark is not None and mark.id.number > summary.last_batch(mark.id.query_id):
            expected += sum(file.records or 0 for file in commit.added)
        elif commit.operation == "DELETE":
            expected -= commit.deleted_rows
    return expected
