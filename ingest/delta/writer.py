"""The only module that writes Delta tables: it creates them, fences them, and makes the commits of a batch.

Duty of who calls: one transaction id for one statement on one table. Duty of this module: a commit carries its transaction id and its
mark or it does not happen; nothing that runs later on the same session inherits them; a statement that Delta skipped, because a later
epoch has fenced it, ends as FENCED and never passes for done (I8).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from delta import exceptions as delta
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.delta.batch_commit import BatchCommit, BatchId
from ingest.delta.delta_log import Commit, DeltaLog
from ingest.delta.table_definitions import LEDGER_FIELDS, QUALITY_FIELDS, TableDefinition, definitions, quality_definition
from ingest.runtime.errors import Bug, RunStopped
from ingest.runtime.files import LocalFiles, is_local, local_path
from ingest.runtime.places import Places

APP_ID = "spark.databricks.delta.write.txnAppId"
VERSION = "spark.databricks.delta.write.txnVersion"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"

# A conflict means that somebody else's commit came first; each try reads the table anew. Five in a row is not chance.
TRIES_MAX = 5
# Not among them: ConcurrentTransactionException, which may mean that a later epoch has fenced this one.
CONFLICTS: tuple[type[Exception], ...] = (delta.ConcurrentAppendException, delta.ConcurrentDeleteReadException)
CONFLICTS += (delta.ConcurrentDeleteDeleteException, delta.ConcurrentWriteException, delta.MetadataChangedException)
CONFLICTS += (delta.ProtocolChangedException,)
LEDGER_KEY = ("kind", "epoch", "batch", "partition", "start_offset")

Still = Callable[[], BatchCommit]
"""Looks again before each try, raises if the statement may not be made, and returns the mark with what it saw."""


def create_tables(session: SparkSession, contract: Contract, places: Places) -> None:
    """Create target, quarantine and ledger where they do not exist; an existing table is left as it is."""
    batch_commit = {
        "oncelake": 1,
        "kind": "created",
        "pipeline": contract.pipeline,
        "table": contract.table,
        "contract_hash": contract.hash,
    }
    for definition in definitions(contract, places):
        _create(session, definition, batch_commit)


def _create(session: SparkSession, table: TableDefinition, batch_commit: dict[str, object]) -> None:
    if is_local(table.path) and not DeltaLog(LocalFiles(), table.path).exists():
        # A creation that was killed before its commit leaves a log without any: no table to Delta, and no free place either. Only where
        # a lock keeps others away; and where a log's first entry is a file in it.
        shutil.rmtree(local_path(table.path) / "_delta_log", ignore_errors=True)
    builder = DeltaTable.createIfNotExists(session).location(table.path)
    for column in table.fields:
        builder = builder.addColumn(column.name, column.dataType, nullable=column.nullable, comment=column.metadata.get("comment"))
    for key, value in table.properties.items():
        builder = builder.property(key, value)
    if table.comment:
        builder = builder.comment(table.comment)
    if table.partition_by:
        builder = builder.partitionedBy(*table.partition_by)
    if table.cluster_by:
        builder = builder.clusterBy(*table.cluster_by)
    session.conf.set(METADATA, json.dumps(batch_commit))
    try:
        builder.execute()
    finally:
        session.conf.unset(METADATA)


def alter(session: SparkSession, contract: Contract, table: str, statements: Sequence[str]) -> None:
    """Run statements that change a table's metadata (`{table}` stands for its name), marked as ours and as no batch."""
    batch_commit = {
        "oncelake": 1,
        "kind": "altered",
        "pipeline": contract.pipeline,
        "table": contract.table,
        "contract_hash": contract.hash,
    }
    name = "delta.`" + table.replace("`", "``") + "`"
    session.conf.set(METADATA, json.dumps(batch_commit))
    try:
        for statement in statements:
            session.sql(statement.replace("{table}", name))
    finally:
        session.conf.unset(METADATA)


