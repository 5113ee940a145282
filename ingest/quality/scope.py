"""The rows that a validation run covers: the whole table, or the rows that batches have added since the last run. Pure.

New rows are found by batch: each row carries the epoch and batch that inserted it. The target keeps statistics of both, so Delta reads
only files that can contain such rows. A list of new files would not do: an OPTIMIZE puts old and new rows into one file. A foreign commit
(an UPDATE, an INSERT, a RESTORE) cannot be found by batch; then the whole table is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ingest.delta.batch_commit import Batch
from ingest.delta.commit import Commit
from ingest.delta.reachable import reverts

# They remove or move rows, and add none.
ADDS_NO_ROW = ("OPTIMIZE", "DELETE", "REORG", "VACUUM START", "VACUUM END")


@dataclass(frozen=True)
class Last:
    """The last completed validation run: the target's version at that time, its table id, the suite's hash, and who answered."""

    version: int
    target_id: str
    suite_hash: str
    engine: str


@dataclass(frozen=True)
class Slice:
    """The batches `first` to `last` of one epoch, both included."""

    epoch: int
    first: int
    last: int


@dataclass(frozen=True)
class Scope:
    """The rows to check at `version` of the target: all rows (`why` gives the reason), or the rows of the batches in `slices`.

    `after` is the version of the last validation run, None if all rows are checked. With `after` and no slices there are no new rows.
    """

    version: int
    after: int | None
    slices: tuple[Slice, ...] = ()
    why: str = ""

    @property
    def name(self) -> Literal["whole", "new"]:
        """The scope as the quality table stores it."""
        return "whole" if self.after is None else "new"


def decide(
    last: Last | None,
    version: int,
    target_id: str,
    suite_hash: str,
    commits: Sequence[Commit],
    table: str,
    engine: str,
    *,
    everything: bool = False,
    unrecorded: bool = False,
) -> Scope:
    """The rows to check at `version` with `engine`. `commits` are the log's commits after the last run's; `table` is `pipeline.table`.

    `unrecorded`: nothing says what earlier runs found, so a pass of new rows alone would say too much.
    """

    def whole(why: str) -> Scope:
        return Scope(version, None, (), why)

    if everything:
        return whole("asked for")
    if last is None:
        return whole("the first validation run")
    if unrecorded:
        return whole("no earlier check is on record for the audited version")
    if last.target_id != target_id:
        return whole("the table was recreated since")
    if last.suite_hash != suite_hash:
        return whole("the suite has changed since")
    if last.engine != engine:
        return whole(f"the last one was done by {last.engine}, this one by {engine}")
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
        if batch_commit is None or not isinstance(batch_commit.case, Batch) or batch_commit.name != table:
            return whole(f"version {commit.version} ({commit.operation}) is not a batch")
        slices.append(Slice(batch_commit.id.epoch, batch_commit.id.number, batch_commit.id.number))
    return Scope(version, last.version, joined(slices))


def joined(slices: Sequence[Slice]) -> tuple[Slice, ...]:
    """The same batches in as few slices as possible, in order."""
    found: list[Slice] = []
    for each in sorted(slices, key=lambda s: (s.epoch, s.first)):
        before = found[-1] if found else None
        if before and before.epoch == each.epoch and each.first <= before.last + 1:
            found[-1] = Slice(before.epoch, before.first, max(before.last, each.last))
        else:
            found.append(each)
    return tuple(found)
