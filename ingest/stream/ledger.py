"""The ledger: one row a batch and partition, a projection of the target's commits (I7).

Delta deletes old log files, and with them the ranges in the commits; the ledger keeps them. It may lag behind the target and
is completed from the target's log by the next run; it never leads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ingest.errors import RunStopped
from ingest.files import Files
from ingest.places import Places
from ingest.stream import commit as commits
from ingest.stream.decide import LastWritten
from ingest.stream.delta_log import Commit, DeltaLog
from ingest.stream.in_force import InForce, leaves_out
from ingest.stream.ledger_row import LedgerRow, count_rows
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.mark import Mark
from ingest.stream.offsets import OffsetRange
from ingest.stream.standing import quarantined_ahead
from ingest.stream.tables import LEDGER_FIELDS

APPEND_EVERY_S = 60.0
# For tests and `ingest chaos`, whose runs do not live for a minute.
EVERY_VARIABLE = "INGEST_LEDGER_EVERY_S"
# What a run that was killed has left pending can wait as long again; but Delta cleans up a log by days, and no commit may be lost to that.
APPEND_AT_ONCE_AFTER = timedelta(hours=1)


@dataclass
class Ledger:
    """The ledger of one table while a run works on it, and what it and the target's log know of earlier batches."""

    places: Places
    target_log: DeltaLog
    quarantine_log: DeltaLog
    ledger_log: DeltaLog
    query_id: str | None = None
    predecessors: tuple[str, ...] = ()
    _last: LastWritten | None = None
    _pending: list[tuple[Commit, Mark]] = field(default_factory=list)
    _appended_at: float = 0.0
    _reached: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _quarantine_seen: int = -1
    _looked_at: int = -1
    _ledger_seen: int = -1

    @staticmethod
    def of(places: Places, files: Files) -> Ledger:
        """The ledger of the tables at `places`."""
        return Ledger(places, DeltaLog(files, places.target), DeltaLog(files, places.quarantine), DeltaLog(files, places.ledger))

    def complete(self, session: SparkSession, query_id: str | None, last: LastWritten | None, known: LedgerSummary) -> None:
        """Find what the target's log has in force and the ledger has not. Called before the first batch.

        It is appended with this run's own batches, for an append costs seconds in a JVM that has done nothing yet, or at once where it
        is old or Delta would skip it. `last` is the last batch of this checkpoint, as preflight has found it. Raises RunStopped
        TABLE_OWNED for a batch of somebody else in a table where preflight has found none.
        """
        self.query_id, self._last = query_id, last
        self._quarantine_seen = self.quarantine_log.newest()
        self._looked_at = self.target_log.newest()
        self._ledger_seen = self.ledger_log.newest()
        self._reached.update(known.reached)
        chain = InForce(self.target_log)
        if last is None:
            self._refuse_others(query_id, chain.commits())
        for commit in chain.commits():
            mark = commit.mark
            if mark is None or (mark.pipeline, mark.table) != (self.places.pipeline, self.places.table):
                continue
            if mark.id.number <= known.last_batch(mark.id.query_id):
                break  # what is older was projected before it
            self._pending.append((commit, mark))
        self._pending.reverse()
        for _, mark in self._pending:
            self._reach(mark)
        if self._quarantine_seen > 0 and (last is None or last.mark.epoch > 0):  # else no other checkpoint was there before
            ends = {} if last is None else {each.partition: each.end for each in last.mark.ranges}
            for place, end in quarantined_ahead(session, self.places, query_id, ends).items():
                self._reached[place] = max(self._reached.get(place, 0), end)
        self._appended_at = time.monotonic()
        if any(commit.committed_at < datetime.now(UTC) - APPEND_AT_ONCE_AFTER for commit, _ in self._pending) or self._rewound():
            self.append(session)

    def _rewound(self) -> bool:
        """Whether Delta would skip what is pending, as after a RESTORE of the ledger: the run is to stop before its first batch."""
        state = self.ledger_log.state() if self._pending else None
        return state is not None and any(mark.id.number <= state.pairs.get(mark.app_id("ledger"), -1) for _, mark in self._pending)

    def last_written(self, query_id: str) -> LastWritten | None:
        """The last batch of this query that the target holds. Looks at commits made by others since, too.

        Raises RunStopped TABLE_OWNED if another checkpoint commits to the table, TABLE_REWOUND if a batch of ours was left out.
        """
        newest = self.target_log.newest()
        if newest < self._looked_at:
            self._looked_at = -1  # dropped and made anew
        seen = self._looked_at if self._last is None else self._last.version
        since = self.target_log.since(seen)
        # Also what was left out by now: a batch of ours may have been read while it stood there.
        self._refuse_others(query_id, (commit for commit in since if commit.version > self._looked_at))
        self._looked_at = newest
        # Fewer versions than before: somebody has taken commits out of the log, or put a copy of the table back.
        if newest < seen or any(leaves_out(commit) for commit in since):
            since = self._in_force_since(seen)
        self._refuse_others(query_id, since)
        for commit in since:
            if commit.mark is not None and commit.mark.id.query_id == query_id:
                self._last = LastWritten(commit.mark, commit.version)
        return self._last

    def _refuse_others(self, query_id: str | None, commits: Iterable[Commit]) -> None:
        """Raises RunStopped TABLE_OWNED for a batch of a query that is neither ours nor one that a rebase has ended."""
        for commit in commits:
            mark = commit.mark
            if mark is not None and mark.id.query_id not in (query_id, *self.predecessors):
                raise RunStopped(
                    "TABLE_OWNED",
                    f"version {commit.version} of {self.places.target} is a batch of query {mark.id.query_id}, not of ours "
                    f"({query_id or 'a new checkpoint'}).",
                    expected="one checkpoint for a table at a time.",
                    remedy="stop the other run; then start this one again.",
                )

    def _in_force_since(self, version: int) -> list[Commit]:
        """The commits in force after `version`, ascending. Raises RunStopped TABLE_REWOUND if that was a batch of ours and is not
        in force itself."""
        chain = InForce(self.target_log)
        if self._last is None or chain.holds(version):
            return list(takewhile(lambda commit: commit.version > version, chain.commits()))[::-1]
        raise RunStopped(
            "TABLE_REWOUND",
            f"{self.places.target} was restored, replaced, overwritten or put back while the run was at work: "
            f"batch {self._last.mark.id.number} (version {self._last.version}) is no longer in force.",
            expected="every batch that the checkpoint has done, in force in the table.",
            remedy=f"start again: preflight says what is missing, and `ingest rebase {self.places.name} --to table` reads it again.",
        )

    def quarantine_mark(self) -> Mark | None:
        """The newest batch whose records the quarantine holds. Raises RunStopped QUARANTINE_REWOUND if some were taken away since
        the last call, or the start."""
        newest = self.quarantine_log.newest()
        since = self.quarantine_log.since(self._quarantine_seen)
        whole = newest >= self._quarantine_seen and not any(leaves_out(each) for each in since)
        if not whole and not InForce(self.quarantine_log).holds(self._quarantine_seen):
            raise RunStopped(
                "QUARANTINE_REWOUND",
                f"{self.places.quarantine} was restored, replaced or overwritten while the run was at work: its version "
                f"{self._quarantine_seen} is no longer in force.",
                expected="every record that was put into quarantine.",
                remedy=f"start again: preflight says what is missing, and `ingest rebase {self.places.name} --to table` reads it again.",
            )
        self._quarantine_seen = newest
        marks = (each.mark for each in self.quarantine_log.newest_first())
        return next((mark for mark in marks if mark is not None), None)

    def read_before(self, ranges: Iterable[OffsetRange], topic_id: str) -> bool:
        """Whether another checkpoint's batches have read any of these offsets before, be it only as far as their quarantine."""
        starts = {(topic_id, each.partition): each.start for each in ranges}
        others = (((topic, p), end) for (query, topic, p), end in self._reached.items() if query != self.query_id)
        return any(place in starts and end > starts[place] for place, end in others)

    def saw(self, commit: Commit) -> None:
        """Take note of a target commit that is to be projected."""
        mark = commit.mark
        assert mark is not None
        if self._last is not None and any(leaves_out(c) for c in self.target_log.since(self._last.version) if c.version < commit.version):
            self._in_force_since(self._last.version)  # it came between our look at the table and our commit
        self.query_id = mark.id.query_id
        self._last = LastWritten(mark, commit.version)
        self._pending.append((commit, mark))
        self._reach(mark)

    def append_if_due(self, session: SparkSession) -> None:
        """Append what is pending if the last time was a minute ago or more."""
        if time.monotonic() - self._appended_at >= float(os.environ.get(EVERY_VARIABLE) or APPEND_EVERY_S):
            self.append(session)

    def append(self, session: SparkSession) -> int:
        """Append what is pending; returns the number of rows. One commit a query id, since a pair belongs to one."""
        self._appended_at = time.monotonic()
        self._leave_to_others()
        rows = 0
        for query_id in dict.fromkeys(mark.id.query_id for _, mark in self._pending):
            batches = [(commit, mark) for commit, mark in self._pending if mark.id.query_id == query_id]
            projected = [row for commit, mark in batches for row in count_rows(session, self.places, commit, mark)]
            append_rows(session, projected, self.ledger_log, batches[-1][1])
            rows += len(projected)
        self._pending.clear()
        self._ledger_seen = self.ledger_log.newest()
        return rows

    def _leave_to_others(self) -> None:
        """Forget what another driver of this checkpoint has appended since: where no lock keeps it away, both find the same batches
        pending, and a pair that is higher than the other's lets Delta take them twice."""
        newest = self.ledger_log.newest()
        if not self._pending or newest == self._ledger_seen:
            return
        chain = InForce(self.ledger_log)
        if newest >= 0 and not chain.holds(self._ledger_seen):  # one that was dropped is told by who writes to it
            # What is pending would stand there as if all before it did too.
            raise RunStopped(
                "TABLE_REWOUND",
                f"{self.places.ledger} was restored, replaced or overwritten while the run was at work: its version "
                f"{self._ledger_seen} is no longer in force. Nothing was appended to it.",
                expected="the ledger as the run left it.",
                remedy="start again: what it lacks is taken from the target's log, as far as that goes back.",
            )
        for commit in takewhile(lambda commit: commit.version > self._ledger_seen, chain.commits()):
            if (there := commit.mark) is not None:
                self._pending = [(c, m) for c, m in self._pending if m.id.query_id != there.id.query_id or m.id.number > there.id.number]

    def _reach(self, mark: Mark) -> None:
        for each in mark.ranges:
            key = (mark.id.query_id, mark.topic_id, each.partition)
            self._reached[key] = max(self._reached.get(key, 0), each.end)


def append_rows(session: SparkSession, rows: Sequence[LedgerRow], log: DeltaLog, mark: Mark) -> None:
    """Append rows that reach up to the batch of `mark`, once."""
    frame = session.createDataFrame([tuple(asdict(row).values()) for row in rows], T.StructType(list(LEDGER_FIELDS)))
    commits.append_ledger(frame, log, mark)
