"""The quarantine's retention: old settled records leave the table after the ledger has counted them, so `ingest verify` still balances.

1. Write ledger rows of kind `retention`: how many records of each batch and partition leave. Until step 2 they only permit a shortage.
2. Delete the records.

After a crash between the steps, the next retention finds the counted records still there and counts them again, in the same statement
that cancels the first count. A record's position tells: it is in the quarantine only once, and no other step removes it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ingest.delta import writer as commits
from ingest.delta.batch_commit import BatchId
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine
from ingest.ledger.batch_history import version_of
from ingest.ledger.ledger_reader import ledger_rows
from ingest.ledger.ledger_row import SCHEMA_VERSION, LedgerRow
from ingest.runtime import crash_points
from ingest.runtime.files import files_of
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """The quarantined records that leave: the SQL condition that finds them, and the ledger rows to write first. `at` names the DELETE."""

    condition: str
    at: str
    rows: tuple[LedgerRow, ...]

    @property
    def records(self) -> int:
        """How many records leave."""
        return sum(row.quarantined for row in self.rows)


def retire(engine: Engine, places: Places, before: datetime, now: datetime, *, open_too: bool = False) -> Retired | None:
    """The records that leave because their state last changed before this time; None if there are none. Raises Unreadable.

    Only records of batches that the ledger has: a batch in progress, or cut off, keeps its records.
    """
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
    return Retired(condition, name_of(now), tuple(rows.values())) if rows else None


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


def remove(session: SparkSession, places: Places, retired: Retired, about: dict[str, object]) -> None:
    """Count the records in the ledger, then delete them."""
    text = json.dumps({**about, "retired_at": retired.at})
    commits.merge_retired(session, places.ledger, text, [vars(row) for row in retired.rows])
    crash_points.at("maintain_counted", 0)
    commits.delete_retired(session, places.quarantine, text, retired.condition)
    crash_points.at("maintain_deleted", 0)
