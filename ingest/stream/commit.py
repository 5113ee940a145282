"""The only module that writes Delta tables: it creates them and makes the commits of a batch.

Duty of who calls: one pair (txnAppId, txnVersion) is used for one statement on one table. Duty of this module: a commit
carries its pair and its mark or it does not happen; nothing that runs later on the same session inherits them; and whoever
asks is told truthfully whether the commit was made now, was there before, or cannot be trusted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from delta import exceptions as delta
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract import Contract
from ingest.errors import Bug, RunStopped
from ingest.files import LocalFiles, is_local, local_path
from ingest.places import Places
from ingest.stream.columns import event_id_columns
from ingest.stream.decide import differs, one_topic
from ingest.stream.delta_log import Commit, DeltaLog
from ingest.stream.in_force import InForce
from ingest.stream.mark import Mark, Statement
from ingest.stream.tables import QUALITY_FIELDS, TableDefinition, definitions, quality_definition

APP_ID = "spark.databricks.delta.write.txnAppId"
VERSION = "spark.databricks.delta.write.txnVersion"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"

# A conflict means that somebody else's commit came first; each try reads the table anew. Five in a row is not chance.
TRIES_MAX = 5
# As Delta names them in commitInfo.
OPERATION: dict[Statement, str] = {"target": "MERGE", "quarantine": "MERGE", "ledger": "WRITE"}
# Not among them: ConcurrentTransactionException, which means that another driver uses our pair.
CONFLICTS: tuple[type[Exception], ...] = (delta.ConcurrentAppendException, delta.ConcurrentDeleteReadException)
CONFLICTS += (delta.ConcurrentDeleteDeleteException, delta.ConcurrentWriteException, delta.MetadataChangedException)


@dataclass(frozen=True)
class Written:
    """The commit was made now."""

    commit: Commit


@dataclass(frozen=True)
class AlreadyWritten:
    """An earlier attempt at the same batch made the commit, with the same ranges; nothing was written now."""

    commit: Commit


Outcome = Written | AlreadyWritten


def create_tables(session: SparkSession, contract: Contract, places: Places) -> None:
    """Create target, quarantine and ledger where they do not exist; an existing table is left as it is."""
    mark = {"oncelake": 1, "kind": "created", "pipeline": contract.pipeline, "table": contract.table, "contract_hash": contract.hash}
    for definition in definitions(contract, places):
        _create(session, definition, mark)


def _create(session: SparkSession, table: TableDefinition, mark: dict[str, object]) -> None:
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
    session.conf.set(METADATA, json.dumps(mark))
    try:
        builder.execute()
    finally:
        session.conf.unset(METADATA)


def alter(session: SparkSession, contract: Contract, table: str, statements: Sequence[str]) -> None:
    """Run statements that change a table's metadata (`{table}` stands for its name), marked as ours and as no batch."""
    mark = {"oncelake": 1, "kind": "altered", "pipeline": contract.pipeline, "table": contract.table, "contract_hash": contract.hash}
    name = "delta.`" + table.replace("`", "``") + "`"
    session.conf.set(METADATA, json.dumps(mark))
    try:
        for statement in statements:
            session.sql(statement.replace("{table}", name))
    finally:
        session.conf.unset(METADATA)


def merge_target(
    source: DataFrame,
    contract: Contract,
    log: DeltaLog,
    mark: Mark,
    bounds: Mapping[str, tuple[Column, Column]],
    still: Callable[[], object] = lambda: None,
) -> Outcome:
    """Insert the rows of `source` (the target's columns, one row an event id) whose event id the target does not hold.

    `still` is called before each try: it decides again on the table as it is now, and raises if the batch may not be written.

    `bounds` are the least and greatest event id of the batch by column, as typed values: they let Delta skip files.
    Raises RunStopped BATCH_DIFFERS if the pair was committed with other ranges, and what Spark raises if nothing was committed.
    """
    condition = F.lit(True)
    for name in event_id_columns(contract):
        condition &= F.col(f"t.`{name}`") == F.col(f"s.`{name}`")
    for name, (least, greatest) in bounds.items():
        condition &= F.col(f"t.`{name}`").between(least, greatest)
    return _insert_missing(source, condition, log, mark, "target", still)


def merge_quarantine(source: DataFrame, log: DeltaLog, mark: Mark, still: Callable[[], object] = lambda: None) -> Outcome:
    """Insert the records of `source` (the quarantine's columns) whose position the quarantine does not hold; raises as merge_target."""
    condition = F.lit(True)
    for name in ("topic_id", "partition", "offset"):
        condition &= F.col(f"t.`{name}`") == F.col(f"s.`{name}`")
    return _insert_missing(source, condition, log, mark, "quarantine", still)


def _insert_missing(
    source: DataFrame, condition: Column, log: DeltaLog, mark: Mark, statement: Statement, still: Callable[[], object]
) -> Outcome:
    """MERGE that only inserts; `condition` compares `t`, the table, with `s`, the source."""

    def merge(session: SparkSession) -> bool:
        still()
        table = DeltaTable.forPath(session, log.table)
        # By name: a table may keep a column that the contract no longer has, or have one that it does not have yet.
        values: dict[str, str | Column] = {f"`{name}`": F.col(f"s.`{name}`") for name in source.columns}
        return _executed(table.alias("t").merge(source.alias("s"), condition).whenNotMatchedInsert(values=values).execute())

    return _commit(source.sparkSession, log, mark, statement, merge)