def fence(session: SparkSession, log: DeltaLog, batch_commit: BatchCommit) -> Commit | None:
    """Append nothing under a transaction id: every statement with an older one that begins later is skipped, one in flight fails.

    None where another writer has this epoch or a later one: the caller looks again and takes a higher one.
    """
    return _try_commit(session, log, lambda: batch_commit, lambda: _append_nothing(session, log.table))


def commit_seek(session: SparkSession, log: DeltaLog, batch_commit: BatchCommit) -> Commit:
    """Commit where an epoch begins, and adds nothing. Raises RunStopped FENCED."""
    return _commit(session, log, lambda: batch_commit, lambda: _append_nothing(session, log.table))


def _append_nothing(session: SparkSession, table: str) -> None:
    # Made in the JVM alone: a frame made in Python keeps a socket open that prints a traceback when the JVM dies.
    columns = [F.lit(None).cast(each.dataType).alias(each.name) for each in session.read.format("delta").load(table).schema]
    session.range(0).select(*columns).write.format("delta").mode("append").save(table)


def delete(session: SparkSession, log: DeltaLog, batch_commit: BatchCommit, condition: str) -> Commit | None:
    """Delete what meets the condition, under the mark's transaction id; None if there was nothing. Raises RunStopped FENCED."""
    commit = _try_commit(session, log, lambda: batch_commit, lambda: DeltaTable.forPath(session, log.table).delete(condition))
    if commit is None and _newer(log, batch_commit) is not None:
        raise fenced(log, batch_commit)
    return commit  # deleting nothing makes no commit, and so fences nobody


def merge_target(source: DataFrame, contract: Contract, log: DeltaLog, bounds: Mapping[str, tuple[Column, Column]], still: Still) -> Commit:
    """Insert the rows of `source` (the target's columns, one row an event id) whose event id the target does not hold.

    `bounds` are the least and greatest event id of the batch by column, as typed values: they let Delta skip files.
    Raises RunStopped FENCED, and what Spark raises if nothing was committed.
    """
    condition = F.lit(True)
    for name in event_id_columns(contract):
        condition &= F.col(f"t.`{name}`") == F.col(f"s.`{name}`")
    for name, (least, greatest) in bounds.items():
        condition &= F.col(f"t.`{name}`").between(least, greatest)
    return _commit(source.sparkSession, log, still, lambda: _insert_missing(source, log.table, condition))


def merge_quarantine(source: DataFrame, log: DeltaLog, still: Still, *, reopen: bool) -> Commit:
    """Insert the records of `source` (the quarantine's columns) whose position the quarantine does not hold; raises as merge_target.

    `reopen`: these offsets were read before. A record that was made a row and is none any more is open again.
    """
    condition = F.lit(True)
    for name in ("topic_id", "partition", "offset"):
        condition &= F.col(f"t.`{name}`") == F.col(f"s.`{name}`")
    changed = {name: F.col(f"s.`{name}`") for name in ("state", "state_changed_at", "state_by")} if reopen else {}
    return _commit(source.sparkSession, log, still, lambda: _insert_missing(source, log.table, condition, changed))


def _insert_missing(source: DataFrame, table: str, condition: Column, changed: Mapping[str, Column] | None = None) -> None:
    """MERGE that inserts what does not match; `condition` compares `t`, the table, with `s`, the source."""
    # By name: a table may keep a column that the contract no longer has, or have one that it does not have yet.
    values: dict[str, str | Column] = {f"`{name}`": F.col(f"s.`{name}`") for name in source.columns}
    merge = DeltaTable.forPath(source.sparkSession, table).alias("t").merge(source.alias("s"), condition)
    if changed:
        merge = merge.whenMatchedUpdate(condition="t.state = 'replayed'", set={**changed})
    merge.whenNotMatchedInsert(values=values).execute()


