"""The quarantine's retention: old settled records leave the table after the ledger has counted them, so `ingest verify` still balances.

1. Write ledger rows of kind `retention`: how many records of each batch and partition leave. Until step 2 they only permit a shortage.
2. Delete the records.

After a crash between the steps, the next retention finds the counted records still there and counts them again, in the same statement
that cancels the first count. A record's position tells: it is in the quarantine only once, and no other step removes it.

On an object store no lock keeps another retention or erasure away. So after step 2 the statement's own commit decides about the count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ingest.delta.batch_commit import BatchId
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, asked, quoted
from ingest.delta.stored_rows import QUARANTINE, TARGET
from ingest.delta.table_upkeep import TableUpkeep
from ingest.delta.table_writer import TableWriter
from ingest.ledger.batch_history import version_of
from ingest.ledger.ledger_reader import ledger_rows
from ingest.ledger.ledger_row import SCHEMA_VERSION, LedgerRow
from ingest.runtime import crash_points
from ingest.runtime.files import files_of
from ingest.runtime.places import Places

SETTLED = ("replayed", "dropped")
NEWEST = "SELECT epoch, max(batch) AS batch FROM {ledger} WHERE kind = 'batch' GROUP BY epoch ORDER BY epoch DESC LIMIT 1"
GROUPS = """\
SELECT topic, topic_id, epoch, batch, `partition` AS p, min(`offset`) AS first, max(`offset`) AS last, count(*) AS n,
       count(CASE WHEN state = 'replayed' THEN 1 END) AS replayed
FROM {quarantine} WHERE """
PENDING = {
    "retention": """\
SELECT r.epoch, r.batch, r.`partition` AS p, r.start_offset AS o FROM {ledger} r LEFT SEMI JOIN {quarantine} q
ON r.kind = 'retention' AND r.quarantined > 0 AND r.topic_id = q.topic_id AND r.epoch = q.epoch AND r.batch = q.batch
AND r.`partition` = q.`partition` AND r.start_offset = q.`offset`""",
    "erased": """\
