"""(f) and (g): pairs, ranges and versions in the Delta log, and whether the ledger says what target and quarantine hold."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from ingest.oracle.case import Case
from ingest.oracle.sources import Commit
from ingest.oracle.tables import LedgerRow, Position

# What a run and a rebase leave in the ledger; nothing else writes there.
KINDS: Final = ("batch", "rebase", "gap_accepted")


def check_log(case: Case) -> Iterator[str]:
    """(f) Txn versions rise by app id; what adds data carries our pair and contiguous ranges."""
    name = f"oncelake/{case.run.pipeline}/{case.run.table}/"
    own = {"target": case.run.own_versions, "quarantine": case.run.own_quarantine_versions}
    for kind, commits in (("target", case.lake.target_log), ("quarantine", case.lake.quarantine_log), ("ledger", case.lake.ledger_log)):
        last: dict[str, tuple[int, int]] = {}
        for commit in commits:
            for app_id, version in commit.txns:
                before = last.get(app_id)
                if before is not None and version <= before[0]:
                    yield (
                        f"{case.run.table}: {kind} version {commit.version} has txn version {version} of {app_id}, "
                        f"version {before[1]} had {before[0]} already (f)"
                    )
                last[app_id] = (version, commit.version)
            ours = [app_id for app_id, _ in commit.txns if re.fullmatch(re.escape(name) + r"[^/]+/[^/]+", app_id)]
            exempt = commit.removes_data or commit.version in own.get(kind, ())
            if kind != "ledger" and commit.adds_data and not exempt and not ours:
                yield f"{case.run.table}: {kind} version {commit.version} ({commit.operation}) adds data without a pair of {name}… (f)"
    yield from _ranges(case, name)


def _ranges(case: Case, name: str) -> Iterator[str]:
    last: dict[tuple[str, str], tuple[Commit, int]] = {}
    ends: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    begun: list[str] = []
    for commit in case.lake.target_log:
        for app_id, version in commit.txns:
            if not app_id.startswith(name) or not app_id.endswith("/target"):
                continue
            what = f"{case.run.table}: target version {commit.version}"
            meta = commit.metadata
            if meta is None or "ranges" not in meta:
                yield f"{what} has the pair ({app_id}, {version}) and no userMetadata of ours with ranges (f)"
                continue
            if f"{name}{meta['query_id']}/target" != app_id or meta["batch_id"] != version:
                named = f"query {meta['query_id']} batch {meta['batch_id']}"
                yield f"{what}: its userMetadata names {named}, its pair is ({app_id}, {version}) (f)"
            if app_id not in begun:
                begun.append(app_id)
            elif begun[-1] != app_id:
                yield f"{what} is a batch of {app_id}, and {begun[-1]} had begun before it (f)"
            key = (app_id, commit.topic_id)
            if key in last and version != last[key][1] + 1:
                yield f"{what}: batch {version} follows batch {last[key][1]} of {app_id} (f)"
            for partition, (start, end) in commit.ranges.items():
                # A partition that came later starts at 0; the first range of a query id starts where it was told to.
                expected = ends[key].get(partition, 0 if key in last else start)
                if start != expected or end < start:
                    yield f"{what}: partition {partition} has the range [{start}, {end}), expected to start at {expected} (f)"
                ends[key][partition] = end
            if missing := ends[key].keys() - commit.ranges.keys():
                yield f"{what}: no range for the partitions {sorted(missing)}, which earlier batches had (f)"
            last[key] = (commit, version)


def check_gaps(case: Case) -> Iterator[str]:
    """(a) What no batch has read is recorded as a gap: of each partition ranges and accepted gaps leave no hole."""
    covered: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for commit in case.lake.batches:
        for partition, offsets in commit.ranges.items():
            covered[commit.topic_id, partition].append(offsets)
    for row in case.lake.ledger:
        if row.kind in ("batch", "gap_accepted"):
            covered[row.topic_id, row.partition].append((row.start, row.end))
    for (_, partition), ranges in sorted(covered.items()):
        reached = min(ranges)[0]
        for start, end in sorted(ranges):
            if start > reached:
                what = f"{case.run.table}: partition {partition} offsets [{reached}, {start})"
                yield f"{what} were read by no batch, and no gap is recorded (a)"
            reached = max(reached, end)


def check_ledger(case: Case) -> Iterator[str]:
    """(g), and the sums of (b): ledger rows and target commits are one to one, and every count is what the tables hold."""
    lake, table = case.lake, case.run.table
    commits = {(c.metadata["query_id"], c.metadata["batch_id"]): c for c in lake.batches if c.metadata}
    first = lake.target_log[0].version if lake.target_log else 0
    rows: Counter[tuple[str, int, int]] = Counter()
    for row in lake.ledger:
        if row.kind not in KINDS:
            yield f"{table}: the ledger has a row of kind {row.kind!r} (g)"
        if row.kind != "batch":
            continue
        rows[row.key] += 1
        commit = commits.get(row.key[:2])
        what = f"{table}: ledger of query {row.query_id} batch {row.batch_id} partition {row.partition}"
        if commit is None:
            if row.target_version >= first:
                yield f"{what} names target version {row.target_version}, and no target commit of that batch is in the log (g)"
        elif commit.ranges.get(row.partition, (0, 0)) != (row.start, row.end) or commit.version != row.target_version:
            yield (
                f"{what} says [{row.start}, {row.end}) in version {row.target_version}, "
                f"the log [{', '.join(map(str, commit.ranges.get(row.partition, ())))}) in version {commit.version} (g)"
            )
        if commit is not None and row.topic_id != commit.topic_id:
            yield f"{what} names the topic id {row.topic_id!r}, its commit another (g)"
        if row.topic_id not in case.views:
            yield f"{what} names the topic id {row.topic_id!r}, which no topic of this name had (g)"
        yield from _counts(case, row, commit, what)
    for key, count in rows.items():
        if count > 1:
            yield f"{table}: the ledger holds query {key[0]} batch {key[1]} partition {key[2]} {count} times (g)"
    for (query_id, batch_id), commit in commits.items():
        for partition, (start, end) in commit.ranges.items():
            if start < end and not rows[query_id, batch_id, partition]:
                yield f"{table}: the ledger lacks query {query_id} batch {batch_id} partition {partition} [{start}, {end}) (g)"
    for position, batch in lake.quarantined_in.items():
        if batch not in commits:
            continue
        start, end = commits[batch].ranges.get(position.partition, (0, 0))
        if not start <= position.offset < end:
            yield f"{case.where(position)}: the quarantine names query {batch[0]} batch {batch[1]}, whose range is [{start}, {end}) (g)"
    yield from _quarantine_ahead(case, commits.keys() | {row.key[:2] for row in lake.ledger})


def _quarantine_ahead(case: Case, known: Collection[tuple[str, int]]) -> Iterator[str]:
    """Once the run is quiet, a batch that has records in quarantine has its commit in the target.

    But for an earlier checkpoint that was lost between the two: the next one reads those records again.
    """
    newest = next((c.metadata["query_id"] for c in reversed(case.lake.batches) if c.metadata), None)
    for (query_id, batch_id, partition), count in sorted(case.lake.quarantined_by.items()):
        if query_id == newest and (query_id, batch_id) not in known:
            yield (
                f"{case.run.table}: the quarantine holds {count} records of query {query_id} batch {batch_id} partition {partition}, "
                "and the target has no commit of that batch (g)"
            )


def _counts(case: Case, row: LedgerRow, commit: Commit | None, what: str) -> Iterator[str]:
    lake, kafka = case.lake, case.views.get(row.topic_id)
    if row.read != row.inserted + row.duplicate + row.quarantined + row.replayed:
        yield (
            f"{what}: read {row.read} is not inserted {row.inserted} + duplicate {row.duplicate} + "
            f"quarantined {row.quarantined} + replayed {row.replayed} (g)"
        )
    if row.end - row.start != row.read + row.gap:
        yield f"{what}: {row.end - row.start} offsets are not read {row.read} + gap {row.gap} (g)"
    taken = lake.taken[row.key]
    if row.quarantined != (held := lake.quarantined_by[row.key]) + taken:
        also = f" and the test took {taken}" if taken else ""
        yield f"{what}: quarantined {row.quarantined}, the quarantine holds {held} rows of it{also} (g)"
    inserted = lake.inserted.get((commit.version, row.partition)) if commit is not None else None
    if inserted is not None and row.inserted != inserted:
        yield f"{what}: inserted {row.inserted}, the target gained {inserted} rows in that range with that commit (g)"
    for name, value in (("read", row.read), ("quarantined", row.quarantined), ("replayed", row.replayed)):
        counts: Mapping[str, Any] = (commit.metadata or {}).get("counts", {}).get(str(row.partition), {}) if commit else {}
        if name in counts and counts[name] != value:
            yield f"{what}: {name} {value}, the commit's userMetadata says {counts[name]} (g)"
    if kafka is None or row.start < kafka.begin.get(row.partition, 0):
        return
    records = [o for o in range(row.start, row.end) if (row.partition, o) in kafka.records]
    if len(records) != row.read:
        yield f"{what}: read {row.read}, Kafka shows {len(records)} committed records in [{row.start}, {row.end}) (b)"
    positions = [Position(row.topic_id, row.partition, o) for o in records]
    elsewhere = sum(p not in lake.target and p not in lake.quarantine for p in positions)
    excused = case.run.excused_ids and any(kafka.records[row.partition, o].event_id in case.run.excused_ids for o in records)
    # Where ranges of two query ids overlap, the later one reads what is there already: then only the lower bound holds.
    if not excused and (elsewhere > row.duplicate + row.replayed or (row.replayed == 0 and elsewhere != row.duplicate)):
        yield (
            f"{what}: duplicate {row.duplicate} + replayed {row.replayed}, "
            f"and {elsewhere} records are at their own position in neither table (b)"
        )