def mark_replayed(rows: DataFrame, quarantine: str, batch_commit: BatchCommit) -> None:
    """Quarantined records that are rows now become `replayed`; `rows` has topic_id, partition, offset and at (the time).

    Without a transaction id: whoever repeats it changes nothing.
    """
    condition = "t.topic_id = s.topic_id AND t.`partition` = s.`partition` AND t.`offset` = s.`offset` AND t.state <> 'replayed'"
    by = {"state": F.lit("replayed"), "state_changed_at": F.col("s.at"), "state_by": F.lit("ingest run")}

    def merge() -> None:
        table = DeltaTable.forPath(rows.sparkSession, quarantine)
        table.alias("t").merge(rows.alias("s"), condition).whenMatchedUpdate(set={**by}).execute()

    _unfenced(rows.sparkSession, batch_commit, merge)


def merge_ledger(session: SparkSession, ledger: str, batch_commit: BatchCommit, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows that the ledger lacks, by their key; set `stood` where a row of it has one.

    Without a transaction id: the ledger only projects commits, so it does not matter who writes a row.
    """
    # By Arrow: of Python's own rows Spark would make an RDD, which takes a worker a second when it is the first.
    frame = session.createDataFrame(pa.Table.from_pylist(list(rows)), T.StructType(list(LEDGER_FIELDS)))
    condition = " AND ".join(f"t.`{name}` = s.`{name}`" for name in LEDGER_KEY)
    for name in ("epoch", "batch"):  # literals let Delta skip files
        values = [row[name] for row in rows]
        condition += f" AND t.{name} BETWEEN {min(values)} AND {max(values)}"

    def merge() -> None:
        table = DeltaTable.forPath(session, ledger).alias("t").merge(frame.alias("s"), condition)
        if any(row["stood"] is not None for row in rows):  # without it Delta takes one pass, not two
            table = table.whenMatchedUpdate(condition="s.stood IS NOT NULL", set={"stood": "s.stood"})
        table.whenNotMatchedInsertAll().execute()

    _unfenced(session, batch_commit, merge)


def append_quality(session: SparkSession, contract: Contract, places: Places, rows: Sequence[tuple[object, ...]]) -> None:
    """Append validation results (the quality table's columns), and make the table where there is none.

    Not exactly once: a run is told from another by its run id. The caller holds the lock of this table (lock.alone): checks run
    while others do, and beside the run that writes the target, whose locks do not cover this table.
    """
    batch_commit = {
        "oncelake": 1,
        "kind": "created",
        "pipeline": contract.pipeline,
        "table": contract.table,
        "contract_hash": contract.hash,
    }
    _create(session, quality_definition(places), batch_commit)
    frame = session.createDataFrame(rows, T.StructType(list(QUALITY_FIELDS))).coalesce(1)
    # As an option of this one write: it cannot be left on the session.
    frame.write.format("delta").mode("append").option("userMetadata", json.dumps({**batch_commit, "kind": "quality"})).save(places.quality)


def _commit(session: SparkSession, log: DeltaLog, still: Still, write: Callable[[], object]) -> Commit:
    """As `_try_commit`; raises RunStopped FENCED where that finds no commit."""
    made: list[BatchCommit] = []

    def again() -> BatchCommit:
        made.append(still())
        return made[-1]

    commit = _try_commit(session, log, again, write)
    if commit is None:
        raise fenced(log, made[-1])
    return commit


def _try_commit(session: SparkSession, log: DeltaLog, still: Still, write: Callable[[], object]) -> Commit | None:
    """Make one statement's commit; None where Delta skipped it or a later epoch came first.

    Whether it was made, only the log tells: a store can report an error after it has committed, and a commit with our transaction id can
    be another writer's.
    """
    tries = 0
    while True:
        tries += 1
        batch_commit = still()
        before = log.newest()
        if before < 0:
            raise _gone(log.table, batch_commit)
        try:
            with _transaction(session, batch_commit):
                write()
        except Exception as error:
            if (commit := _own(log, batch_commit, before)) is not None:
                return commit
            outrun = isinstance(error, delta.ConcurrentTransactionException)
            if outrun and _newer(log, batch_commit) is not None:
                return None
            # Else an earlier epoch has committed meanwhile, which does not fence this one.
            if tries < TRIES_MAX and (outrun or isinstance(error, CONFLICTS)):
                continue
            raise
        return _own(log, batch_commit, before)


def _unfenced(session: SparkSession, batch_commit: BatchCommit, write: Callable[[], object]) -> None:
    """A statement without transaction id that anybody may repeat; tried again on a conflict."""
    tries = 0
    while True:
        tries += 1
        session.conf.set(METADATA, batch_commit.to_json())
        try:
            write()
            return
        except CONFLICTS:
            if tries >= TRIES_MAX:
                raise
        finally:
            session.conf.unset(METADATA)


def _own(log: DeltaLog, batch_commit: BatchCommit, before: int) -> Commit | None:
    """The commit of this very statement behind version `before`: its transaction id and its writer."""
    for commit in reversed(log.since(before)):
        there = commit.batch_commit
        if there is not None and (there.id, there.writer) == (batch_commit.id, batch_commit.writer):
            return commit
    return None


def _newer(log: DeltaLog, batch_commit: BatchCommit) -> BatchId | None:
    """The transaction id that Delta keeps for the table's app id, if it is not below this statement's own."""
    state = log.state()
    kept = state.transactions.get(batch_commit.app_id) if state is not None else None
    return BatchId.of(kept) if kept is not None and kept >= batch_commit.id.txn_version else None


def overtaken(log: DeltaLog, batch_commit: BatchCommit) -> RunStopped | None:
    """The same as an answer: whether a later epoch than the mark's has fenced the table."""
    newer = _newer(log, batch_commit)
    return fenced(log, batch_commit) if newer is not None and newer.epoch > batch_commit.id.epoch else None


def fenced(log: DeltaLog, batch_commit: BatchCommit) -> RunStopped:
    """The error for a statement that Delta did not execute."""
    newer = _newer(log, batch_commit)
    if newer is None:
        raise Bug(
            "COMMIT_MISSING",
            f"the commit of {batch_commit.kind} {batch_commit.id} is not in {log.table}.",
            expected="its commit in the log.",
        )
    return RunStopped(
        "FENCED",
        f"another run has taken epoch {newer.epoch} of {batch_commit.name}; this one is epoch {batch_commit.id.epoch}. Its statement "
        f"({batch_commit.kind} {batch_commit.id}) on {log.table} was not executed.",
        expected="one run for a table at a time: the later epoch goes on, and reads what this one did not commit.",
        remedy="nothing, if the other run is wanted; else end the other one first. A scheduler must not start runs that overlap.",
    )


def _gone(table: str, batch_commit: BatchCommit) -> RunStopped:
    """The error for a table that was dropped or moved away while the run was at work: an append would make a new one in its place."""
    return RunStopped(
        "QUARANTINE_REWOUND" if table.endswith("quarantine") else "TABLE_REWOUND",
        f"{table} has no commit any more: it was dropped or moved away before batch {batch_commit.id} was written. Nothing was written.",
        expected="the table as the batch before left it.",
        remedy="put it back and start again; the start says what is missing otherwise, and what mends it.",
    )


@contextmanager
def _transaction(session: SparkSession, batch_commit: BatchCommit) -> Iterator[None]:
    """Transaction id and mark on this session for one statement: left set, the next append to any other table is dropped in silence."""
    session.conf.set(APP_ID, batch_commit.app_id)
    session.conf.set(VERSION, str(batch_commit.id.txn_version))
    session.conf.set(METADATA, batch_commit.to_json())
    try:
        yield
    finally:
        for key in (APP_ID, VERSION, METADATA):
            session.conf.unset(key)
