"""The writer through Spark: it maintains and alters all Delta tables, and commits to those that direct_writer.py does not write.

Callers use one transaction id per statement and table. This module guarantees three rules (I8). A commit carries its transaction id and its
BatchCommit, or it does not happen. Later statements on the same session never inherit them. A statement that Delta skipped, because a later
epoch has fenced it, ends as FENCED and never counts as done.
"""

from __future__ import annotations

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
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.delta.batch_commit import Alter, BatchCommit, BatchId, Case, Check, Create
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import by_path
from ingest.delta.table_definitions import LEDGER_FIELDS, QUALITY_FIELDS, TableDefinition, definitions, quality_definition
from ingest.runtime import databricks
from ingest.runtime.errors import Bug, RunStopped
from ingest.runtime.files import LocalFiles, is_local, local_path
from ingest.runtime.places import Places

APP_ID = "spark.databricks.delta.write.txnAppId"
VERSION = "spark.databricks.delta.write.txnVersion"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"

# A conflict means that another commit came first; each try reads the table again. Five conflicts in a row are not chance.
TRIES_MAX = 5
# ConcurrentTransactionException is not in the list: it may mean that a later epoch has fenced this one.
CONFLICTS: tuple[type[Exception], ...] = (delta.ConcurrentAppendException, delta.ConcurrentDeleteReadException)
CONFLICTS += (delta.ConcurrentDeleteDeleteException, delta.ConcurrentWriteException, delta.MetadataChangedException)
CONFLICTS += (delta.ProtocolChangedException,)
# Delta lists a table's folder for VACUUM in ten thousand tasks, which takes minutes on one machine. It ignores `RETAIN` unless that is
# switched off, and it stores in the log what VACUUM removed only if asked.
VACUUM = {
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    "spark.databricks.delta.vacuum.logging.enabled": "true",
}
# Otherwise Delta makes no commit of a statement that changes nothing, and has no transaction id.
RECORDED = {"spark.databricks.delta.skipRecordingEmptyCommits": "false"}
SHORT_RETENTION = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}

# The quality table's columns with values of rows, besides `samples`.
VALUES_OF_ROWS, NO_SAMPLES = ("unexpected_values", "observed", "exception"), "[]"
HAS_VALUES = " OR ".join([f"samples <> '{NO_SAMPLES}'", *(f"{name} IS NOT NULL" for name in VALUES_OF_ROWS)])

Still = Callable[[], BatchCommit]
"""Called before each try: reads the tables again, raises if the statement must not run, and returns the BatchCommit with the snapshots."""


def create_tables(session: SparkSession, contract: Contract, places: Places) -> None:
    """Create target, quarantine and ledger if they do not exist. Existing tables stay unchanged."""
    for definition in definitions(contract, places):
        _create(session, definition, about(Create(), contract))


def _create(session: SparkSession, table: TableDefinition, created: BatchCommit) -> None:
    if is_local(table.path) and not DeltaLog(LocalFiles(), table.path).exists():
        # A creation that was killed before its commit leaves a log folder without commits. Delta sees no table there, but the place is
        # not free. Remove the folder only on a local disk: there a lock keeps other processes away, and a commit is a file in the folder.
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
    session.conf.set(METADATA, created.to_json())
    try:
        builder.execute()
    finally:
        session.conf.unset(METADATA)


def alter(session: SparkSession, contract: Contract, table: str, statements: Sequence[str]) -> None:
    """Run statements that change a table's metadata. The first `{table}` of a statement stands for the table's name.

    Their commits say that they alter the table.
    """
    session.conf.set(METADATA, about(Alter(), contract).to_json())
    try:
        for statement in statements:
            session.sql(statement.replace("{table}", by_path(table), 1))
    finally:
        session.conf.unset(METADATA)


def about(case: Case, contract: Contract) -> BatchCommit:
    """The BatchCommit of a statement that belongs to no epoch."""
    return BatchCommit(case, contract.pipeline, contract.table, contract_hash=contract.hash)


def fence(session: SparkSession, log: DeltaLog, batch_commit: BatchCommit) -> Commit | None:
    """Append no rows under a transaction id. Delta then skips every later statement with an older id, and one in flight fails.

    Returns None if another writer has this epoch or a later one. The caller then reads the tables again and takes a higher epoch.
    """
    return try_commit(session, log, lambda: batch_commit, lambda: append_nothing(session, log.table))


def append_nothing(session: SparkSession, table: str) -> None:
    """A commit without rows, for `commit` or `try_commit`."""
    # Built in the JVM alone: a frame from Python keeps a socket open, which prints a traceback when the JVM dies.
    columns = [F.lit(None).cast(each.dataType).alias(each.name) for each in session.read.format("delta").load(table).schema]
    session.range(0).select(*columns).write.format("delta").mode("append").save(table)


def overwrite(source: DataFrame, log: DeltaLog, still: Still) -> Commit:
    """Replace all rows of a table by those of `source`, under a transaction id. Raises RunStopped FENCED."""
    # A cluster may set `dynamic`, which would keep the partitions that `source` has no row of.
    writer = source.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "static")
    return commit(source.sparkSession, log, still, lambda: writer.save(log.table))


