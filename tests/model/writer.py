"""A writer of the model's tables: statements with and without a transaction id, as in ingest/delta/writer.py.

It yields before each statement, and between a statement's beginning and its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ingest.delta.batch_commit import BatchCommit, BatchId, Case, Project, Snapshots
from ingest.delta.posting import Posting
from ingest.kafka.topic_state import TopicId
from ingest.ledger.projection import unwritten
from tests.model.count import PLACES, logs
from tests.model.delta import NAME, PIPELINE, Log, Version

if TYPE_CHECKING:
    from tests.model.world import World

TARGET, QUARANTINE, LEDGER = 0, 1, 2
TRIES_MAX = 4
Steps = Generator[None, None, None]
Doing = Generator[None, None, Any]


class Stopped(Exception):
    """Stops a driver, like the engine's own errors. `code` is one of theirs, or TABLE_GONE or DATA_LOSS for errors of Spark."""

    def __init__(self, code: str, what: str) -> None:
        self.code = code
        super().__init__(f"{code}: {what}")


@dataclass(frozen=True)
class Change:
    """The effect of a statement on a table: all rows after it, its operation, its postings, and other fields of its Version."""

    rows: Mapping[Any, Any]
    operation: str = "MERGE"
    postings: tuple[Posting, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


Still = Callable[[], BatchCommit]
Effect = Callable[[Any], Change | None]


class Writer:
    """One writer of a world's tables. `writer` is its id, `sources` the topics by number.

    `place` is the statement that it starts or finishes when it continues.
    """

    def __init__(self, world: World) -> None:
        self.world, self.mutations = world, world.mutations
        self.writer = world.new_id("w")
        self.epoch = 0
        self.sources: tuple[TopicId, ...] = ()
        self.logs = [Log(world.tables, which) for which in (TARGET, QUARANTINE, LEDGER)]
        self.place = ""

    def batch_commit(self, case: Case, number: int, snapshots: Snapshots, postings: tuple[Posting, ...] = ()) -> BatchCommit:
        return BatchCommit(case, PIPELINE, NAME, BatchId(self.epoch, number), self.writer, snapshots, "", self.sources, postings)

    def commit(self, which: int, still: Still, change: Effect, *, reads: bool = True) -> Doing:
        version = yield from self.try_commit(which, still, change, reads=reads)
        if version is None:
            raise Stopped("FENCED", f"a statement of epoch {self.epoch} was not executed")
        return version

    def try_commit(self, which: int, still: Still, change: Effect, *, reads: bool = True) -> Doing:
        """The commit of one statement; None if Delta skipped it or a later epoch committed first."""
        for _ in range(TRIES_MAX):
            batch_commit = still()
            before = self.logs[which].newest()
            self.place = f"{batch_commit.kind} {self.logs[which].table} next"
            yield
            failed = yield from self._execute(which, batch_commit, change, reads=reads)
            self.place = ""
            own = self._own(which, batch_commit, before)
            if own is not None or failed != "files":
                return own
        raise Stopped("CONFLICT", "too many conflicts")

    def _execute(self, which: int, batch_commit: BatchCommit, change: Effect, *, reads: bool) -> Doing:
        world = self.world
        table = world.tables[which]
        if table is None:
            raise Stopped("TABLE_GONE", self.logs[which].table)
        if table.newest.txn >= batch_commit.id.txn_version and not (
            self.mutations.epoch_ignored and BatchId.of(table.newest.txn).epoch > self.epoch
        ):
            return ""
        since, changed = len(table.versions) - 1, change(table.newest.rows)
        if changed is None:
            return ""
        self.place = f"{batch_commit.kind} {self.logs[which].table} at work"
        yield
        if world.tables[which] is not table:
            raise Stopped("TABLE_GONE", self.logs[which].table)
        if failed := table.conflict(since, fenced=True, reads=reads):
            return failed
        batch_commit = replace(batch_commit, postings=(*batch_commit.postings, *changed.postings))
        table.commit(changed.operation, changed.rows if reads else table.newest.rows, batch_commit, **changed.more)
        world.invariants.committed(which, self.epoch)
        return ""

    def _own(self, which: int, batch_commit: BatchCommit, before: int) -> Version | None:
        fenced = [each for each in self.logs[which].since(-1 if self.mutations.writer_ignored else before) if each.fenced]
        for version in reversed(fenced):
            there = version.batch_commit
            if there is not None and there.id == batch_commit.id and (self.mutations.writer_ignored or there.writer == batch_commit.writer):
                return version
        return None

    def fenced_off(self, which: int, batch_commit: BatchCommit) -> bool:
        table = self.world.tables[which]
        return table is not None and table.newest.txn >= batch_commit.id.txn_version

    def unfenced(self, which: int, about: BatchCommit, change: Effect) -> Steps:
        for _ in range(TRIES_MAX):
            self.place = f"{self.logs[which].table} next"
            yield
            if (table := self.world.tables[which]) is None:
                raise Stopped("TABLE_GONE", self.logs[which].table)
            since, changed = len(table.versions) - 1, change(table.newest.rows)
            if changed is None:
                return
            self.place = f"{self.logs[which].table} at work"
            yield
            self.place = ""
            if self.world.tables[which] is not table:
                raise Stopped("TABLE_GONE", self.logs[which].table)
            if not table.conflict(since, fenced=False, reads=True):
                table.commit(changed.operation, changed.rows, about, **changed.more)
                return
        raise Stopped("CONFLICT", "too many conflicts")

    def project(self) -> Steps:
        """Append to the ledger what it lacks."""
        lines, snapshots = unwritten(logs(self.world.tables), PLACES.name)
        if lines:
            about = BatchCommit(Project(), PIPELINE, NAME, snapshots=snapshots)
            yield from self.unfenced(LEDGER, about, lambda there: Change({**there, **dict.fromkeys(lines)}, "WRITE"))
            yield
