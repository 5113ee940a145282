"""Read the ledger's state in a few queries. Their cost does not depend on the number of target rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ingest.delta.batch_commit import FENCE, FIRST_BATCH, SEEK, BatchCommit, BatchId, Snapshots
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, asked
from ingest.delta.reachable import reverts
from ingest.kafka.topic_state import TopicId
from ingest.ledger.ledger_row import LedgerRow
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCHS = """\
SELECT epoch, max(topic_id) AS topic_id, max(CASE WHEN kind = 'epoch' AND batch = 1 THEN 1 ELSE 0 END) AS sought,
       max(CASE WHEN kind = 'batch' THEN batch END) AS last, count(DISTINCT CASE WHEN kind = 'batch' THEN batch END) AS batches
FROM {ledger} WHERE kind NOT IN ('retention', 'erased') GROUP BY epoch"""
REACHED = "SELECT topic_id, `partition`, max(end_offset) AS reached FROM {ledger} WHERE kind = 'batch' GROUP BY topic_id, `partition`"


@dataclass(frozen=True)
class Newest:
    """The highest batch or seek of a table, and the next offset of each partition after it.

    `version` is the target version of its commit. `snapshots` come from the commit; they are None if only the ledger is known, for example
    because Delta cleaned up the commit.
    """

    id: BatchId
    topic: TopicId
    ends: Mapping[int, int]
    snapshots: Snapshots | None = None
    version: int | None = None


@dataclass(frozen=True)
class LedgerState:
    """A summary of the ledger.

    `newest` is its highest batch or seek, `epoch` its highest epoch (0: none), `table_id` the target's id in our newest ledger commit
    (empty: unknown). `reached` is how far batches have read, by topic id and partition. `topics` maps epochs to topic ids. `sought` are the
    epochs that a seek opened, `holes` the batches that are missing between others. `cut`: ledger rows were removed after that commit.
    """

    newest: Newest | None = None
    epoch: int = 0
    table_id: str = ""
    reached: Mapping[tuple[str, int], int] = field(default_factory=dict)
    topics: Mapping[int, str] = field(default_factory=dict)
    sought: frozenset[int] = frozenset()
    holes: frozenset[BatchId] = frozenset()
    cut: bool = False


def read_ledger(session: SparkSession | None, log: DeltaLog) -> LedgerState:
    """The current state of the ledger with this log; empty if there is no ledger. A local lake needs no session.

    Raises Refused LOG_TORN, and Unreadable.
    """
    if not log.exists():
        return LedgerState()
    return asked(log.table, session, lambda engine: _state(engine, log))


def _state(engine: Engine, log: DeltaLog) -> LedgerState:
    ledger = At(log.table)
    epochs = engine.ask(EPOCHS, ledger=ledger)
    if not epochs:
        return LedgerState()
    written = ((commit.version, BatchCommit.from_json(commit.user_metadata)) for commit in log.newest_first())
    version, table_id = next(
        (
            (v, batch_commit.snapshots.target.table_id)
            for v, batch_commit in written
            if batch_commit is not None and batch_commit.kind == "ledger"
        ),
        (-1, ""),
    )
    highest = max(epochs, key=lambda row: int(row["epoch"]))
    number = highest["last"] or SEEK
    newest = f"epoch = {highest['epoch']} AND batch = {number} AND kind IN ('batch', 'epoch')"
    rows = engine.ask(f"SELECT * FROM {{ledger}} WHERE {newest}", ledger=ledger)
    reached = {(row["topic_id"], row["partition"]): row["reached"] for row in engine.ask(REACHED, ledger=ledger)}
    holes = frozenset(id for row in epochs if _has_holes(row) for id in _holes(engine, ledger, row))
    return LedgerState(
        _newest(rows),
        int(highest["epoch"]),
        table_id,
        reached,
        {row["epoch"]: row["topic_id"] for row in epochs},
        frozenset(row["epoch"] for row in epochs if row["sought"]),
        holes,
        cut_since(log, version, log.stamp(version)),
    )


def cut_since(log: DeltaLog, version: int, stamp: str) -> bool:
    """Whether ledger rows were removed after this version by RESTORE, DELETE or an overwrite, or a copy has replaced the ledger."""
    return log.lacks(version, stamp) or any(commit.operation == "DELETE" or reverts(commit) for commit in log.since(version))


def ledger_rows(engine: Engine, places: Places, where: str = "true") -> list[LedgerRow]:
    """The ledger rows that meet a condition, in batch order. Raises Unreadable."""
    # By name, since users may have added columns.
    columns = ", ".join(f"`{column.name}`" for column in fields(LedgerRow))
    sql = f"SELECT {columns} FROM {{ledger}} WHERE {where} ORDER BY epoch, batch, kind, `partition`, start_offset"
    return [LedgerRow(**row) for row in engine.ask(sql, ledger=At(places.ledger))]


def unledgered(log: DeltaLog, name: str, known: LedgerState) -> list[tuple[Commit, BatchCommit]]:
    """The target's batches and seeks that the ledger lacks, ascending: those after its newest one, and those in its holes."""
    # A copy of the target that was put back may have continued in an earlier epoch. Then everything in its log is missing.
    whole = known.newest is not None and not known.cut and _in_log(log, known.newest)
    newest = known.newest.id if whole and known.newest is not None else BatchId(0, FENCE)
    oldest = _oldest(log, name) if known.holes else None  # commits that Delta cleaned up cannot fill a hole
    holes = {id for id in known.holes if oldest is not None and id >= oldest}
    since = min([newest, *(BatchId(id.epoch, id.number - 1) for id in holes)])
    pending = []
    for commit in log.newest_first():
        batch_commit = commit.batch_commit
        if batch_commit is None or batch_commit.name != name or batch_commit.kind not in ("batch", "seek"):
            continue
        if batch_commit.id <= since:
            break
        if batch_commit.id > newest or batch_commit.id in holes:
            pending.append((commit, batch_commit))
    return pending[::-1]


