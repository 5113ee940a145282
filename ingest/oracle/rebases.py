"""(g) for what a rebase leaves in the ledger: where the epochs before it ended, where its own began, which offsets it jumped over.

Its rows come in one commit, so that one of them vouches for the others: the beginning of its epoch, which no later rebase says again,
and of each epoch before it how that stood then. An epoch's end is thus told by every rebase that follows it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping

from ingest.oracle.case import Case
from ingest.oracle.sources import Commit
from ingest.oracle.tables import Lake, LedgerRow

# By query id: its commits in the target's log, in order.
Batches = Mapping[str, list[Commit]]


def check_rebases(case: Case) -> Iterator[str]:
    """(g) Rows of kind rebase fit the ranges of their query in the log, none is missing or there twice; a gap is of a rebase, in the
    topic, and read by none before it."""
    rebased = {row.query_id for row in case.lake.ledger if row.kind == "rebase"}
    commits: dict[tuple[str, int], Commit] = {}
    batches: dict[str, list[Commit]] = defaultdict(list)
    for commit in case.lake.batches:
        meta = commit.metadata or {}
        commits[meta["query_id"], meta["batch_id"]] = commit
        batches[meta["query_id"]].append(commit)
    first = {query_id: theirs[0] for query_id, theirs in batches.items()}
    for row in case.lake.ledger:
        if row.kind not in ("rebase", "gap_accepted") or row.partition < 0:  # a former epoch without a batch has no partition
            continue
        what = f"{case.run.table}: {_named(row)}"
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
    yield from _doubled(case)
    yield from _beginnings(case, batches)
    yield from _ends(case, batches, commits)
    yield from _of_the_newest(case, batches)


def _named(row: LedgerRow) -> str:
    return f"ledger of query {row.query_id}, {row.kind} of partition {row.partition} [{row.start}, {row.end})"


def _begins(row: LedgerRow) -> bool:
    """Whether it tells where its epoch began: as batch 0, of which such an epoch has no commit. Where it ended is said of a later batch,
    or, if none is in force, of no partition."""
    return row.kind == "rebase" and row.epoch > 0 and row.batch_id == 0 and row.partition >= 0


def _epochs(lake: Lake) -> dict[str, int]:
    return {query_id: max(numbers) for query_id, numbers in _numbers(lake).items()}


def _numbers(lake: Lake) -> Mapping[str, set[int]]:
    numbers: dict[str, set[int]] = defaultdict(set)
    for row in lake.ledger:
        numbers[row.query_id].add(row.epoch)
    return numbers


def _began_at(lake: Lake) -> dict[str, int]:
    """The target's version at which a rebase began an epoch, by query id, where the ledger tells."""
    return {row.query_id: row.target_version for row in lake.ledger if _begins(row)}


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
    """After a RESTORE or an overwrite what was read before may be a gap for good reason, and where the quarantine has lost records; what
    comes after the rebase may read it again, also in a table that was made anew."""
    epochs, own = _epochs(case.lake), first.get(row.query_id)
    until = row.target_version if own is None else min(row.target_version, own.version - 1)
    since, whole = _replaced(case.lake, until), min(row.end, _read_in_vain(case.lake, row))
    for commit in case.lake.batches:
        start, end = commit.ranges.get(row.partition, (0, 0))
        before = since < commit.version <= until and epochs.get((commit.metadata or {})["query_id"], 0) < row.epoch
        if commit.topic_id == row.topic_id and before and max(start, row.start) < min(end, whole):
            yield f"{what}: version {commit.version} has read [{start}, {end}) before (g)"


def _read_in_vain(lake: Lake, gap: LedgerRow) -> float:
    """Where the first batch with records in quarantine began in the gap's partition, if the quarantine was ever harmed: nothing behind it
    was known to be whole then."""
    rows = (row for row in lake.ledger if (row.kind, row.topic_id, row.partition) == ("batch", gap.topic_id, gap.partition))
    return min((row.start for row in rows if row.quarantined), default=math.inf) if lake.quarantine_harmed else math.inf


def _replaced(lake: Lake, until: int) -> int:
    """The last version, up to this one, before which it is not known what is in force; -1 for none."""
    return max((version for version in lake.replaced if version <= until), default=-1)


def _doubled(case: Case) -> Iterator[str]:
    """A beginning and a gap are told once; an end by each rebase of a later epoch, and two can be of one version of the target."""
    begins = Counter((row.query_id, row.partition) for row in case.lake.ledger if _begins(row))
    ends = Counter(row._replace(batch_id=0, start=0, end=0) for row in case.lake.ledger if row.kind == "rebase" and not _begins(row))
    gaps = Counter(row._replace(target_version=0) for row in case.lake.ledger if row.kind == "gap_accepted")
    for query_id, numbers in _numbers(case.lake).items():
        if len(numbers) > 1:
            yield f"{case.run.table}: the ledger calls query {query_id} epoch {' and '.join(map(str, sorted(numbers)))} (g)"
    for (query_id, partition), count in begins.items():
        if count > 1:
            yield f"{case.run.table}: the ledger tells {count} times where query {query_id} began in partition {partition} (g)"
    epochs, began = _epochs(case.lake), _began_at(case.lake)
    for end, count in ends.items():
        rebases = sum(version == end.target_version and epochs[query_id] > end.epoch for query_id, version in began.items())
        if count > rebases:
            what = f"{case.run.table}: the ledger tells {count} times where query {end.query_id} ended in partition {end.partition}"
            yield f"{what} at version {end.target_version}, where {rebases} later ones began (g)"
    for gap, count in gaps.items():
        if count > 1:
            yield f"{case.run.table}: {_named(gap)}: it is there {count} times (g)"


