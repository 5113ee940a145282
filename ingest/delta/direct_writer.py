"""The direct writer: statements on Delta tables that this process writes itself, without Spark and its JVM (I8).

Each statement looks at the table, decides on that snapshot, and commits at the version after it, or looks again (`put`). Tables are small
here except the target, of which only files that lose rows are written again.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.contract.definition import Contract
from ingest.delta import writer
from ingest.delta.batch_commit import BatchCommit, Snapshot
from ingest.delta.commit import Commit
from ingest.delta.data_file import StagedFile, read_file, sync, write_file
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, DataFusion
from ingest.delta.direct_fit import refuse_unfit
from ingest.delta.held_rows import held
from ingest.delta.live_table import LiveTable
from ingest.delta.log_checkpoint import LogCheckpoints
from ingest.delta.put import Committed, Operation, put
from ingest.delta.table_definitions import LEDGER_FIELDS, TableDefinition, definitions
from ingest.delta.table_state import TableState
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import LocalFiles, local_path
from ingest.runtime.places import Places

# Another commit that comes first costs a look and the decision. So many in a row are not chance.
LOOKS_MAX = 20
NOTHING = Operation("WRITE", {"mode": "Append", "partitionBy": "[]"}, {"numFiles": 0, "numOutputRows": 0, "numOutputBytes": 0})

Decide = Callable[[LiveTable], tuple[Operation, Sequence[Mapping[str, Any]]] | None]
"""Actions for the snapshot that was just looked at; None if there is nothing to commit."""


class DirectWriter:
    """The statements of starts and batches, with the tables as they were last looked at.

    With a `contract`, a change of the target during the run is judged as a start judges it.
    """

    session: SparkSession | None = None

    def __init__(self, contract: Contract | None = None) -> None:
        self.contract = contract
        self.files = LocalFiles()
        self._tables: dict[str, LiveTable] = {}
        self._checkpoints = LogCheckpoints()

    def table(self, path: str) -> LiveTable:
        """The table at this path, loaded on first use."""
        if path not in self._tables:
            found = self._unread(path)
            found.load()
            self._tables[path] = found
        return self._tables[path]

    def look(self, path: str) -> Snapshot | None:
        """The newest snapshot of the table at this path. Raises as `LiveTable.look`."""
        table = self.table(path)
        table.look()
        return table.snapshot

    def _unread(self, path: str) -> LiveTable:
        return LiveTable(self.files, path, self.contract if path.endswith("/target") else None)

    def create_tables(self, contract: Contract, places: Places) -> None:
        """Create target, quarantine and ledger if they do not exist. Existing tables stay unchanged."""
        about = {"oncelake": 1, "kind": "created", "pipeline": contract.pipeline, "table": contract.table, "contract_hash": contract.hash}
        for definition in definitions(contract, places):
            table = self._unread(definition.path)
            if table.load() is None:
                refuse_unfit(replace(TableState(0).after(_creation(definition)), cluster_by=definition.cluster_by), definition.path)
                local_path(definition.path).mkdir(parents=True, exist_ok=True)
                put(self.files, table, json.dumps(about), Operation("CREATE TABLE", _created(definition), {}), _creation(definition))
                table.load()  # whoever created it
            self._tables[definition.path] = table

    def fence(self, log: DeltaLog, batch_commit: BatchCommit) -> Commit | None:
        """Commit no rows under a transaction id; None if another writer has this epoch or a later one."""
        self._tables.pop(log.table, None)  # a start reads the table as it is now
        return self.try_commit(log.table, lambda: batch_commit, lambda _: (NOTHING, ()))

    def commit_seek(self, log: DeltaLog, batch_commit: BatchCommit) -> Commit:
        """Commit the offsets at which an epoch starts. Raises RunStopped FENCED."""
        return self.commit(log, lambda: batch_commit, lambda _: (NOTHING, ()))

    def delete(self, log: DeltaLog, batch_commit: BatchCommit, condition: str) -> Commit | None:
        """Delete the rows that meet a condition; None if no row does. Raises RunStopped FENCED."""
        key = ("topic_id", "partition", "offset", "epoch", "batch")

        def decide(table: LiveTable) -> tuple[Operation, Sequence[Mapping[str, Any]]] | None:
            rows = self._matching(table, key, condition)
            if not rows.num_rows:
                return None
            operation = Operation("DELETE", {"predicate": "[]"}, {"numDeletedRows": rows.num_rows})
            return operation, self._rewritten(table, rows, lambda found, hit: found.filter(pa.array(~hit)))

        commit = self.try_commit(log.table, lambda: batch_commit, decide)
        state = self.table(log.table).state
        if commit is None and state is not None and state.transactions.get(batch_commit.app_id, -1) >= batch_commit.id.txn_version:
            raise writer.fenced(log, batch_commit)
        return commit

    def merge_ledger(
        self, places: Places, batch_commit: BatchCommit, rows: Sequence[Mapping[str, Any]], session: SparkSession | None = None
    ) -> None:
        """Insert the rows whose key the ledger lacks, and set `stood` of existing rows where `rows` has a value."""
        schema = to_arrow_schema(T.StructType(list(LEDGER_FIELDS)), timezone="UTC")
        given = pa.Table.from_pylist(list(rows), schema)

        def decide(table: LiveTable) -> tuple[Operation, Sequence[Mapping[str, Any]]] | None:
            epochs = [row["epoch"] for row in rows]
            there = self._matching(table, writer.LEDGER_KEY, f"epoch BETWEEN {min(epochs)} AND {max(epochs)}")
            known = held(given.select(writer.LEDGER_KEY), there)
            new, old = given.filter(pa.array(~known)), given.filter(pa.array(known)).filter(pc.field("stood").is_valid())
            actions = (
                self._rewritten(table, old.select(writer.LEDGER_KEY), lambda found, _: _with_stood(found, old)) if old.num_rows else []
            )
            if new.num_rows:
                actions.append(self._write(table, new, ()).addition())
            metrics = {"numTargetRowsInserted": new.num_rows, "numTargetRowsUpdated": old.num_rows}
            return (Operation("MERGE", {}, metrics), actions) if actions else None

        self.unfenced(places.ledger, batch_commit.to_json(), decide)

    def commit(self, log: DeltaLog, still: writer.Still, decide: Decide) -> Commit:
        """As `try_commit`, but raises RunStopped FENCED instead of returning None."""
        return writer.or_fenced(log, still, lambda again: self.try_commit(log.table, again, decide))

    def try_commit(self, path: str, still: writer.Still, decide: Decide) -> Commit | None:
        """Commit what `decide` makes of the newest snapshot, under the transaction id of `still`.

        None if a higher transaction id of ours is there, or `decide` finds nothing to commit.
        """
        table = self.table(path)
        for _ in range(LOOKS_MAX):
            batch_commit = still()
            table.look()
            assert table.state is not None, "a table without commits was refused by the look"
            if table.state.transactions.get(batch_commit.app_id, -1) >= batch_commit.id.txn_version:
                return None
            if (decided := decide(table)) is None:
                return None
            outcome = put(self.files, table, batch_commit, *decided)
            if isinstance(outcome, Committed):
                self._checkpoints.write_if_due(table)
                return outcome.commit
        raise _overrun(path)

    def unfenced(self, path: str, about: str, decide: Decide) -> None:
        """Commit what `decide` makes of the newest snapshot, without a transaction id: any process may repeat it."""
        self._tables.pop(path, None)  # whatever the table is now: nothing else depends on it
        table = self.table(path)
        for _ in range(LOOKS_MAX):
            table.look()
            if (decided := decide(table)) is None:
                return
            if isinstance(put(self.files, table, about, *decided), Committed):
                self._checkpoints.write_if_due(table)
                return
        raise _overrun(path)

    def finish(self) -> None:
        """At the end of a run that ends by itself: write checkpoints, for the next start and for readers. Raises nothing."""
        for table in self._tables.values():
            self._checkpoints.write_at_end(table)

    def _matching(self, table: LiveTable, key: Sequence[str], condition: str) -> pa.Table:
        columns = ", ".join(f"`{name}`" for name in key)
        found = DataFusion().stream(f"SELECT {columns} FROM {{rows}} WHERE {condition}", rows=At(table.path, table.version))
        batches = [pa.record_batch(each) for each in found]
        wanted = pa.schema([_schema(table).field(name) for name in key])
        return pa.Table.from_batches(batches).cast(wanted) if batches else wanted.empty_table()

    def _rewritten(self, table: LiveTable, rows: pa.Table, change: Callable[[pa.Table, np.ndarray], pa.Table]) -> list[Mapping[str, Any]]:
        """Write the files that hold one of `rows` (by its columns) again, changed; returns the actions."""
        now, schema = round(time.time() * 1000), _schema(table)
        actions: list[Mapping[str, Any]] = []
        for file in list(table.live.values()):
            found = read_file(str(local_path(table.path)), file.path, schema)
            hit = held(found.select(rows.column_names), rows)
            if not hit.any():
                continue
            actions.append(file.removal(now))
            if (left := change(found, hit)).num_rows:
                actions.append(self._write(table, left.cast(schema), tuple(file.least)).addition())
        return actions

    def _write(self, table: LiveTable, rows: pa.Table, statistics_of: Sequence[str]) -> StagedFile:
        folder = str(local_path(table.path))
        staged = write_file(folder, rows, statistics_of)
        sync(folder, [staged.path])
        return staged


def _schema(table: LiveTable) -> pa.Schema:
    assert table.state is not None, "the table exists"
    return to_arrow_schema(T.StructType.fromJson(read_json(table.state.schema)), timezone="UTC")


def _with_stood(found: pa.Table, changed: pa.Table) -> pa.Table:
    given = changed.select([*writer.LEDGER_KEY, "stood"]).rename_columns([*writer.LEDGER_KEY, "__stood"])
    joined = found.join(given, list(writer.LEDGER_KEY), join_type="left outer")
    stood = pc.coalesce(joined["__stood"], joined["stood"])
    return joined.set_column(joined.column_names.index("stood"), "stood", stood).select(found.column_names)


def _creation(table: TableDefinition) -> list[dict[str, Any]]:
    """Protocol and metadata of a new table, as actions."""
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}  # appendOnly and invariants, which NOT NULL needs
    if "timestamp_ntz" in T.StructType(list(table.fields)).simpleString():  # also inside of a column
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"]}
        protocol["writerFeatures"] = ["appendOnly", "invariants", "timestampNtz"]
    metadata: dict[str, Any] = {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}}
    metadata |= {"schemaString": T.StructType(list(table.fields)).json(), "partitionColumns": list(table.partition_by)}
    metadata |= {"configuration": table.properties, "createdTime": round(time.time() * 1000)}
    if table.comment:
        metadata["description"] = table.comment
    return [{"protocol": protocol}, {"metaData": metadata}]


def _created(table: TableDefinition) -> dict[str, str]:
    parameters = {"partitionBy": json.dumps(list(table.partition_by)), "properties": json.dumps(table.properties), "isManaged": "false"}
    return {"description": table.comment, **parameters} if table.comment else parameters


def _overrun(path: str) -> RunStopped:
    return RunStopped(
        "COMMIT_OUTRUN",
        f"another writer committed to {path} first, {LOOKS_MAX} times in a row. Nothing was written.",
        expected="a table on which other writers do not commit many times a second.",
        remedy="stop or slow down the other writer, and run again.",
    )
