"""(f) and the holes of (a): transaction ids, userMetadata, writers and offset ranges in the logs of target and quarantine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from ingest.lab.oracle.case import Case
from ingest.lab.oracle.sources import Of, OracleCommit

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
        if commit.sources != batch.sources:
            yield f"{what} names other topics than target version {batch.version} of the same batch (f)"


def check_sources(case: Case) -> Iterator[str]:
    """(f) A number means one topic for as long as the table exists, a topic has one number, and a commit names the topics that it reads."""
    lake, table = case.lake, case.run.table
    meant: dict[int, str] = {}
    for where, number, topic_id in lake.named:
        if meant.get(number, topic_id) != topic_id:
            yield f"{table}: {where} means by number {number} the topic id {topic_id!r}, which was {meant[number]!r} before (f)"
        elif others := [other for other, each in meant.items() if each == topic_id and other != number]:
            yield f"{table}: {where} gives the topic id {topic_id!r} the number {number}, and it has {others[0]} (f)"
        meant[number] = topic_id
    for name in KINDS:
        for commit in lake.commits(name, *KINDS[name]):
            if unnamed := {posting.source for posting in commit.postings} - {*range(len(commit.sources))}:
                yield f"{table}: {name} version {commit.version} has postings of the numbers {sorted(unnamed)}, which it does not name (f)"


def _ranges(case: Case) -> Iterator[str]:
    """An epoch's batches count from 2 without a hole, and each range starts where the partition was read to, or at a seek's start."""
    ends: dict[Of, int] | None = {} if case.lake.first("target") == 0 else None
    last = (0, 1)
    read: list[OracleCommit] = []
    for commit in case.lake.commits("target", *POSITIONED):
        what = f"{case.run.table}: target version {commit.version}"
        if commit.kind != "batch":
            yield from _seek(case, commit, read, what)
            for of in commit.going_on:
                if ends is not None and commit.starts[of] != ends.get(of, 0):
                    yield f"{what} goes on at {commit.starts[of]} in {case.named(of)}, which was read to {ends.get(of, 0)} (f)"
            ends, last = dict(commit.starts), commit.number
            continue
        following = last[1] + 1 if commit.number[0] == last[0] else 2
        if commit.number[1] != following and ends is not None:
            yield f"{what} is batch {commit.number[1]} of epoch {commit.number[0]}, expected batch {following} (f)"
        if ends and (new := {topic for topic, _ in commit.ranges} - {topic for topic, _ in ends}):
            yield f"{what} reads the topic id {min(new)!r}, and no start or seek leads there (f)"
        for of, (start, end) in commit.ranges.items():
            expected = start if ends is None else ends.get(of, 0)  # a partition that was added later starts at 0
            if start != expected or end < start:
                yield f"{what}: {case.named(of)} has the range [{start}, {end}), expected to start at {expected} (f)"
        if missing := (ends or {}).keys() - commit.ranges.keys():
            yield f"{what}: no range for {', '.join(map(case.named, sorted(missing)))}, which earlier commits had (f)"
        ends, last = {of: end for of, (_, end) in commit.ranges.items()}, commit.number
        read.append(commit)


def _seek(case: Case, seek: OracleCommit, read: Sequence[OracleCommit], what: str) -> Iterator[str]:
    """A seek starts inside its topics and after its gaps, and offsets that a batch has read are never a gap.

    If the test itself removed rows, a gap may cover offsets that were read: their records may have expired since.
    """
    for of, offset in seek.starts.items():
        end = case.views[of[0]].end.get(of[1], 0) if of[0] in case.views else 0
        if offset > end:
            yield f"{what} begins at {offset} in {case.named(of)}, where its topic ends at {end} (f)"
    rows_removed = case.own_versions("target") or case.own_versions("quarantine")
    for of, start, end in seek.gaps:
        gap = f"{what} accepts the gap [{start}, {end}) in {case.named(of)}"
        if not start < end <= seek.starts.get(of, 0):
            yield f"{gap}, and begins at {seek.starts.get(of, 0)} (f)"
        for batch in read if not rows_removed else ():
            low, high = batch.ranges.get(of, (0, 0))
            if max(low, start) < min(high, end):
                yield f"{gap}, and version {batch.version} has read [{low}, {high}) (f)"


def check_gaps(case: Case) -> Iterator[str]:
    """(a) Offsets that no batch has read are an accepted gap: ranges and gaps of a partition leave no hole."""
    lake = case.lake
    covered: dict[Of, list[tuple[int, int]]] = defaultdict(list)
    for statement, posting in lake.lines:
        if posting.why in ("batch", "gap") and posting.start is not None and posting.end is not None:
            covered[statement.topic_id, posting.partition].append((posting.start, posting.end))
    for of, stretches in sorted(covered.items()):
        reached = min(stretches)[0]
        for start, end in sorted(stretches):
            if start > reached:
                what = f"{case.run.table}: {case.named(of)} offsets [{reached}, {start})"
                yield f"{what} were read by no batch, and no gap is accepted (a)"
            reached = max(reached, end)
