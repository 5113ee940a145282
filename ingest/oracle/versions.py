"""(e) Time travel: at every version the tables hold the rows of the batches committed so far, whole, and no other.

Rows of the target are counted by batch (by their provenance within each batch's ranges) at each version. A batch's commit may
change its own count only; nothing else that is not the test's own may change any. The gains fill `Lake.inserted` for the ledger's
check. Rows of the quarantine name their batch; there, too, a commit changes the count of its own batch and of no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from deltalake import DeltaTable

from ingest.oracle.sources import Commit
from ingest.oracle.tables import Lake, query

# (index of the batch in the log or None, partition) -> rows
Counts = dict[tuple[int | None, int], int]


def findings(table: str, lake: Lake, own_versions: Collection[int], notes: list[str], id_columns: Sequence[str] = ()) -> Iterator[str]:
    """A sentence for each version of the target that is torn, and the notes of what could not be read."""
    batches: list[Commit] = []
    before: Counts | None = {} if lake.target_log and lake.target_log[0].version == 0 else None
    known = {id(batch) for batch in lake.batches}
    for commit in lake.target_log:
        is_batch = id(commit) in known
        if is_batch:
            batches.append(commit)
        try:
            now = _counts(lake, commit.version, batches)
        except Exception as error:  # deltalake has no common error for files that VACUUM or log clean-up removed
            yield from _unreadable(f"{table}: version {commit.version}", error, lake.target_log, commit, notes)
            before = None
            continue
        own = commit.version in own_versions
        if commit.removes_data and not own:
            yield f"{table}: version {commit.version} ({commit.operation}) takes rows away, and it is no commit of the test (e)"
            own = True
        if commit.removes_data and before is not None:
            # Batches only add: what was doubled between two of them is still there at the last version before rows were taken away.
            yield from _doubled(table, lake, commit.version - 1, id_columns)
        index = len(batches) - 1 if is_batch else None
        if before is not None and not own:
            yield from _compare(table, lake, commit, batches, index, before, now)
        if is_batch and before is not None:
            for partition in commit.ranges:
                lake.inserted[commit.version, partition] = now.get((index, partition), 0) - _overlapping(batches, before, partition)
        before = now


def quarantine_findings(table: str, lake: Lake, own_versions: Collection[int], notes: list[str]) -> Iterator[str]:
    """A sentence for each version of the quarantine that changes another batch than its own; fills `Lake.taken` from the test's own."""
    log = lake.quarantine_log
    before: Counter[tuple[str, int, int]] | None = Counter() if log and log[0].version == 0 else None
    for commit in log:
        try:
            delta = DeltaTable(str(lake.folder / "quarantine"), version=commit.version)
            rows = query(delta, "SELECT query_id, batch_id, partition, COUNT(*) FROM t GROUP BY 1, 2, 3")
        except Exception as error:  # as above
            yield from _unreadable(f"{table}: version {commit.version} of the quarantine", error, log, commit, notes)
            before = None
            continue
        now = Counter({(row[0], row[1], row[2]): row[3] for row in rows})
        own = {(app_id.split("/")[-2], version) for app_id, version in commit.txns if app_id.endswith("/quarantine")}
        # A test may take rows away; nobody else adds any.
        former = now if before is None else before
        before = now
        if commit.version in own_versions:
            lake.taken.update(former)
            lake.taken.subtract(now)  # what a RESTORE brings back is taken no more
            continue
        if commit.removes_data:
            what = f"{table}: version {commit.version} of the quarantine ({commit.operation})"
            yield f"{what} takes rows away or changes them, and it is no commit of the test (e)"
        was_of, count_of = _by_batch(former), _by_batch(now)
        for batch in sorted(was_of.keys() | count_of.keys()):
            was, count = was_of[batch], count_of[batch]
            if was == count or batch in own or (count < was and commit.removes_data):
                continue
            yield (
                f"{table}: version {commit.version} of the quarantine changes batch {batch[1]} of query {batch[0]} from {was} to {count} "
                "rows, and is not its commit (e)"
            )


