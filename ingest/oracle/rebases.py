"""(g) for what a rebase leaves in the ledger: where an epoch ended, where the next one began, and which offsets it jumped over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingest.oracle.case import Case
from ingest.oracle.sources import Commit
from ingest.oracle.tables import LedgerRow


def check_rebases(case: Case) -> Iterator[str]:
    """(g) Rows of kind rebase fit the ranges of their query in the log; a gap is of a rebase, in the topic, and read by none before it."""
    rebased = {row.query_id for row in case.lake.ledger if row.kind == "rebase"}
    first: dict[str, Commit] = {}
    commits: dict[tuple[str, int], Commit] = {}
    for commit in case.lake.batches:
        meta = commit.metadata or {}
        first.setdefault(meta["query_id"], commit)
        commits[meta["query_id"], meta["batch_id"]] = commit
    for row in case.lake.ledger:
        if row.kind not in ("rebase", "gap_accepted") or row.partition < 0:  # a former epoch without a batch has no partition
            continue
        what = f"{case.run.table}: ledger of query {row.query_id}, {row.kind} of partition {row.partition} [{row.start}, {row.end})"
        if row.topic_id not in case.views:
            yield f"{what} names the topic id {row.topic_id!r}, which no topic of this name had (g)"
        elif row.end > (end := case.views[row.topic_id].end.get(row.partition, 0)):
            yield f"{what}: the topic ends at {end} (g)"
        if row.kind == "rebase":
            yield from _rebase(row, commits.get((row.query_id, row.batch_id)), first.get(row.query_id), what)
        else:
            if row.query_id not in rebased:
                yield f"{what}: the ledger tells of no rebase of that query (g)"
            yield from _gap(case, row, first, what)


def _rebase(row: LedgerRow, commit: Commit | None, first: Commit | None, what: str) -> Iterator[str]:
    """A former epoch ended where its last batch does; a new one, whose baseline is batch 0, begins where its first batch does."""
    if commit is not None:
        told, found = "its batch ends at", commit.ranges.get(row.partition, (0, row.start))[1]
    elif first is not None and row.batch_id == 0 and (first.metadata or {})["batch_id"] == 1:
        told, found = "its first batch begins at", first.ranges.get(row.partition, (row.start, 0))[0]
    else:
        return
    if row.start != found or row.end != found:
        yield f"{what}: {told} {found} (g)"


def _gap(case: Case, row: LedgerRow, first: Mapping[str, Commit], what: str) -> Iterator[str]:
    """After a RESTORE or an overwrite what was read before may be a gap for good reason; what comes after the rebase may read it again."""
    own = first.get(row.query_id)
    until = row.target_version if own is None else min(row.target_version, own.version - 1)
    since = max((version for version in case.lake.replaced if version <= until), default=-1)
    for commit in case.lake.batches:
        start, end = commit.ranges.get(row.partition, (0, 0))
        if commit.topic_id == row.topic_id and since < commit.version <= until and max(start, row.start) < min(end, row.end):
            yield f"{what}: version {commit.version} has read [{start}, {end}) before (g)"
