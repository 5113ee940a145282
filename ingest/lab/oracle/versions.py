"""(e) Time travel: every version of target and quarantine contains whole batches, and the first copy read of an event becomes its row.

Every row names its epoch and batch. A batch's commit may change only the rows of that batch. A roll-back may remove rows of
uncommitted batches, and an upkeep those that it posts. Nothing else may change rows. `Lake.taken` has the rows that the test's own commits
remove.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from deltalake import DeltaTable

from ingest.lab.oracle.case import Case
from ingest.lab.oracle.oracle_tables import PLACES, Position, query
from ingest.lab.oracle.sources import NOTHING, Key, Of, OracleCommit, added

# The kinds of commit that may remove files, and the tables where they may. A re-read may reopen quarantined records, which rewrites their
# files; the counts show that no record is gone.
MAY_REMOVE = {"batch": ("quarantine",), "rollback": ("quarantine",), "mark": ("quarantine",), "upkeep": ("target", "quarantine")}


def check_versions(case: Case) -> Iterator[str]:
    """(e) Every version of the target is a prefix of whole batches; in the quarantine only uncommitted batches are rolled back."""
    for table in PLACES:
        yield from _walk(case, table)


def _walk(case: Case, table: str) -> Iterator[str]:
    lake, log, owned = case.lake, case.lake.logs[table], 0
    before: Counter[Key] | None = Counter() if lake.first(table) == 0 else None
    ours = {commit.version: commit.kind for commit in log if commit.kind in MAY_REMOVE and commit.ours(lake.app_id)}
    for commit in log:
        what = f"{case.run.table}: {table} version {commit.version}"
        try:
            now = lake.rows_at(table, commit.version)
        except Exception as error:  # deltalake has no single error for files that VACUUM or log clean-up has removed
            unread = f"{what} cannot be read any more: {str(error)[:120]}"
            if log[0].version > 0 or any(c.operation.startswith("VACUUM") for c in log if c.version > commit.version):
                case.notes.append(unread)
            else:
                yield f"{unread}; no VACUUM and no clean-up of the log explains that (e)"
            before = None
            continue
        kind, own = ours.get(commit.version, commit.operation), commit.version in case.own_versions(table)
        owned += own and before is not None
        if commit.removes_data and not own and table not in MAY_REMOVE.get(kind, ()):
            yield f"{what} ({commit.operation}) removes or changes rows, but it is not a commit of the test (e)"
            own = True
        if before is not None and commit.removes_data and table == "target":
            # Batches only add rows, so a duplicate is still there in the last version before a commit that removes rows.
            yield from _doubled(case, commit.version - 1)
        if before is not None and own:
            taken, after = lake.sums_at(table, commit.version - 1), lake.sums_at(table, commit.version)
            # Rows that a RESTORE brings back are no longer taken.
            differences = {key: added(taken.get(key, NOTHING), after.get(key, NOTHING), -1) for key in taken.keys() | after.keys()}
            lake.taken[table][commit.version] = {key: each for key, each in differences.items() if each != NOTHING}
        elif before is not None:
            yield from _torn(case, table, commit, kind, before, now, what)
        before = now
    if owned < len(case.own_versions(table)):
        lake.blind.add(table)


def _torn(case: Case, table: str, commit: OracleCommit, kind: str, before: Counter[Key], now: Counter[Key], what: str) -> Iterator[str]:
    posted: Counter[Key] = Counter()
    for posting in commit.postings if kind == "upkeep" else ():
        posted[posting.key] += posting.sums(table)[0]
    for place in sorted(before.keys() | now.keys()):
        was, count, number = before[place], now[place], place[:2]
        inserted = kind == "batch" and number == commit.number and was < count
        rolled_back = kind == "rollback" and number < commit.number and number not in case.lake.ranges and count < was
        if was != count and not inserted and not rolled_back and count - was != posted[place]:
            batch = f"epoch {number[0]} batch {number[1]} in source {place[2]} partition {place[3]}"
            yield f"{what} ({kind}) changes {batch} from {was} to {count} rows: a batch was torn (e)"


def _doubled(case: Case, version: int) -> Iterator[str]:
    names = ", ".join(f'"{name}"' for name in case.run.id_columns)
    delta = DeltaTable(str(case.lake.folder / "target"), version=version)
    for row in query(delta, f"SELECT {names}, COUNT(*) FROM t GROUP BY {names} HAVING COUNT(*) > 1 LIMIT 20"):
        yield f"{case.run.table}: target version {version} holds id {row[:-1]} {row[-1]} times (e)"


def check_order(case: Case) -> Iterator[str]:
    """(e) Of an event's copies outside the quarantine, the earliest batch's is the row; within a batch, the one of the least position.

    A later copy in its place means that a batch lost a record and the producer happened to send it again. No count shows that.
    """
    lake = case.lake
    if lake.first("target") > 0:
        return  # the log no longer shows which batch read a record first
    readings: dict[Of, list[tuple[int, int, int]]] = defaultdict(list)
    numbers = {topic_id: number for number, topic_id in lake.topics.items()}
    for batch in lake.batches:
        for of, (start, end) in batch.ranges.items():
            readings[of].append((start, end, batch.version))

    def first_read(position: Position) -> int:
        found = readings.get(position[:2], ())
        return next((version for start, end, version in found if start <= position.offset < end), -1)

    row_of = {row.event_id: position for position, row in lake.target.items() if row.event_id not in case.run.excused_ids}
    for position, record in case.records.items():
        row = row_of.get(record.event_id) if record.event_id is not None else None
        if row is None or position in lake.target or position in lake.quarantine:
            continue
        copy_version, row_version = first_read(position), first_read(row)
        earlier, later = ((version, numbers.get(at[0], 0), *at[1:]) for version, at in ((copy_version, position), (row_version, row)))
        if not 0 <= copy_version <= row_version or earlier > later:
            continue
        # The copy's own row may have been removed since.
        if any(c.version > copy_version and (c.replaces or (c.removes_data and c.version < row_version)) for c in lake.logs["target"]):
            continue
        yield (
            f"{case.where(position)}: id {record.event_id} was read by version {copy_version} and passed over; "
            f"its row is that of a later copy, {case.named(row[:2])} offset {row.offset}, of version {row_version} (e)"
        )
