"""Which rows a validation run covers: the whole table, or what batches have added since the last one. Pure.

What is new is told by positions. Every batch's commit names its offset ranges, and each row carries topic id, partition and
offset, and of the last two the target keeps statistics: Delta reads only files that can hold such rows. Files themselves would not do: an
OPTIMIZE puts old and new rows into one file. `_ingested_at` would not do either: a rebase may read older offsets again later.
A change that is no batch of ours (an UPDATE, somebody's INSERT, a RESTORE) has no positions to go by; then the whole table is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ingest.stream.delta_log import Commit
from ingest.stream.in_force import leaves_out

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
    """Offsets [start, end) of one partition."""

    topic_id: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Scope:
    """What to check at `version` of the target. `whole`: all rows, `why` says for what reason; else the rows in `slices`.

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
        mark = commit.mark
        if leaves_out(commit):
            return whole(f"version {commit.version} is a {commit.operation}")
        if not commit.added or commit.operation in ADDS_NO_ROW:
            continue
        if mark is None or f"{mark.pipeline}.{mark.table}" != table:
            return whole(f"version {commit.version} ({commit.operation}) is no batch")
        slices += [Slice(mark.topic_id, each.partition, each.start, each.end) for each in mark.ranges if each.end > each.start]
    return Scope(version, last.version, joined(slices))


def joined(slices: Sequence[Slice]) -> tuple[Slice, ...]:
    """The same offsets in as few slices as can be, in order."""
    found: list[Slice] = []
    for each in sorted(slices, key=lambda s: (s.topic_id, s.partition, s.start)):
        before = found[-1] if found else None
        if before and (before.topic_id, before.partition) == (each.topic_id, each.partition) and each.start <= before.end:
            found[-1] = Slice(before.topic_id, before.partition, before.start, max(before.end, each.end))
        else:
            found.append(each)
    return tuple(found)