def merge_target(source: DataFrame, contract: Contract, log: DeltaLog, bounds: Mapping[str, tuple[Column, Column]], still: Still) -> Commit:
    """Insert the rows of `source` (the target's columns, one row per event id) whose event id the target does not contain.

    `bounds` are the batch's least and greatest event id by column, as typed values. They let Delta skip files.
    Raises RunStopped FENCED, and Spark's own error if nothing was committed.
    """
    condition = F.lit(True)
    for name in event_id_columns(contract):
        condition &= F.col(f"t.`{name}`") == F.col(f"s.`{name}`")
    for name, (least, greatest) in bounds.items():
        condition &= F.col(f"t.`{name}`").between(least, greatest)
    return commit(source.sparkSession, log, still, lambda: _insert_missing(source, log.table, condition))


def merge_quarantine(source: DataFrame, log: DeltaLog, still: Still, *, reopen: bool) -> Commit:
    """Insert the records of `source` (the quarantine's columns) whose position the quarantine does not contain. Raises as `merge_target`.

    `reopen`: these offsets were read before. A record that was `replayed` as a row, and is refused this time, becomes open again.
    """
    condition = F.lit(True)
    for name in ("source", "partition", "offset"):
        condition &= F.col(f"t.`{name}`") == F.col(f"s.`{name}`")
    changed = {name: F.col(f"s.`{name}`") for name in ("state", "state_changed_at", "state_by")} if reopen else {}
    return commit(source.sparkSession, log, still, lambda: _insert_missing(source, log.table, condition, changed))


def _insert_missing(source: DataFrame, table: str, condition: Column, changed: Mapping[str, Column] | None = None) -> None:
    """MERGE that inserts the source rows without a match. `condition` compares `t`, the table, with `s`, the source."""
    # By name: the table may have columns that the contract no longer has or does not have yet.
    values: dict[str, str | Column] = {f"`{name}`": F.col(f"s.`{name}`") for name in source.columns}
    merge = DeltaTable.forPath(source.sparkSession, table).alias("t").merge(source.alias("s"), condition)
    if changed:
        merge = merge.whenMatchedUpdate(condition="t.state = 'replayed'", set={**changed})
    merge.whenNotMatchedInsert(values=values).execute()


