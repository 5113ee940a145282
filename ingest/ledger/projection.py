"""Write the ledger: one row per batch and partition, projected from the target's commits (I7).

Delta deletes old log files, and with them the offsets in the commits. The ledger keeps these offsets. It may lag behind the target, and the
next run completes it from the target's log. It never leads the target.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from ingest.delta.batch_commit import FIRST_BATCH, BatchCommit
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import asked, quoted
from ingest.delta.table_writer import TableWriter
from ingest.ledger.batch_history import with_existing_rows
from ingest.ledger.ledger_reader import LedgerState, cut_since, ledger_rows, read_ledger, unledgered
from ingest.ledger.ledger_row import LedgerRow, count_rows, epoch_begin
from ingest.runtime.places import Places

APPEND_EVERY_S = 60.0
# For tests and `ingest chaos`, whose runs last less than a minute.
EVERY_VARIABLE = "INGEST_LEDGER_EVERY_S"


def complete(writer: TableWriter, places: Places) -> None:
    """Append to the ledger what only the target's log has.

    For a command that deletes rows or old files: without these the batches could no longer be counted.
    """
    session = writer.session
    logs = Logs.of(places, session)
    if logs.ledger.exists():
        Ledger.of(session, places, logs, read_ledger(session, logs.ledger), writer).append()


@dataclass
class Ledger:
    """The ledger of one table during one epoch of a run."""

    session: SparkSession | None
    places: Places
    target: DeltaLog
    log: DeltaLog
    pending: list[tuple[Commit, BatchCommit]]
    sought: set[int]
    writer: TableWriter
    _seen: tuple[int, str] = field(init=False)
    _appended_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._remember_version()

    def _remember_version(self) -> None:
        version = self.log.newest()
        self._seen = version, self.log.stamp(version)

    @staticmethod
    def of(session: SparkSession | None, places: Places, logs: Logs, known: LedgerState, writer: TableWriter) -> Ledger:
        """The ledger. Commits in the target's log that it lacks, from earlier runs, are pending."""
        pending = unledgered(logs.target, places.name, known)
        return Ledger(session, places, logs.target, logs.ledger, pending, set(known.sought), writer)

    def saw(self, commit: Commit, batch_commit: BatchCommit) -> None:
        """Add a committed batch or seek to the pending commits."""
        self.pending.append((commit, batch_commit))

    def append_if_due(self, session: SparkSession | None) -> None:
        """Append the pending commits if the last append was a minute ago or more."""
        if time.monotonic() - self._appended_at >= float(os.environ.get(EVERY_VARIABLE) or APPEND_EVERY_S):
            self.append(session)

    def append(self, session: SparkSession | None = None) -> None:
        """Append the pending commits. Rows that another process has appended meanwhile are the same: the writer compares keys.

        Inside a batch, pass the batch's own session. The other tables share the run's session, so their commits could carry this metadata.
        """
        self._appended_at = time.monotonic()
        if not self.pending:
            return
        if cut_since(self.log, *self._seen):  # during this run: append everything in the target's log again
            own = {batch_commit.id for _, batch_commit in self.pending}
            logged = unledgered(self.target, self.places.name, LedgerState())
            self.pending[:0] = [each for each in logged if each[1].id not in own]
        rows: dict[tuple[str, int, int, int, int], LedgerRow] = {}
        for commit, batch_commit in self.pending:
            for row in self._project(commit, batch_commit):
                if row.stood is not None or row.key not in rows:
                    rows[row.key] = row
        newest = max((batch_commit for _, batch_commit in self.pending), key=lambda batch_commit: batch_commit.id)
        batch_commit = replace(newest, kind="ledger", ranges=(), counts=(), gaps=())
        self.writer.merge_ledger(self.places, batch_commit, [vars(row) for row in rows.values()], session)
        self._remember_version()
        self.pending.clear()

    def _project(self, commit: Commit, batch_commit: BatchCommit) -> Sequence[LedgerRow]:
        rows = count_rows(self.session, self.places, commit, batch_commit)
        if batch_commit.kind == "seek":
            self.sought.add(batch_commit.id.epoch)
            return [*rows, *self._existing_rows(batch_commit)] if batch_commit.why == "seek" else rows
        begins = batch_commit.id.number == FIRST_BATCH and batch_commit.id.epoch not in self.sought
        return [*epoch_begin(commit, batch_commit), *rows] if begins else rows

    def _existing_rows(self, seek: BatchCommit) -> list[LedgerRow]:
        """The rows of batches that this seek re-reads or skips, with `stood`: how many of their rows existed when it read the tables."""
        older = f"kind IN ('batch', 'replay') AND epoch < {seek.id.epoch} AND topic_id = {quoted(seek.topic.id)}"
        kept = {row.key: row for row in asked(self.places.lake, self.session, lambda engine: ledger_rows(engine, self.places, older))}
        for commit, batch_commit in self.pending:
            if batch_commit.id < seek.id and batch_commit.positions:
                rows = count_rows(self.session, self.places, commit, batch_commit)
                kept |= {row.key: row for row in rows if row.kind in ("batch", "replay")}
        before = list(kept.values())
        after = asked(self.places.lake, self.session, lambda engine: with_existing_rows(engine, self.places, seek, before))
        return [now for then, now in zip(before, after, strict=True) if now is not then]