def _unreadable(what: str, error: Exception, log: Sequence[Commit], commit: Commit, notes: list[str]) -> Iterator[str]:
    """A note where its files may be gone for a reason, a later VACUUM or a log that no longer begins with version 0; else a finding."""
    said = f"{what} cannot be read any more: {str(error)[:120]}"
    if log[0].version > 0 or any(c.operation.startswith("VACUUM") for c in log if c.version > commit.version):
        notes.append(said)
    else:
        yield f"{said}; no VACUUM and no clean-up of the log explains that (e)"


def _by_batch(rows: Counter[tuple[str, int, int]]) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for (query_id, batch_id, _), count in rows.items():
        found[query_id, batch_id] += count
    return found


def _doubled(table: str, lake: Lake, version: int, id_columns: Sequence[str]) -> Iterator[str]:
    if not id_columns:
        return
    names = ", ".join(f'"{name}"' for name in id_columns)
    delta = DeltaTable(str(lake.folder / "target"), version=version)
    for row in query(delta, f"SELECT {names}, COUNT(*) FROM t GROUP BY {names} HAVING COUNT(*) > 1 LIMIT 20"):
        yield f"{table}: version {version} holds id {row[:-1]} {row[-1]} times (e)"


def _compare(
    table: str, lake: Lake, commit: Commit, batches: list[Commit], index: int | None, before: Counts, now: Counts
) -> Iterator[str]:
    for key in sorted(before.keys() | now.keys(), key=str):
        batch, partition = key
        was, rows = before.get(key, 0), now.get(key, 0)
        if batch is None or batch < 0:
            early = batch is None or not any(_overlap(one, _next_batch(lake, commit), partition) for one in batches)
            if rows > was and early:
                yield (
                    f"{table}: version {commit.version} holds {rows} rows of partition {partition} outside of all ranges committed so far, "
                    f"version before {was} (e)"
                )
            continue
        if batch == index or was == rows:
            continue
        if index is not None and _overlap(batches[batch], batches[index], partition):
            continue
        meta = batches[batch].metadata or {}
        yield (
            f"{table}: version {commit.version} changes batch {meta.get('batch_id')} of query {meta.get('query_id')} in partition "
            f"{partition} from {was} to {rows} rows: a batch was torn (e)"
        )


def _next_batch(lake: Lake, commit: Commit) -> Commit | None:
    return next((c for c in lake.batches if c.version > commit.version), None)


def _overlap(one: Commit, other: Commit | None, partition: int) -> bool:
    """Ranges of two query ids may overlap after a rebase, those of one never, nor those of two topics."""
    if other is None or partition not in one.ranges:
        return False
    mine, theirs = one.metadata or {}, other.metadata or {}
    if mine.get("query_id") == theirs.get("query_id") or mine.get("topic_id") != theirs.get("topic_id"):
        return False
    (a, b), (c, d) = one.ranges[partition], other.ranges.get(partition, (0, 0))
    return max(a, c) < min(b, d)


def _overlapping(batches: list[Commit], before: Counts, partition: int) -> int:
    """Rows of the last batch's range that were there before it, by the range -1 counted along at the version before."""
    return before.get((-len(batches), partition), 0)


def _counts(lake: Lake, version: int, batches: list[Commit]) -> Counts:
    following = [c for c in lake.batches if c.version > version][:1]  # counted as -len(batches) - 1, see _overlapping
    ranges = [
        f"({number}, '{(batch.metadata or {}).get('topic_id') or ''}', {partition}, {start}, {end})"
        for number, batch in [*enumerate(batches), *((-len(batches) - 1, batch) for batch in following)]
        for partition, (start, end) in batch.ranges.items()
    ]
    delta = DeltaTable(str(lake.folder / "target"), version=version)
    if not ranges:
        return {(None, row[0]): row[1] for row in query(delta, "SELECT _partition, COUNT(*) FROM t GROUP BY 1")}
    rows = query(
        delta,
        f"WITH b(number, topic_id, p, s, e) AS (VALUES {', '.join(ranges)}) "
        "SELECT b.number, t._partition, COUNT(*) FROM t LEFT JOIN b ON t._partition = b.p AND COALESCE(t._topic_id, '') = b.topic_id "
        "AND t._offset >= b.s AND t._offset < b.e GROUP BY 1, 2",
    )
    return {(row[0], row[1]): row[2] for row in rows}