def _executed(result: DataFrame | None) -> bool:
    """A MERGE that Delta skips returns no row, an executed one a row of counts."""
    return result is not None and len(result.collect()) > 0


def append_ledger(rows: DataFrame, log: DeltaLog, mark: Mark) -> Outcome:
    """Append `rows` (the ledger's columns) that reach up to the batch of `mark`; raises as merge_target."""

    def append(_: SparkSession) -> bool:
        before = log.newest()
        rows.write.format("delta").mode("append").save(log.table)
        # An append says nothing of whether it was skipped; only the log does.
        return _find(log, mark, "ledger", after=before) is not None

    return _commit(rows.sparkSession, log, mark, "ledger", append)


def append_quality(session: SparkSession, contract: Contract, places: Places, rows: Sequence[tuple[object, ...]]) -> None:
    """Append validation results (the quality table's columns), and make the table where there is none.

    Not exactly once: a run is told from another by its run id. The caller holds the lock of this table (lock.alone): checks run
    while others do, and beside the run that writes the target, whose locks do not cover this table.
    """
    mark = {"oncelake": 1, "kind": "created", "pipeline": contract.pipeline, "table": contract.table, "contract_hash": contract.hash}
    _create(session, quality_definition(places), mark)
    frame = session.createDataFrame(rows, T.StructType(list(QUALITY_FIELDS))).coalesce(1)
    # As an option of this one write: it cannot be left on the session.
    frame.write.format("delta").mode("append").option("userMetadata", json.dumps({**mark, "kind": "quality"})).save(places.quality)


def _commit(session: SparkSession, log: DeltaLog, mark: Mark, statement: Statement, write: Callable[[SparkSession], bool]) -> Outcome:
    tries = 0
    while True:
        tries += 1
        before = log.newest()
        if before < 0:
            raise _gone(log.table, mark, statement)
        try:
            with _pair(session, mark, statement):
                executed = write(session)
        except Exception as error:
            # The outcome is unknown until the log is read again: a store can report an error after it has committed.
            commit = _find(log, mark, statement, after=before)
            if commit is not None:
                return Written(commit)
            if tries < TRIES_MAX and isinstance(error, CONFLICTS):
                continue
            raise
        commit = _find(log, mark, statement, after=before if executed else -1)
        if commit is None and executed:
            raise Bug(
                "COMMIT_MISSING", f"the commit of batch {mark.id} is not in {log.table}.", expected="its pair and its mark in the log."
            )
        if commit is None or (not executed and not InForce(log).holds(commit.version)):
            raise _rewound(log.table, mark, statement, commit)
        return Written(commit) if executed else AlreadyWritten(commit)


def _gone(table: str, mark: Mark, statement: Statement) -> RunStopped:
    """The error for a table that was dropped or moved away while the run was at work: an append would make a new one in its place."""
    return RunStopped(
        "QUARANTINE_REWOUND" if statement == "quarantine" else "TABLE_REWOUND",
        f"{table} has no commit any more: it was dropped or moved away before batch {mark.id} was written. Nothing was written to it.",
        expected="the table as the batch before left it.",
        remedy="put it back and start again; preflight says what is missing otherwise, and what mends it.",
    )


def _rewound(table: str, mark: Mark, statement: Statement, commit: Commit | None) -> RunStopped:
    """The error for what Delta skips by its pair, though no commit in force has it: a RESTORE keeps the pairs of what it takes away."""
    which = "the log has no commit of it" if commit is None else f"its version {commit.version} is no longer in force, or has other offsets"
    name = f"{mark.pipeline}.{mark.table}"
    remedy = f"bring the table back to its newest state; or `ingest rebase {name} --to table` reads again what it lacks."
    if statement == "ledger":
        remedy = "bring the ledger back to its newest state; or move it away: it is made again, as far as the target's log goes back."
    return RunStopped(
        "QUARANTINE_REWOUND" if statement == "quarantine" else "TABLE_REWOUND",
        f"{table} was restored, replaced or overwritten: Delta still keeps the pair of batch {mark.id} or of a later one, and {which}.",
        expected="the batch in force in the table.",
        remedy=remedy,
    )


def _find(log: DeltaLog, mark: Mark, statement: Statement, *, after: int) -> Commit | None:
    """The commit of this very batch. Raises RunStopped if the pair was used for other ranges."""
    for commit in log.newest_first() if after < 0 else reversed(log.since(after)):
        # The operation too: another statement on this very session would have carried the pair in our place.
        if commit.transactions.get(mark.app_id(statement)) == mark.id.number and commit.operation == OPERATION[statement]:
            if commit.mark is None or commit.mark.ranges != mark.ranges or not one_topic(commit.mark.topic_id, mark.topic_id):
                # The ledger is no place to rebase for: it is made again.
                raise _rewound(log.table, mark, statement, commit) if statement == "ledger" else differs(mark, commit.mark, commit.version)
            return commit
    return None


@contextmanager
def _pair(session: SparkSession, mark: Mark, statement: Statement) -> Iterator[None]:
    """Pair and mark on this session for one statement: left set, the next append to any other table is dropped in silence."""
    session.conf.set(APP_ID, mark.app_id(statement))
    session.conf.set(VERSION, str(mark.id.number))
    session.conf.set(METADATA, mark.to_json())
    try:
        yield
    finally:
        for key in (APP_ID, VERSION, METADATA):
            session.conf.unset(key)
