"""(f) and the holes of (a): transaction ids, userMetadata, writers and offset ranges in the logs of target and quarantine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from ingest.lab.oracle.case import Case
from ingest.lab.oracle.sources import OracleCommit

# The kinds of commit that have a transaction id, and the numbers of those that are not batches; batches start at 2.
KINDS: Final = {"target": ("fence", "start", "seek", "batch", "state"), "quarantine": ("fence", "rollback", "batch")}
POSITIONED: Final = ("start", "seek", "batch")
ANY: Final = range(1, 2**32)
NUMBERS: Final = {"fence": (0,), "start": (1,), "seek": (1,), "rollback": (1,), "batch": ANY[1:], "state": ANY}


def check_log(case: Case) -> Iterator[str]:
    """(f) Txn versions rise per app id and agree with the userMetadata; an epoch has one writer and its fence; ranges have no holes."""
    for table in KINDS:
        yield from _transaction_ids(case, table)
    yield from (f"{case.run.table}: ledger version {c.version} has a transaction id (f)" for c in case.lake.logs["ledger"] if c.txns)
    yield from _writers(case)
    yield from _quarantine_first(case)
    yield from _ranges(case)


def _transaction_ids(case: Case, table: str) -> Iterator[str]:
    run, app_id, own = case.run, case.lake.app_id, case.own_versions(table)
    last: dict[str, tuple[int, int]] = {}
    fenced: set[int] = set()
    for commit in case.lake.logs[table]:
        what = f"{run.table}: {table} version {commit.version}"
        for app, version in commit.txns:
            if app in last and version <= last[app][0]:
                yield f"{what} has txn version {version} of {app}, version {last[app][1]} had {last[app][0]} already (f)"
            last[app] = version, commit.version
        transaction_id, metadata = commit.transaction_id(app_id), commit.metadata
        epoch, number = transaction_id or (0, 0)
        if transaction_id is None:
            if commit.adds_data and not commit.removes_data and commit.version not in own:
                yield f"{what} ({commit.operation}) adds data without a transaction id of {app_id} (f)"
        elif metadata is None:
            yield f"{what} has the transaction id {transaction_id} and no userMetadata of ours (f)"
        elif commit.kind not in KINDS[table] or number not in NUMBERS[commit.kind] or epoch < 1:
            yield f"{what} has the transaction id {transaction_id}, and its userMetadata has kind {commit.kind!r} (f)"
        elif (commit.number, metadata.get("pipeline"), metadata.get("table")) != (transaction_id, run.pipeline, run.table):
            named = f"{commit.number} of {metadata.get('pipeline')}.{metadata.get('table')}"
            yield f"{what} has the transaction id {transaction_id}, and its userMetadata names {named} (f)"
        elif commit.kind == "fence":
            fenced.add(epoch)
        elif epoch not in fenced and case.lake.first(table) == 0:
            yield f"{what} is of epoch {epoch}, and no fence of that epoch comes before it (f)"


def _writers(case: Case) -> Iterator[str]:
    writers: dict[int, set[str]] = defaultdict(set)
    for table in KINDS:
        for commit in case.lake.commits(table, *KINDS[table]):
            if commit.kind != "state":  # an erasure may post what a run that was killed could not
                writers[commit.number[0]].add(str((commit.metadata or {}).get("writer")))
    for epoch, names in sorted(writers.items()):
        if len(names) > 1 or "None" in names:
            yield f"{case.run.table}: epoch {epoch} has the writers {', '.join(sorted(names))}, one expected (f)"


def _quarantine_first(case: Case) -> Iterator[str]:
    """A batch's quarantine commit precedes its target commit. One process stamps both, so their timestamps show the order."""
    quarantined = {commit.number: commit for commit in case.lake.commits("quarantine", "batch")}
    for batch in case.lake.batches:
        commit = quarantined.get(batch.number, batch)
        what = f"{case.run.table}: quarantine version {commit.version}"
        if commit.timestamp_ms > batch.timestamp_ms:
            yield f"{what} comes after target version {batch.version} of the same batch (f)"
        if commit.topic_id != batch.topic_id:
            yield f"{what} names another topic than target version {batch.version} of the same batch (f)"


