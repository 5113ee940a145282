"""A table's batches, epoch starts and accepted gaps, read from its ledger and log. Writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ingest.delta.batch_commit import FIRST_BATCH, BatchCommit, BatchId, rebuilt_since
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import Engine, Unreadable
from ingest.delta.stored_rows import found
from ingest.kafka.intervals import Intervals
from ingest.ledger.ledger_reader import ledger_rows
from ingest.ledger.ledger_row import LedgerRow, count_rows, epoch_begin
from ingest.runtime.files import files_of
from ingest.runtime.places import Places

Partition = tuple[str, int]
"""Topic id and partition."""


@dataclass(frozen=True)
class Seek:
    """A seek in one partition: its epoch re-reads or skips every offset from `start` on.

    `snapshots` are the versions of target and quarantine that the seek read.
    """

    epoch: int
    start: int
    snapshots: tuple[int, int]


@dataclass(frozen=True)
class BatchHistory:
    """The ledger's rows by kind, completed from the target's log up to `version`, which may be ahead of the ledger.

    Batches that a RESTORE reverted are included; those before a rebuild are not. `commits` are the batches and seeks in the log; `late` are
    its batches that the ledger lacks. `retired` count what `ingest maintain` and `ingest erase` removed. `former_gaps` were accepted before
    the newest rebuild.
    """

    version: int
    batches: tuple[LedgerRow, ...]
    begins: tuple[LedgerRow, ...]
    gaps: tuple[LedgerRow, ...]
    replays: tuple[LedgerRow, ...]
    commits: Mapping[BatchId, tuple[Commit, BatchCommit]]
    late: frozenset[BatchId]
    retired: tuple[LedgerRow, ...] = ()
    former_gaps: tuple[LedgerRow, ...] = ()

    def retired_since(self, version: int) -> Counter[tuple[int, int, int]]:
        """How many quarantined records retention removed after this version of the target, by epoch, batch and partition."""
        found: Counter[tuple[int, int, int]] = Counter()
        for row in self.retired:
            if row.target_version > version:
                found[row.epoch, row.batch, row.partition] += row.quarantined
        return found

    def erased_since(self, version: int) -> Counter[tuple[int, int, int]]:
        """How many rows `ingest erase` removed after this version of the target, by epoch, batch and partition."""
        found: Counter[tuple[int, int, int]] = Counter()
        for row in self.retired:
            if row.kind == "erased" and row.target_version > version:
                found[row.epoch, row.batch, row.partition] += row.inserted
        return found

    @property
    def rebuilt(self) -> int:
        """The first epoch of the newest rebuild; 0 for a table that was never rebuilt."""
        return max((rebuilt_since(row.why) or 0 for row in self.begins), default=0)

    @cached_property
    def topics(self) -> dict[int, str]:
        """The topic id of each epoch."""
        return {row.epoch: row.topic_id for row in (*self.begins, *self.batches)}

    @cached_property
    def last(self) -> dict[int, int]:
        """The last batch of each epoch."""
        return {row.epoch: row.batch for row in sorted(self.batches, key=lambda row: (row.epoch, row.batch))}

    @cached_property
    def seeks(self) -> dict[Partition, list[Seek]]:
        """The seeks of each partition, by epoch."""
        seeks: dict[Partition, list[Seek]] = {}
        gaps = {(row.epoch, row.partition): row.start_offset for row in sorted(self.gaps, key=lambda row: -row.start_offset)}
        for row in sorted(self.begins, key=lambda row: row.epoch):
            if row.why == "seek":
                start = min(row.start_offset, gaps.get((row.epoch, row.partition), row.start_offset))
                _, batch_commit = self.commits.get(BatchId(row.epoch, row.batch), (None, None))
                snapshots = (
                    (row.target_version, 0)
                    if batch_commit is None
                    else (batch_commit.snapshots.target.version, batch_commit.snapshots.quarantine.version)
                )
                seeks.setdefault((row.topic_id, row.partition), []).append(Seek(row.epoch, start, snapshots))
        return seeks

    def again(self, row: LedgerRow) -> Seek | None:
        """The newest seek that re-reads this batch from its first offset on, or skips it.

        None unless batches and accepted gaps of its epoch and later ones cover the whole batch.
        """
        seeks = self.seeks.get((row.topic_id, row.partition), ())
        newest = next((seek for seek in reversed(seeks) if seek.epoch > row.epoch and seek.start <= row.start_offset), None)
        if newest is None:
            return None
        covered = self.covered(row.topic_id, row.partition, newest.epoch)
        return newest if covered.count(row.start_offset, row.end_offset) == row.end_offset - row.start_offset else None

    def covered(self, topic_id: str, partition: int, epoch: int = 0) -> Intervals:
        """The offsets in batches and accepted gaps of this and later epochs."""
        key = (topic_id, partition, epoch)
        if key not in self._covered:
            here = self._by_partition.get((topic_id, partition), ())
            self._covered[key] = Intervals.of((row.start_offset, row.end_offset) for row in here if row.epoch >= epoch)
        return self._covered[key]

    def left_out(self, row: LedgerRow) -> Intervals:
        """The gaps that later epochs accepted in this batch's partition."""
        there = (gap for gap in self.gaps if (gap.topic_id, gap.partition) == (row.topic_id, row.partition) and gap.epoch > row.epoch)
        return Intervals.of((gap.start_offset, gap.end_offset) for gap in there)

    @cached_property
    def _by_partition(self) -> dict[Partition, list[LedgerRow]]:
        rows: dict[Partition, list[LedgerRow]] = {}
        for row in (*self.batches, *self.gaps):
            rows.setdefault((row.topic_id, row.partition), []).append(row)
        return rows

    @cached_property
    def _covered(self) -> dict[tuple[str, int, int], Intervals]:
        return {}


