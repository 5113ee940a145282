"""Write the ledger: a projection of the postings in the commits of target and quarantine (I7).

Delta deletes old log files, and with them the postings in the commits. The ledger keeps these. It may lag behind the tables, and the next
run completes it from their logs; it never leads them. Each of our commits on it says up to which versions of the tables it is complete. So
a ledger that was deleted, restored or cut is made again as far as the logs reach.
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingest.delta.batch_commit import POSITIONED, BatchCommit, BatchId, Project, Snapshot, Snapshots, State, app_id
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import asked
from ingest.delta.our_commits import newest_first
from ingest.delta.reachable import copied
from ingest.delta.table_writer import TableWriter
from ingest.ledger.books import logged_lines, read_books
from ingest.ledger.ledger_line import Line
from ingest.ledger.ledger_reader import written
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPEND_EVERY_S = 60.0
# For tests and `ingest chaos`, whose runs last less than a minute.
EVERY_VARIABLE = "INGEST_LEDGER_EVERY_S"


def unwritten(logs: Logs, name: str, version: int | None = None) -> tuple[list[Line], Snapshots | None]:
    """The lines that the ledger lacks, and the snapshots of target and quarantine up to which it is complete with them.

    None if target or quarantine does not exist. `version` is the ledger's (None: its newest). Raises Refused LOG_TORN.
    """
    target, quarantine = logs.target.state(), logs.quarantine.state()
    if target is None or quarantine is None:
        return [], None
    now, (before, _) = Snapshots(target.snapshot, quarantine.snapshot), written(logs.ledger, name, version)
    known = (None, None) if before is None else (before.target, before.quarantine)
    lines = [*logged_lines("target", logs.target, name, _after(logs.target, now.target, known[0]), now.target.version)]
    lines += logged_lines("quarantine", logs.quarantine, name, _after(logs.quarantine, now.quarantine, known[1]), now.quarantine.version)
    return lines, now


def _after(log: DeltaLog, now: Snapshot, known: Snapshot | None) -> int:
    """The version whose lines the ledger has. Of a table that is another one, or a copy, it has none."""
    return -1 if known is None or copied(log, now, known) is not None else known.version


def append(writer: TableWriter, places: Places, logs: Logs, session: SparkSession | None = None) -> None:
    """Append what the ledger lacks. Two processes may append the same lines: readers take each once.

    Inside a batch, pass the batch's own session. The other tables share the run's session, so their commits could carry this metadata.
    """
    lines, snapshots = unwritten(logs, places.name)
    if lines:
        about = BatchCommit(Project(), places.pipeline, places.table, snapshots=snapshots)
        writer.append_ledger(places, about, [line.row() for line in lines], session)


def complete(writer: TableWriter, places: Places, *, alone: bool = False) -> None:
    """Append what the ledger lacks, if there is one. For a command that removes files of old versions.

    If it is `alone` with the table, it first posts what only these files say: a run in progress would be fenced by that.
    """
    logs = Logs.of(places, writer.session)
    target, quarantine = logs.target.state(), logs.quarantine.state()
    # Each statement posts what the one before it could not: only the newest may be open, and only then the books are read.
    newest = next((found for _, found in newest_first(logs.target, places.name, *POSITIONED)), None) if alone else None
    if newest is not None and newest.opened and target is not None and quarantine is not None:
        left = asked(places.lake, writer.session, lambda engine: read_books(engine, places)).unposted
        if left:
            last = BatchId.of(target.transactions[app_id(places.pipeline, places.table)])
            statement = BatchId(last.epoch, last.number + 1), str(uuid.uuid4()), Snapshots(target.snapshot, quarantine.snapshot)
            about = left[-1].contract_hash, newest.sources, tuple(line.posting for line in left)
            writer.post(logs.target, BatchCommit(State(), places.pipeline, places.table, *statement, *about))
    if logs.ledger.exists():
        append(writer, places, logs)


@dataclass
class Ledger:
    """The ledger of one table during one epoch of a run."""

    places: Places
    logs: Logs
    writer: TableWriter
    _appended_at: float = field(default_factory=time.monotonic)

    def append_if_due(self, session: SparkSession | None) -> None:
        """Append what the ledger lacks if the last append was a minute ago or more."""
        if time.monotonic() - self._appended_at >= float(os.environ.get(EVERY_VARIABLE) or APPEND_EVERY_S):
            self.append(session)

    def append(self, session: SparkSession | None = None) -> None:
        """Append what the ledger lacks."""
        self._appended_at = time.monotonic()
        append(self.writer, self.places, self.logs, session)