def _ranges(case: Case) -> Iterator[str]:
    """An epoch's batches count from 2 without a hole, and each range starts at the end of the previous one or at a seek's start."""
    ends: dict[int, int] | None = {} if case.lake.first("target") == 0 else None
    topic_id, last = "", (0, 1)
    read: list[OracleCommit] = []
    for commit in case.lake.commits("target", *POSITIONED):
        what = f"{case.run.table}: target version {commit.version}"
        if commit.kind != "batch":
            yield from _seek(case, commit, read, what)
            ends, topic_id, last = dict(commit.starts), commit.topic_id, commit.number
            continue
        following = last[1] + 1 if commit.number[0] == last[0] else 2
        if commit.number[1] != following and ends is not None:
            yield f"{what} is batch {commit.number[1]} of epoch {commit.number[0]}, expected batch {following} (f)"
        if topic_id and commit.topic_id != topic_id:
            yield f"{what} reads the topic id {commit.topic_id!r}, and no seek leads there from {topic_id!r} (f)"
        for partition, (start, end) in commit.ranges.items():
            expected = start if ends is None else ends.get(partition, 0)  # a partition that was added later starts at 0
            if start != expected or end < start:
                yield f"{what}: partition {partition} has the range [{start}, {end}), expected to start at {expected} (f)"
        if missing := (ends or {}).keys() - commit.ranges.keys():
            yield f"{what}: no range for the partitions {sorted(missing)}, which earlier commits had (f)"
        ends = {partition: end for partition, (_, end) in commit.ranges.items()}
        topic_id, last = commit.topic_id, commit.number
        read.append(commit)


def _seek(case: Case, seek: OracleCommit, read: Sequence[OracleCommit], what: str) -> Iterator[str]:
    """A seek starts inside its topic and after its gaps, and offsets that a batch has read are never a gap.

    If the test itself removed rows, a gap may cover offsets that were read: their records may have expired since.
    """
    topic_ends = case.views[seek.topic_id].end if seek.topic_id in case.views else {}
    for partition, offset in seek.starts.items():
        if offset > topic_ends.get(partition, 0):
            yield f"{what} begins at {offset} in partition {partition}, where its topic ends at {topic_ends.get(partition, 0)} (f)"
    rows_removed = case.own_versions("target") or case.own_versions("quarantine")
    for partition, start, end in seek.gaps:
        gap = f"{what} accepts the gap [{start}, {end}) in partition {partition}"
        if not start < end <= seek.starts.get(partition, 0):
            yield f"{gap}, and begins at {seek.starts.get(partition, 0)} (f)"
        for batch in read if not rows_removed else ():
            low, high = batch.ranges.get(partition, (0, 0))
            if batch.topic_id == seek.topic_id and max(low, start) < min(high, end):
                yield f"{gap}, and version {batch.version} has read [{low}, {high}) (f)"


def check_gaps(case: Case) -> Iterator[str]:
    """(a) Offsets that no batch has read are an accepted gap: ranges and gaps of a partition leave no hole."""
    lake = case.lake
    covered: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for statement, posting in lake.lines:
        if posting.why in ("batch", "gap") and posting.start is not None and posting.end is not None:
            covered[statement.topic_id, posting.partition].append((posting.start, posting.end))
    for (_, partition), stretches in sorted(covered.items()):
        reached = min(stretches)[0]
        for start, end in sorted(stretches):
            if start > reached:
                what = f"{case.run.table}: partition {partition} offsets [{reached}, {start})"
                yield f"{what} were read by no batch, and no gap is accepted (a)"
            reached = max(reached, end)
