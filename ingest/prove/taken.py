"""Rows that commits of others took from the target: a DELETE by right, all else not (I4). It reads only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile

from ingest.delta_sql import At, Engine, Unreadable
from ingest.prove.count import Rows, positions
from ingest.prove.intervals import EMPTY, Intervals
from ingest.prove.piece import Piece
from ingest.stream.delta_log import Commit, DeltaLog
from ingest.stream.in_force import InForce, leaves_out
from ingest.stream.ledger_row import LedgerRow

Partition = tuple[str, int]
"""Topic id and partition."""
# As Delta and delta-rs name the rows that came and went with a MERGE.
MERGED = ("numTargetRowsInserted", "numTargetRowsDeleted", "num_target_rows_inserted", "num_target_rows_deleted")


def deletes(log: DeltaLog, version: int | None = None) -> Iterator[Commit]:
    """The DELETE commits among those `by_others`, the newest first."""
    return (commit for commit in by_others(log, version) if commit.operation == "DELETE")


def by_others(log: DeltaLog, version: int | None = None) -> Iterator[Commit]:
    """Commits of others up to `version` (None: the newest), from the newest back, but for those that a RESTORE undid.

    Behind a replacement or an overwrite, which end the chain of commits in force, they still have taken what they took: it was made
    of what they left.
    """
    while version is None or version >= 0:
        last: Commit | None = None
        for last in InForce(log, version).commits():
            if last.mark is None and last.operation != "RESTORE":
                yield last
        if last is None or last.operation == "RESTORE" or not leaves_out(last):
            return
        version = last.version - 1


def taken(table: str, commit: Commit, *but: Rows) -> Rows:
    """The positions of the version before a commit that are not in its own, nor among those of `but`."""
    return Rows(At(table, commit.version - 1), but_not=(Rows(At(table, commit.version)), *but))


@dataclass(frozen=True)
class Change:
    """What a commit of somebody else did to positions that do not stand now: it took some of them, or put some there (by hand).

    `took` None: the files of the versions before and after are gone, and of a DELETE its own figure is known.
    """

    commit: Commit
    took: Mapping[Partition, Intervals] | None
    put: Mapping[Partition, Intervals] = field(default_factory=dict)


@dataclass(frozen=True)
class Taken:
    """What happened to the target's rows that do not stand now, by the commits of others in force, ascending."""

    changes: tuple[Change, ...] = ()

    @cached_property
    def untold(self) -> int:
        """How many rows DELETE commits took whose positions nobody can tell any more: VACUUM has taken the files.

        What somebody has put back of them by hand is none of these. Where a later DELETE's rows are known, it is known too which of
        them stand again.
        """
        deleted = [each.commit for each in self.changes if each.took is None and each.commit.operation == "DELETE"]
        if not deleted:
            return 0
        told = [each.commit.version for each in self.changes if each.took is not None and each.commit.operation == "DELETE"]
        between = (each.commit for each in self.changes if deleted[0].version < each.commit.version)
        by_hand = (c for c in between if (not told or c.version < told[0]) and c.added and not c.removed)
        back = sum(file.records or 0 for commit in by_hand for file in commit.added)
        return max(0, sum(commit.deleted_rows for commit in deleted) - back)

    @property
    def untold_from(self) -> int:
        """The version of the first of these DELETE commits; call it only where there is one."""
        return next(each.commit.version for each in self.changes if each.took is None and each.commit.operation == "DELETE")

    def untold_since(self, version: int) -> int:
        """The same, by the figures alone, of the DELETE commits after a version."""
        commits = (each.commit for each in self.changes if each.took is None and each.commit.version > version)
        return sum(commit.deleted_rows for commit in commits)

    def deleted(self, row: LedgerRow) -> Intervals:
        """Offsets of a ledger row's range that a DELETE took after its commit: those of which it was the last change, and which
        stood when the row was committed. Who deletes what he put there himself has taken nothing of the row's."""
        by_delete, _ = self._of(row.topic_id, row.partition, row.target_version)
        return by_delete.clip(row.start_offset, row.end_offset)

    def lost(self, row: LedgerRow) -> int:
        """How many positions of its range stood when the row was committed, and went in another way."""
        _, otherwise = self._of(row.topic_id, row.partition, row.target_version)
        return otherwise.count(row.start_offset, row.end_offset)

    def of_piece(self, piece: Piece) -> int:
        """The same of the first row of a piece's."""
        since = min(row.target_version for row in piece.rows)
        by_delete, _ = self._of(piece.topic_id, piece.partition, since)
        return by_delete.count(piece.start, piece.end)

    def _of(self, topic_id: str, partition: int, since: int) -> tuple[Intervals, Intervals]:
        """What stood at a version and was taken after it: by a DELETE at last, or in another way."""
        of = topic_id, partition
        if of not in self._known:
            self._known[of] = list(_taken_from_each(self.changes, of))[::-1]
        return self._known[of][bisect_right(self._versions, since)]

    def others(self, row: LedgerRow) -> Iterator[tuple[Commit, int]]:
        """Commits but DELETEs that took positions of a row's range after it, with their number."""
        for each in self.changes[bisect_right(self._versions, row.target_version) :]:
            if each.commit.operation != "DELETE" and each.took is not None:
                number = each.took.get((row.topic_id, row.partition), EMPTY).count(row.start_offset, row.end_offset)
                if number:
                    yield each.commit, number

    @cached_property
    def _versions(self) -> list[int]:
        return [each.commit.version for each in self.changes]

    @cached_property
    def _known(self) -> dict[Partition, list[tuple[Intervals, Intervals]]]:
        return {}


