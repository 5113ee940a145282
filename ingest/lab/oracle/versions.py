"""(e) Time travel: at every version target and quarantine hold whole batches, and of the copies of an event the first one read is the row.

Every row names its epoch and batch. A batch's commit may change the rows of that batch only, and nothing else may change any; a
roll-back may take away those of uncommitted batches. What the test's own commits take away is counted in `Lake.taken`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from deltalake import DeltaTable

from ingest.lab.oracle.case import Case
from ingest.lab.oracle.oracle_tables import PLACES, Place, Position, query
from ingest.lab.oracle.sources import OracleCommit


def check_versions(case: Case) -> Iterator[str]:
    """(e) Every version of the target is a prefix by whole batches; in the quarantine only uncommitted batches are rolled back."""
    for table in PLACES:
        yield from _walk(case, table)


def _walk(case: Case, table: str) -> Iterator[str]:
    lake, log, owned = case.lake, case.lake.logs[table], 0
    before: Counter[Place] | None = Counter() if lake.first(table) == 0 else None
    ours = {commit.version: commit.kind for commit in lake.commits(table, "batch", "rollback")}
    for commit in log:
        what = f"{case.run.table}: {table} version {commit.version}"
        try:
            now = lake.rows_at(table, commit.version)
        except Exception as error:  # deltalake has no common error for files that VACUUM or log clean-up removed
            unread = f"{what} cannot be read any more: {str(error)[:120]}"
            if log[0].version > 0 or any(c.operation.startswith("VACUUM") for c in log if c.version > commit.version):
                case.notes.append(unread)
            else:
                yield f"{unread}; no VACUUM and no clean-up of the log explains that (e)"
            before = None
            continue
        kind = ours.get(commit.version, "replayed" if (table, commit.kind) == ("quarantine", "replayed") else commit.operation)
        own = commit.version in case.own_versions(table)
        owned += own and before is not None
        # A batch that is read again opens quarantined records again, and writes their files anew: the counts below tell that none is gone.
        ours_may = kind in ("rollback", "replayed") or (table, kind) == ("quarantine", "batch")
        if commit.removes_data and not own and not ours_may:
            yield f"{what} ({commit.operation}) takes rows away or changes them, and it is no commit of the test (e)"
            own = True
        if before is not None and commit.removes_data and table == "target":
            # Batches only add: what was doubled between two of them is still there at the last version before rows were taken away.
            yield from _doubled(case, commit.version - 1)
        if before is not None and own:
            lake.taken[table].update(before)
            lake.taken[table].subtract(now)  # what a RESTORE brings back is taken no more
        elif before is not None:
            yield from _torn(case, commit, kind, before, now, what)
        lake.history[table, commit.version] = before = now
    if owned < len(case.own_versions(table)):
        lake.blind.add(table)


def _torn(case: Case, commit: OracleCommit, kind: str, before: Counter[Place], now: Counter[Place], what: str) -> Iterator[str]:
    for place in sorted(before.keys() | now.keys()):
        was, count, number = before[place], now[place], place[:2]
        added = kind == "batch" and number == commit.number and was < count
        rolled_back = kind == "rollback" and number < commit.number and number not in case.lake.ranges and count < was
        if was != count and not added and not rolled_back:
            batch = f"epoch {number[0]} batch {number[1]} in partition {place[2]}"
            yield f"{what} ({kind}) changes {batch} from {was} to {count} rows: a batch was torn (e)"


def _doubled(case: Case, version: int) -> Iterator[str]:
    names = ", ".join(f'"{name}"' for name in case.run.id_columns)
    delta = DeltaTable(str(case.lake.folder / "target"), version=version)
    for row in query(delta, f"SELECT {names}, COUNT(*) FROM t GROUP BY {names} HAVING COUNT(*) > 1 LIMIT 20"):
        yield f"{case.run.table}: target version {version} holds id {row[:-1]} {row[-1]} times (e)"


def check_order(case: Case) -> Iterator[str]:
    """(e) Of the copies that are not in quarantine the row is that of the earliest batch, inside it of the least partition and offset.

    A later one in its place means that a batch lost a record, and that the producer happened to send it again. No count shows that.
    """
    lake = case.lake
    if lake.first("target") > 0:
        return  # which batch was the first to read a record is not known
    readings: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for batch in lake.batches:
        for partition, (start, end) in batch.ranges.items():
            readings[batch.topic_id, partition].append((start, end, batch.version))

    def first_read(position: Position) -> int:
        found = readings.get(position[:2], ())
        return next((version for start, end, version in found if start <= position.offset < end), -1)

    row_of = {row.event_id: position for position, row in lake.target.items() if row.event_id not in case.run.excused_ids}
    for position, record in case.records.items():
        row = row_of.get(record.event_id) if record.event_id is not None else None
        if row is None or position in lake.target or position in lake.quarantine:
            continue
        copy_version, row_version = first_read(position), first_read(row)
        if not 0 <= copy_version <= row_version or (copy_version, *position[1:]) > (row_version, *row[1:]):
            continue
        # The copy's own row may be gone since.
        if any(c.version > copy_version and (c.replaces or (c.removes_data and c.version < row_version)) for c in lake.logs["target"]):
            continue
        yield (
            f"{case.where(position)}: id {record.event_id} was read by version {copy_version} and passed over; "
            f"its row is that of a later copy, partition {row.partition} offset {row.offset}, of version {row_version} (e)"
        )