def _beginnings(case: Case, batches: Batches) -> Iterator[str]:
    """An epoch whose batches are numbered from 1 was begun by a rebase, which told of each partition that the topic had.

    A partition that was added before its first batch begins at 0 there, and has no lesser number than one of those.
    """
    lost, epochs = _lost_beginnings(case.lake), _epochs(case.lake)
    for query_id, (first, *_) in batches.items():
        if (first.metadata or {})["batch_id"] != 1 or not epochs.get(query_id) or query_id in lost:
            continue
        told = {row.partition for row in case.lake.ledger if row.query_id == query_id and _begins(row)}
        for partition, (start, _) in sorted(first.ranges.items()):
            if partition not in told and (start > 0 or partition <= max(told, default=0)):
                what = f"{case.run.table}: the ledger lacks where query {query_id} began in partition {partition}"
                yield f"{what}, {start} by its batch 1 (g)"


def _lost_beginnings(lake: Lake) -> Collection[str]:
    """Epochs whose beginning the ledger need not tell: one that was lost is made again by the checkpoint of that time, which knows where
    those before it ended and not where they began; their batches follow. So too where an older copy was put back."""
    epochs = _epochs(lake)
    if any(c.removes_data or c.operation == "RESTORE" for c in lake.ledger_log) or (lake.ledger_log and lake.ledger_log[0].version > 0):
        return epochs  # which of them came first is not told
    pairs = [app_id for commit in lake.ledger_log for app_id, _ in commit.txns if app_id.endswith("/ledger")]
    order = [query_id for query_id in dict.fromkeys(app_id.split("/")[-2] for app_id in pairs) if query_id in epochs]
    return {query_id for place, query_id in enumerate(order) if any(epochs[query_id] < epochs[before] for before in order[:place])}


def _ends(case: Case, batches: Batches, commits: Mapping[tuple[str, int], Commit]) -> Iterator[str]:
    """A rebase tells of each epoch before it that has a batch in force how it stood then, in all its partitions or, behind a hole, in none.

    Only of a rebase whose epoch has written: the target may have been replaced by another in between.
    """
    epochs, began = _epochs(case.lake), _began_at(case.lake)
    told: dict[tuple[str, int], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for row in case.lake.ledger:
        if row.kind == "rebase" and not _begins(row):
            told[row.query_id, row.target_version][row.batch_id].add(row.partition)
    for rebased, version in began.items():
        since = _replaced(case.lake, version)
        for query_id, theirs in batches.items() if rebased in batches else ():
            if epochs.get(query_id, 0) >= epochs[rebased] or not any(since < commit.version <= version for commit in theirs):
                continue
            found, what = told[query_id, version], f"{case.run.table}: the ledger lacks where query {query_id} ended"
            if not found:
                yield f"{what} when query {rebased} began, at version {version} (g)"
            for number, partitions in found.items():
                commit = commits.get((query_id, number))
                if commit is not None and -1 not in partitions and (missing := sorted(commit.ranges.keys() - partitions)):
                    yield f"{what} in partitions {missing} when query {rebased} began, at version {version} (g)"


def _of_the_newest(case: Case, batches: Batches) -> Iterator[str]:
    """What a rebase tells of an epoch before it is how the newest batch of that one ended, by then.

    Only where nothing but batches was ever done to the table: a batch that is not in force, or behind a hole, is none. And only of a
    version at which every rebase has written: else it may have been one of another table.
    """
    began = _began_at(case.lake)
    if not case.lake.target_log or case.lake.target_log[0].version > 0:
        return
    for row in case.lake.ledger:
        version = row.target_version
        if row.kind != "rebase" or _begins(row) or _replaced(case.lake, version) >= 0:
            continue
        if not all(query_id in batches for query_id, at in began.items() if at == version):
            continue
        newest = max((c for c in batches.get(row.query_id, ()) if c.version <= version), key=lambda c: c.version, default=None)
        number = -1 if newest is None else int((newest.metadata or {})["batch_id"])
        if number != (row.batch_id if row.partition >= 0 else -1):
            what = f"{case.run.table}: ledger of query {row.query_id}, rebase at version {version}"
            last = f"batch {number}" if number >= 0 else "none"
            yield f"{what}: it tells of {f'batch {row.batch_id}' if row.partition >= 0 else 'no batch'}, and the last one was {last} (g)"