def _taken_from_each(changes: Sequence[Change], partition: Partition) -> Iterator[tuple[Intervals, Intervals]]:
    """Of what stood before the changes from one on (the first one that it met took it), what a DELETE was the last to take, and what
    went in another way; from none of them back to all.

    What is put back after a change that nobody can tell of may be what that took.
    """
    stood = touched = deleted = every = EMPTY
    yield EMPTY, EMPTY
    for each in reversed(changes):
        if each.took is None:
            stood = every
        else:
            took, put = each.took.get(partition, EMPTY), each.put.get(partition, EMPTY)
            every, stood = Intervals.union((every, took)), Intervals.union((stood.minus(put), took))
            if each.commit.operation == "DELETE":
                deleted = Intervals.union((deleted, took.minus(touched)))
            touched = Intervals.union((touched, took, put))
        yield stood.common(deleted), stood.minus(deleted)


def took(engine: Engine, target: Rows, records: Rows, log: DeltaLog, rows: Collection[LedgerRow]) -> bool:
    """Whether a commit after the first of these ledger rows that is no DELETE took positions that do not stand now."""
    topics = {row.topic_id for row in rows}
    for commit in _moving(log, target.table.version, rows):
        if commit.operation == "DELETE" or not commit.removed:
            continue
        with suppress(Unreadable):
            if _positions(engine, taken(target.table.path, commit, target, records), topics):
                return True
    return False


def _moving(log: DeltaLog, version: int | None, rows: Collection[LedgerRow]) -> Iterator[Commit]:
    """The commits of others after the first of these ledger rows with which rows may have come or gone, from the newest back."""
    since = min((row.target_version for row in rows), default=-1)
    after = takewhile(lambda commit: commit.version > since, by_others(log, version))
    return (commit for commit in after if _moves_rows(commit))


def _moves_rows(commit: Commit) -> bool:
    """Whether rows may have come or gone with it. An UPDATE only changes them, as a MERGE may that says so; OPTIMIZE and the like have not
    even done that."""
    told = [commit.metrics.get(name) for name in MERGED]
    merged = commit.operation == "MERGE" and any(each is not None for each in told) and all(int(each or 0) == 0 for each in told)
    return commit.changes_rows and commit.operation != "UPDATE" and not merged and bool(commit.added or commit.removed)


def taken_since(engine: Engine, target: Rows, records: Rows, log: DeltaLog, rows: Collection[LedgerRow]) -> Taken:
    """What commits of others did to positions of these ledger rows' topics, after the first of them, that do not stand now, neither in
    the target (at its version) nor among `records`. Raises Unreadable if these two cannot be read."""
    topics = {row.topic_id for row in rows}
    path, now = target.table.path, (target, records)
    changes: list[Change] = []
    for commit in _moving(log, target.table.version, rows) if rows else ():
        put = Rows(At(path, commit.version), but_not=(Rows(At(path, commit.version - 1)), *now))
        try:
            gone = _positions(engine, taken(path, commit, *now), topics) if commit.removed else {}
            changes.append(Change(commit, gone, _positions(engine, put, topics) if commit.added else {}))
        except Unreadable:
            changes.append(Change(commit, None))
    return Taken(tuple(reversed(changes)))


def _positions(engine: Engine, rows: Rows, topics: Iterable[str]) -> dict[Partition, Intervals]:
    found = {}
    for topic_id in topics:
        for partition, offsets in positions(engine, rows, topic_id).items():
            found[topic_id, partition] = Intervals.of_offsets(offsets)
    return found