def batch_history(engine: Engine, places: Places, version: int | None = None) -> BatchHistory:
    """Read the ledger, and then the target's log up to `version` (None: the newest), because a run may commit meanwhile.

    Missing tables count as empty. Raises Refused LOG_TORN, and Unreadable.
    """
    files = files_of(places.lake, engine.session)
    kept = ledger_rows(engine, places) if DeltaLog(files, places.ledger).state() is not None else []
    log = DeltaLog(files, places.target)
    if version is None:
        version = version_of(log)
    else:
        kept = [row for row in kept if row.target_version <= version]
    known = {BatchId(row.epoch, row.batch) for row in kept if row.kind not in ("retention", "erased")}
    commits = {batch_commit.id: (commit, batch_commit) for commit, batch_commit in _ours(log, places.name, version)}
    missing = sorted(set(commits) - known)
    with_start = {row.epoch for row in kept if row.kind == "epoch"} | {id.epoch for id in missing if commits[id][1].kind == "seek"}
    for id in missing:
        commit, batch_commit = commits[id]
        if id.number == FIRST_BATCH and id.epoch not in with_start:
            kept += epoch_begin(commit, batch_commit)
        kept += count_rows(engine.session, places, commit, batch_commit)
    for id in missing:
        kept = with_existing_rows(engine, places, commits[id][1], kept) if commits[id][1].why == "seek" else kept
    # A rebuild replaced the rows of all earlier epochs, so their batches are history.
    since = max((epoch for row in kept if (epoch := rebuilt_since(row.why)) is not None), default=0)
    former_gaps = tuple(row for row in kept if row.epoch < since and row.kind == "gap_accepted")
    kept = [row for row in kept if row.epoch >= since]
    commits = {id: commit for id, commit in commits.items() if id.epoch >= since}
    late = frozenset(id for id in missing if id in commits and commits[id][1].kind == "batch")

    def of(*kinds: str) -> tuple[LedgerRow, ...]:
        return tuple(row for row in kept if row.kind in kinds)

    retired = of("retention", "erased")
    return BatchHistory(version, of("batch"), of("epoch"), of("gap_accepted"), of("replay"), commits, late, retired, former_gaps)


def with_existing_rows(engine: Engine, places: Places, seek: BatchCommit, rows: list[LedgerRow]) -> list[LedgerRow]:
    """Set `stood` on the rows of batches that a seek re-reads or skips: how many of their rows existed when the seek read the tables.

    Returns the rows unchanged if the tables can no longer be read at those versions.
    """
    starts = {each.partition: each.start for each in sorted((*seek.ranges, *seek.gaps), reverse=True)}
    try:
        there = found(engine, places, seek.snapshots.target.version, seek.snapshots.quarantine.version)
    except Unreadable:
        return rows  # VACUUM removed the files, so nobody can count any more

    def again(row: LedgerRow) -> bool:
        older = row.kind in ("batch", "replay") and row.epoch < seek.id.epoch and row.topic_id == seek.topic.id
        return older and row.start_offset >= starts.get(row.partition, row.end_offset + 1)

    return [replace(row, stood=sum(there.get((row.epoch, row.batch, row.partition), (0, 0)))) if again(row) else row for row in rows]


def version_of(log: DeltaLog) -> int:
    """The newest version of a table, even if Delta cleaned up its commit; -1 if there is none."""
    state = log.state()
    return -1 if state is None else state.version


def _ours(log: DeltaLog, name: str, version: int) -> Iterator[tuple[Commit, BatchCommit]]:
    for commit in log.newest_first():
        batch_commit = commit.batch_commit
        if commit.version <= version and batch_commit is not None and batch_commit.name == name and batch_commit.kind in ("batch", "seek"):
            yield commit, batch_commit