SELECT r.epoch, r.batch, r.`partition` AS p, r.start_offset AS o FROM {ledger} r LEFT SEMI JOIN {target} t
ON r.kind = 'erased' AND r.inserted > 0 AND r.epoch = t._epoch AND r.batch = t._batch
AND r.`partition` = t._partition AND r.start_offset = t._offset""",
}


@dataclass(frozen=True)
class Retired:
    """The quarantined records that leave: the SQL condition that finds them, and the ledger rows to write first.

    `at` names the DELETE. `since` is the quarantine's version before they were counted.
    """

    condition: str
    at: datetime
    since: int
    rows: tuple[LedgerRow, ...]

    @property
    def records(self) -> int:
        """How many records leave."""
        return sum(row.quarantined for row in self.rows)


def retire(engine: Engine, places: Places, before: datetime, now: datetime, *, open_too: bool = False) -> Retired | None:
    """The records that leave because their state last changed before this time; None if there are none. Raises Unreadable.

    Only records of batches that the ledger has: a batch in progress, or cut off, keeps its records.
    """
    since = version_of(DeltaLog(files_of(places.lake, engine.session), places.quarantine))
    newest = engine.ask(NEWEST, ledger=At(places.ledger))
    if not newest:
        return None
    last = BatchId(newest[0]["epoch"], newest[0]["batch"])
    states = ", ".join(f"'{state}'" for state in (*SETTLED, *(["open"] if open_too else [])))
    committed = f"(epoch < {last.epoch} OR (epoch = {last.epoch} AND batch <= {last.number}))"
    moment = before.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = f"state IN ({states}) AND state_changed_at < CAST('{moment}' AS TIMESTAMP) AND {committed}"
    groups = engine.ask(f"{GROUPS}{condition} GROUP BY topic, topic_id, epoch, batch, `partition`", quarantine=At(places.quarantine))
    version = version_of(DeltaLog(files_of(places.lake, engine.session), places.target))
    rows = {}
    for group in groups:
        batch, topic = (group["epoch"], group["batch"]), (group["topic"], group["topic_id"])
        offsets = group["p"], group["first"], group["last"] + 1
        row = removed_row("retention", places, batch, topic, offsets, (group["replayed"], group["n"]), version, now)
        rows[row.key] = row
    rows = {row.key: row for row in cancelled(engine, places, "retention", now)} | rows
    return Retired(condition, now, since, tuple(rows.values())) if rows else None


def removed_row(
    kind: str,
    places: Places,
    batch: tuple[int, int],
    topic: tuple[str, str],
    offsets: tuple[int, int, int],
    counts: tuple[int, int],
    version: int,
    now: datetime,
) -> LedgerRow:
    """A ledger row that counts what leaves target or quarantine, by a statement that `name_of(now)` names.

    `batch` is epoch and number, `topic` name and id, `offsets` partition, start and end, `counts` inserted and quarantined. `version` is
    the target's version at the count.
    """
    identity = (SCHEMA_VERSION, kind, places.pipeline, places.table, *batch, *topic)
    inserted, quarantined = counts
    return LedgerRow(*identity, *offsets, 0, inserted, 0, quarantined, 0, None, name_of(now), version, "", now)


def removed_rows(
    kind: str, places: Places, groups: Iterable[Any], topics: Mapping[int, tuple[str, str]], version: int, now: datetime
) -> list[LedgerRow]:
    """The ledger rows for groups of removed rows: e, b, p (their epoch, batch and partition), n, first and last offset, and replayed.

    `topics` has name and id of the topic by epoch.
    """
    rows = []
    for group in groups:
        counts = (group["n"], 0) if kind == "erased" else (group["replayed"], group["n"])
        offsets = (group["p"], group["first"], group["last"] + 1)
        rows.append(removed_row(kind, places, (group["e"], group["b"]), topics.get(group["e"], ("", "")), offsets, counts, version, now))
    return rows


def name_of(now: datetime) -> str:
    """What links the statement that removes records to the ledger rows that count them."""
    return now.astimezone(UTC).isoformat()


def metadata(places: Places) -> dict[str, object]:
    """The metadata of every commit of a maintenance or an erasure."""
    return {"oncelake": 1, "kind": "maintain", "pipeline": places.pipeline, "table": places.table}


def cancelled(engine: Engine, places: Places, kind: str, now: datetime) -> list[LedgerRow]:
    """The ledger rows of kind `retention` or `erased` that count what is still there, with counts of zero. Raises Unreadable."""
    tables = {"ledger": At(places.ledger), "quarantine": At(places.quarantine), "target": At(places.target)}
    sql = PENDING[kind]
    found = engine.ask(sql, **{name: at for name, at in tables.items() if f"{{{name}}}" in sql})
    pending = {(kind, row["epoch"], row["batch"], row["p"], row["o"]) for row in found}
    rows = ledger_rows(engine, places, f"kind = '{kind}'") if pending else []
    return [replace(row, inserted=0, quarantined=0, committed_at=now) for row in rows if row.key in pending]


def remove(upkeep: TableUpkeep, places: Places, retired: Retired, about: dict[str, object]) -> int:
    """Count the records in the ledger, then delete them; returns how many they are."""
    text = json.dumps({**about, "retired_at": name_of(retired.at)})
    upkeep.writer.merge_retired(places, text, [vars(row) for row in retired.rows])
    crash_points.at("maintain_counted", 0)
    upkeep.delete_retired(places.quarantine, text, retired.condition)
    crash_points.at("maintain_deleted", 0)
    return settle(upkeep.writer, places, text, retired.rows, retired.since, retired.at)


def settle(writer: TableWriter, places: Places, about: str, counted: Sequence[LedgerRow], since: int, at: datetime) -> int:
    """Correct the count of a statement, if its commit shows another; returns how many rows or records it has removed. As `recounted`."""
    rows = asked(places.lake, writer.session, lambda engine: recounted(engine, places, counted, since, at))
    if rows is None:
        return sum(_removed(row) for row in counted if row.why == name_of(at))
    if rows:
        writer.merge_retired(places, about, [vars(row) for row in rows])
    return sum(_removed(row) for row in rows if row.why == name_of(at))


def recounted(engine: Engine, places: Places, counted: Sequence[LedgerRow], since: int, at: datetime) -> list[LedgerRow] | None:
    """The ledger rows that correct the count of a statement; None if it is right. Raises Unreadable.

    `counted` are the ledger rows of one kind that were written before the statement, `since` is the version of its table that the count has
    seen, or an older one. Without a lock another process may have removed some of the same rows since, and each may have replaced the
    other's count. Then the rows of all these statements are counted again: no two commits remove the same row.
    """
    kind, why = counted[0].kind, name_of(at)
    log = DeltaLog(files_of(places.lake, engine.session), places.target if kind == "erased" else places.quarantine)
    removals = {commit.retired_at: commit for commit in log.since(since) if commit.operation in ("MERGE", "DELETE") and commit.retired_at}
    there = ledger_rows(engine, places, f"kind = {quoted(kind)} AND why IN ({', '.join(map(quoted, {why, *removals}))})")
    mine = {(row.key, _removed(row)) for row in counted if row.why == why}
    removed = removals[why].deleted_rows if why in removals else 0
    if removed == sum(number for _, number in mine) and mine == {(row.key, _removed(row)) for row in there if row.why == why}:
        return None
    topics = {row.epoch: (row.topic, row.topic_id) for row in (*there, *counted)}
    exact = {row.key: row for commit in removals.values() for row in _removed_by(engine, places, kind, commit, topics)}
    return [*({row.key: replace(row, inserted=0, quarantined=0) for row in there} | exact).values()]


def _removed(row: LedgerRow) -> int:
    return row.inserted if row.kind == "erased" else row.quarantined


def _removed_by(engine: Engine, places: Places, kind: str, commit: Commit, topics: Mapping[int, tuple[str, str]]) -> list[LedgerRow]:
    """The ledger rows that count what a commit has removed: what its predecessor has and it has not."""
    path, columns, state = (places.target, TARGET, "''") if kind == "erased" else (places.quarantine, QUARANTINE, "state")
    names = f"`{columns.epoch}` AS e, `{columns.batch}` AS b, `{columns.partition}` AS p, `{columns.offset}` AS o, {state} AS s"
    figures = "count(*) AS n, min(o) AS first, max(o) AS last, count(CASE WHEN s = 'replayed' THEN 1 END) AS replayed"
    sql = f"SELECT e, b, p, {figures} FROM (SELECT {names} FROM {{before}} EXCEPT SELECT {names} FROM {{after}}) r GROUP BY e, b, p"
    groups = engine.ask(sql, before=At(path, commit.version - 1), after=At(path, commit.version))
    at = datetime.fromisoformat(commit.retired_at or "")
    return removed_rows(kind, places, groups, topics, version_of(DeltaLog(files_of(places.lake, engine.session), places.target)), at)