def append_ledger(session: SparkSession, ledger: str, about: BatchCommit, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append lines to the ledger. It needs no transaction id: two processes may append the same line, and readers take it once."""
    # Through Arrow: Spark would turn Python's own rows into an RDD, which costs a second in the first Python worker.
    fields = T.StructType(list(LEDGER_FIELDS))
    frame = session.createDataFrame(pa.Table.from_pylist(list(rows), to_arrow_schema(fields, timezone="UTC")), fields)
    unfenced(session, about, lambda: frame.coalesce(1).write.format("delta").mode("append").save(ledger))


def compact(session: SparkSession, table: str, about: BatchCommit, small_bytes: int, large_bytes: int) -> None:
    """Merge the files below `small_bytes` into files of about `large_bytes`; a clustered table is clustered. No row changes."""
    sizes = {"minFileSize": str(small_bytes), "maxFileSize": str(large_bytes)}
    with _set(session, {f"spark.databricks.delta.optimize.{name}": size for name, size in sizes.items()}):
        unfenced(session, about, lambda: DeltaTable.forPath(session, table).optimize().executeCompaction())


def vacuum(session: SparkSession, table: str, about: BatchCommit, hours: float | None, *, short: bool = False) -> None:
    """Delete the files that no version of the last `hours` needs (None: of the time that the table's property names, or 7 days).

    Delta refuses less than 7 days unless `short` is set.
    """
    with _set(session, VACUUM | (SHORT_RETENTION if short else {})):
        unfenced(session, about, lambda: DeltaTable.forPath(session, table).vacuum(hours))


def checkpoint(session: SparkSession, table: str) -> None:
    """Write a checkpoint of the table's log, for which Delta has no statement. A platform with another Delta makes its own."""
    if databricks.runtime() is None:
        jvm: Any = session.sparkContext._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, table).checkpoint()


def append_quality(session: SparkSession, contract: Contract, places: Places, rows: Sequence[tuple[object, ...]]) -> None:
    """Append validation results (the quality table's columns). Creates the table, or adds the columns that an older one lacks."""
    _create(session, quality_definition(places), about(Create(), contract))
    frame = session.createDataFrame(rows, T.StructType(list(QUALITY_FIELDS))).coalesce(1)
    # As an option of this one write, so that it cannot stay set on the session.
    written = frame.write.format("delta").mode("append").option("mergeSchema", "true")
    written.option("userMetadata", about(Check(), contract).to_json()).save(places.quality)


def commit(session: SparkSession, log: DeltaLog, still: Still, write: Callable[[], object]) -> Commit:
    """As `try_commit`, but raises RunStopped FENCED instead of returning None."""
    return or_fenced(log, still, lambda again: try_commit(session, log, again, write))


def or_fenced(log: DeltaLog, still: Still, attempt: Callable[[Still], Commit | None]) -> Commit:
    """The commit of `attempt`, which calls what it gets in place of `still`. Raises RunStopped FENCED if it returns None."""
    made: list[BatchCommit] = []

    def again() -> BatchCommit:
        made.append(still())
        return made[-1]

    commit = attempt(again)
    if commit is None:
        raise fenced(log, made[-1])
    return commit


def try_commit(session: SparkSession, log: DeltaLog, still: Still, write: Callable[[], object]) -> Commit | None:
    """Make one statement's commit; None if Delta skipped it or a later epoch came first.

    Only the log shows whether the commit was made: a store can report an error after it has committed, and a commit with our transaction
    id can be another writer's.
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
            if outrun and newer(log, batch_commit) is not None:
                return None
            # Otherwise an earlier epoch has committed meanwhile, which does not fence this one.
            if tries < TRIES_MAX and (outrun or isinstance(error, CONFLICTS)):
                continue
            raise
        return _own(log, batch_commit, before)


def unfenced(session: SparkSession, about: BatchCommit, write: Callable[[], object]) -> None:
    """Run a statement without a transaction id, which any process may repeat. Retries on a conflict."""
    tries = 0
    while True:
        tries += 1
        session.conf.set(METADATA, about.to_json())
        try:
            write()
            return
        except CONFLICTS:
            if tries >= TRIES_MAX:
                raise
        finally:
            session.conf.unset(METADATA)


def correct(session: SparkSession, table: str, about: BatchCommit) -> None:
    """Post what an earlier statement has posted wrongly, without a transaction id."""
    with _set(session, RECORDED):
        unfenced(session, about, lambda: append_nothing(session, table))


@contextmanager
def _set(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set these on the session for one statement."""
    before = {key: session.conf.get(key, None) for key in values}
    for key, value in values.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            session.conf.unset(key) if old is None else session.conf.set(key, old)


def _own(log: DeltaLog, batch_commit: BatchCommit, before: int) -> Commit | None:
    """The statement's own commit after version `before`: the one with its transaction id and its writer."""
    for commit in reversed(log.since(before)):
        there = commit.batch_commit
        if there is not None and (there.id, there.writer) == (batch_commit.id, batch_commit.writer):
            return commit
    return None


def newer(log: DeltaLog, batch_commit: BatchCommit) -> BatchId | None:
    """The transaction id that Delta stores for the table's app id, if it is not below this statement's own."""
    state = log.state()
    kept = state.transactions.get(batch_commit.app_id) if state is not None else None
    return BatchId.of(kept) if kept is not None and kept >= batch_commit.id.txn_version else None


def overtaken(log: DeltaLog, batch_commit: BatchCommit) -> RunStopped | None:
    """The FENCED error if an epoch later than the BatchCommit's has fenced the table, else None."""
    known = newer(log, batch_commit)
    return fenced(log, batch_commit) if known is not None and known.epoch > batch_commit.id.epoch else None


def fenced(log: DeltaLog, batch_commit: BatchCommit) -> RunStopped:
    """The FENCED error for a statement that Delta did not execute. Raises Bug COMMIT_MISSING if no other transaction id explains it."""
    known = newer(log, batch_commit)
    if known is None:
        raise Bug(
            "COMMIT_MISSING",
            f"the commit of {batch_commit.kind} {batch_commit.id} is not in {log.table}.",
            expected="its commit in the log.",
        )
    return RunStopped(
        "FENCED",
        f"another run has taken epoch {known.epoch} of {batch_commit.name}; this one is epoch {batch_commit.id.epoch}. Its statement "
        f"({batch_commit.kind} {batch_commit.id}) on {log.table} was not executed.",
        expected="one run for a table at a time: the later epoch continues, and reads the offsets that this one did not commit.",
        remedy="nothing, if the other run is wanted; otherwise stop the other run first. A scheduler must not start runs that overlap.",
    )


def _gone(table: str, batch_commit: BatchCommit) -> RunStopped:
    """The error for a table that was dropped or moved away during a run. An append would create a new table in its place."""
    return RunStopped(
        "QUARANTINE_REWOUND" if table.endswith("quarantine") else "TABLE_REWOUND",
        f"{table} has no commits any more: it was dropped or moved away before batch {batch_commit.id} was written. Nothing was written.",
        expected="the table as the previous batch left it.",
        remedy="put it back and start again. If you cannot, the next start reports what is missing and how to mend it.",
    )


@contextmanager
def _transaction(session: SparkSession, batch_commit: BatchCommit) -> Iterator[None]:
    """Set transaction id and BatchCommit on this session for one statement.

    If they stayed set, Delta would silently drop the session's next append to any other table.
    """
    session.conf.set(APP_ID, batch_commit.app_id)
    session.conf.set(VERSION, str(batch_commit.id.txn_version))
    session.conf.set(METADATA, batch_commit.to_json())
    try:
        yield
    finally:
        for key in (APP_ID, VERSION, METADATA):
            session.conf.unset(key)
