"""Which rows a validation run covers: the whole table, or what batches have added since the last one. Pure.

What is new is told by batches: each row carries the epoch and batch that inserted it, and the target keeps statistics of both, so that
Delta reads only files that can hold such rows. Files themselves would not do: an OPTIMIZE puts old and new rows into one file.
A change that is no batch of ours (an UPDATE, somebody's INSERT, a RESTORE) has no positions to go by; then the whole table is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ingest.delta.delta_log import Commit
from ingest.delta.reachable import reverts

# They take rows away or move them, and add none.
ADDS_NO_ROW = ("OPTIMIZE", "DELETE", "REORG", "VACUUM START", "VACUUM END")


@dataclass(frozen=True)
class Last:
    """The last validation run that came to an end: the target's version then, its table id, the suite's hash."""

    version: int
    target_id: str
    suite_hash: str


@dataclass(frozen=True)
class Slice:
    """The batches first to last, both included, of one epoch."""

    epoch: int
    first: int
    last: int


@dataclass(frozen=True)
class Scope:
    """What to check at `version` of the target. `whole`: all rows, `why` says for what reason; else the rows of the batches in `slices`.

    `after` is the version of the last validation run, None if all rows are checked. No slices: nothing new.
    """

    version: int
    after: int | None
    slices: tuple[Slice, ...] = ()
    why: str = ""

    @property
    def name(self) -> Literal["whole", "new"]:
        """As the quality table has it."""
        return "whole" if self.after is None else "new"


def decide(
    last: Last | None, version: int, target_id: str, suite_hash: str, commits: Sequence[Commit], table: str, *, everything: bool = False
) -> Scope:
    """What to check at `version`; `commits` are those that the log has after the last run's version, `table` is `pipeline.table`."""

    def whole(why: str) -> Scope:
        return Scope(version, None, (), why)

    if everything:
        return whole("asked for")
    if last is None:
        return whole("the first validation run")
    if last.target_id != target_id:
        return whole("the table was made anew since")
    if last.suite_hash != suite_hash:
        return whole("the suite has changed since")
    if last.version > version:
        return whole("the table was rewound since")
    since = [commit for commit in commits if last.version < commit.version <= version]
    if [commit.version for commit in since] != list(range(last.version + 1, version + 1)):
        return whole("Delta's log no longer reaches back to the last validation run")
    slices: list[Slice] = []
    for commit in since:
        batch_commit = commit.batch_commit
        if reverts(commit):
            return whole(f"version {commit.version} is a {commit.operation}")
        if not commit.added or commit.operation in ADDS_NO_ROW:
            continue
        if batch_commit is None or batch_commit.kind != "batch" or batch_commit.name != table:
            return whole(f"version {commit.version} ({commit.operation}) is no batch")
        slices.append(Slice(batch_commit.id.epoch, batch_commit.id.number, batch_commit.id.number))
    return Scope(version, last.version, joined(slices))


def joined(slices: Sequence[Slice]) -> tuple[Slice, ...]:
    """The same batches in as few slices as can be, in order."""
    found: list[Slice] = []
    for each in sorted(slices, key=lambda s: (s.epoch, s.first)):
        before = found[-1] if found else None
        if before and before.epoch == each.epoch and each.first <= before.last + 1:
            found[-1] = Slice(before.epoch, before.first, max(before.last, each.last))
        else:
            found.append(each)
    return tuple(found)
