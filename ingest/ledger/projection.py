"""The ledger: one row a batch and partition, a projection of the target's commits (I7).

Delta deletes old log files, and with them the offsets in the commits; the ledger keeps them. It may lag behind the target, and the next
run completes it from the target's log; it never leads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from ingest.delta import writer as commits
from ingest.delta.batch_commit import FIRST_BATCH, BatchCommit
from ingest.delta.delta_log import Commit, DeltaLog, Logs
from ingest.delta.delta_sql import asked, quoted
from ingest.ledger.batch_history import with_existing_rows
from ingest.ledger.ledger_reader import LedgerState, cut_since, ledger_rows, unledgered
from ingest.ledger.ledger_row import LedgerRow, count_rows, epoch_begin
from ingest.runtime.places import Places

APPEND_EVERY_S = 60.0
# For tests and `ingest chaos`, whose runs do not live for a minute.
EVERY_VARIABLE = "INGEST_LEDGER_EVERY_S"


@dataclass
class Ledger:
    """The ledger of one table while one epoch of a run works on it."""

    session: SparkSession
    places: Places
    target: DeltaLog
    log: DeltaLog
    pending: list[tuple[Commit, BatchCommit]]
    sought: set[int]
    _seen: tuple[int, str] = field(init=False)
    _appended_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._look()

    def _look(self) -> None:
        version = self.log.newest()
        self._seen = version, self.log.stamp(version)

    @staticmethod
    def of(session: SparkSession, places: Places, logs: Logs, known: LedgerState) -> Ledger:
        """The ledger, with what a run before has left pending by the target's log."""
        pending = unledgered(logs.target, places.name, known)
        return Ledger(session, places, logs.target, logs.ledger, pending, set(known.sought))

    def saw(self, commit: Commit, batch_commit: BatchCommit) -> None:
        """Take note of a batch or a seek that was committed."""
        self.pending.append((commit, batch_commit))

    def append_if_due(self, session: SparkSession) -> None:
        """Append what is pending if the last time was a minute ago or more."""
        if time.monotonic() - self._appended_at >= float(os.environ.get(EVERY_VARIABLE) or APPEND_EVERY_S):
            self.append(session)

    def append(self, session: SparkSession | None = None) -> None:
        """Append what is pending. Whoever else has done so meanwhile has appended the same rows: the MERGE compares their keys.

        In a batch by the batch's own session: the run's own is shared with the other tables, and with it a commit's mark.
        """
        self._appended_at = time.monotonic()
        if not self.pending:
            return
        if cut_since(self.log, *self._seen):  # beneath this run: then all that the target's log has, too
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
        commits.merge_ledger(session or self.session, self.places.ledger, batch_commit, [vars(row) for row in rows.values()])
        self._look()
        self.pending.clear()

    def _project(self, commit: Commit, batch_commit: BatchCommit) -> Sequence[LedgerRow]:
        rows = count_rows(self.session, self.places, commit, batch_commit)
        if batch_commit.kind == "seek":
            self.sought.add(batch_commit.id.epoch)
            return rows if batch_commit.why == "first" else [*rows, *self._existing_rows(batch_commit)]
        begins = batch_commit.id.number == FIRST_BATCH and batch_commit.id.epoch not in self.sought
        return [*epoch_begin(commit, batch_commit), *rows] if begins else rows

    def _existing_rows(self, seek: BatchCommit) -> list[LedgerRow]:
        """The batch rows that this seek reads again or leaves out, with what stood of them when it looked."""
        older = f"kind = 'batch' AND epoch < {seek.id.epoch} AND topic_id = {quoted(seek.topic.id)}"
        kept = {row.key: row for row in asked(self.places.lake, self.session, lambda engine: ledger_rows(engine, self.places, older))}
        for commit, batch_commit in self.pending:
            if batch_commit.id < seek.id and batch_commit.kind == "batch":
                kept |= {row.key: row for row in count_rows(self.session, self.places, commit, batch_commit)}
        before = list(kept.values())
        after = asked(self.places.lake, self.session, lambda engine: with_existing_rows(engine, self.places, seek, before))
        return [now for then, now in zip(before, after, strict=True) if now is not then]