def _in_log(log: DeltaLog, newest: Newest) -> bool:
    """Whether the log has this batch or seek at its version, or Delta cleaned up that commit."""
    assert newest.version is not None, "the ledger has it"
    if newest.version > log.newest():
        return False
    try:
        batch_commit = log.commit(newest.version).batch_commit
    except FileNotFoundError:
        return True
    return batch_commit is not None and batch_commit.id == newest.id


def _oldest(log: DeltaLog, name: str) -> BatchId | None:
    batch_commits = (log.commit(version).batch_commit for version in log.versions())
    return next(
        (
            batch_commit.id
            for batch_commit in batch_commits
            if batch_commit is not None and batch_commit.name == name and batch_commit.kind in ("batch", "seek")
        ),
        None,
    )


def _newest(rows: list[dict[str, Any]]) -> Newest | None:
    if not rows:  # somebody deleted the epoch's batches but not its start
        return None
    first = rows[0]
    topic = TopicId(first["topic"], first["topic_id"])
    ends = {row["partition"]: row["end_offset"] for row in rows}
    return Newest(BatchId(first["epoch"], first["batch"]), topic, ends, None, first["target_version"])


def _has_holes(row: dict[str, Any]) -> bool:
    return row["last"] is not None and row["batches"] != row["last"] - FIRST_BATCH + 1


def _holes(engine: Any, ledger: At, row: dict[str, Any]) -> Iterator[BatchId]:
    """The batches that are missing between others of an epoch."""
    sql = f"SELECT DISTINCT batch FROM {{ledger}} WHERE kind = 'batch' AND epoch = {row['epoch']} ORDER BY batch"
    has = {each["batch"] for each in engine.ask(sql, ledger=ledger)}
    return (BatchId(row["epoch"], number) for number in range(FIRST_BATCH, row["last"]) if number not in has)
