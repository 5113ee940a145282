"""The statements of a start, behind one protocol: by Spark, or by this process itself (docs/decisions/direct-commits.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from delta.tables import DeltaTable
from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.contract.definition import Contract
from ingest.delta import writer
from ingest.delta.batch_commit import BatchCommit, Snapshot
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import unescaped
from ingest.delta.stored_rows import Columns
from ingest.runtime.places import Places

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class TableWriter(Protocol):
    """Creates, fences and mends the tables of one contract. `session` is None for a writer that needs no Spark."""

    @property
    def session(self) -> SparkSession | None: ...

    def look(self, path: str) -> Snapshot | None:
        """The newest snapshot of a table, if this writer keeps it and checks each commit since the last look; else None.

        Raises as `LiveTable.look`.
        """
        ...

    def create_tables(self, contract: Contract, places: Places) -> None:
        """Create target, quarantine and ledger if they do not exist. Existing tables stay unchanged."""
        ...

    def fence(self, log: DeltaLog, batch_commit: BatchCommit) -> Commit | None:
        """Commit no rows under a transaction id: every statement with an older one fails from then on.

        None if another writer has this epoch or a later one. The caller then reads the tables again and takes a higher epoch.
        """
        ...

    def commit_seek(self, log: DeltaLog, batch_commit: BatchCommit) -> Commit:
        """Commit the offsets at which an epoch starts, without adding rows. Raises RunStopped FENCED."""
        ...

    def delete(self, log: DeltaLog, batch_commit: BatchCommit, condition: str) -> Commit | None:
        """Delete the rows that meet a condition, under a transaction id; None if no row does. Raises RunStopped FENCED."""
        ...

    def overwrite(self, log: DeltaLog, source: str, still: writer.Still) -> Commit:
        """Replace all rows of a table by those of the table at `source`, under a transaction id. Raises RunStopped FENCED."""
        ...

    def merge_ledger(
        self, places: Places, batch_commit: BatchCommit, rows: Sequence[Mapping[str, Any]], session: SparkSession | None = None
    ) -> None:
        """Insert the rows whose key the ledger lacks, and set `stood` of existing rows where `rows` has a value.

        Inside a batch, Spark's writer uses the batch's own `session`.
        """
        ...

    def mark_replayed(self, positions: pa.Table, places: Places, batch_commit: BatchCommit, by: str) -> None:
        """Set quarantined records that are rows now to `replayed`.

        `positions` has the columns topic_id, partition, offset and at (the time). It needs no transaction id: repeating it changes nothing.
        """
        ...

    def set_state(self, places: Places, condition: str, state: str, by: str) -> None:
        """Set the `state` of the quarantined records that meet a condition (with the escapes of `delta_sql`). It removes none, so every
        balance still holds."""
        ...

    def merge_retired(self, places: Places, metadata: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert ledger rows of the kinds `retention` and `erased`, or replace those with the same key."""
        ...

    def delete_positions(self, found: pa.Table, path: str, columns: Columns, metadata: str) -> None:
        """Delete the rows at these positions (columns e, b, p, o), after `merge_retired` has stored how many they are.

        The commit names columns only, never the values of a condition: Delta's log keeps it.
        """
        ...

    def blank_samples(self, quality: str, metadata: str) -> None:
        """Remove the values of rows from all validation results: samples, unexpected and observed values, and texts of exceptions."""
        ...

    def vacuum(self, path: str, metadata: str) -> None:
        """Delete all files that the newest version does not need. Nobody else may read or write the table."""
        ...


class SparkWriter:
    """Lets Delta in Spark write. Statements without a transaction id may be repeated: that changes nothing."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def look(self, path: str) -> Snapshot | None:
        return None

    def create_tables(self, contract: Contract, places: Places) -> None:
        writer.create_tables(self.session, contract, places)

    def fence(self, log: DeltaLog, batch_commit: BatchCommit) -> Commit | None:
        return writer.fence(self.session, log, batch_commit)

    def commit_seek(self, log: DeltaLog, batch_commit: BatchCommit) -> Commit:
        return writer.commit(self.session, log, lambda: batch_commit, lambda: writer.append_nothing(self.session, log.table))

    def delete(self, log: DeltaLog, batch_commit: BatchCommit, condition: str) -> Commit | None:
        commit = writer.try_commit(self.session, log, lambda: batch_commit, lambda: self._table(log.table).delete(condition))
        if commit is None and writer.newer(log, batch_commit) is not None:
            raise writer.fenced(log, batch_commit)
        return commit  # without rows to delete there is no commit, which therefore fences nobody

    def overwrite(self, log: DeltaLog, source: str, still: writer.Still) -> Commit:
        return writer.overwrite(self.session.read.format("delta").load(source), log, still)

    def merge_ledger(
        self, places: Places, batch_commit: BatchCommit, rows: Sequence[Mapping[str, Any]], session: SparkSession | None = None
    ) -> None:
        writer.merge_ledger(session or self.session, places.ledger, batch_commit, rows)

    def mark_replayed(self, positions: pa.Table, places: Places, batch_commit: BatchCommit, by: str) -> None:
        condition = "t.topic_id = s.topic_id AND t.`partition` = s.`partition` AND t.`offset` = s.`offset` AND t.state <> 'replayed'"
        changed: dict[str, str | Column] = {"state": F.lit("replayed"), "state_changed_at": F.col("s.at"), "state_by": F.lit(by)}
        rows = self.session.createDataFrame(positions).alias("s")

        def merge() -> None:
            self._table(places.quarantine).alias("t").merge(rows, condition).whenMatchedUpdate(set=changed).execute()

        writer.unfenced(self.session, batch_commit.to_json(), merge)

    def set_state(self, places: Places, condition: str, state: str, by: str) -> None:
        changed: dict[str, str | Column] = {"state": F.lit(state), "state_changed_at": F.current_timestamp(), "state_by": F.lit(by)}
        about = json.dumps(writer.state_metadata(places))
        writer.unfenced(self.session, about, lambda: self._table(places.quarantine).update(unescaped(condition), changed))

    def merge_retired(self, places: Places, metadata: str, rows: Sequence[Mapping[str, Any]]) -> None:
        def merge() -> None:
            writer.merge_by_key(self.session, places.ledger, rows).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

        writer.unfenced(self.session, metadata, merge)

    def delete_positions(self, found: pa.Table, path: str, columns: Columns, metadata: str) -> None:
        # A MERGE, whose condition names columns only: Delta's log keeps the condition of a DELETE.
        names = {"e": columns.epoch, "b": columns.batch, "p": columns.partition, "o": columns.offset}
        condition = " AND ".join(f"t.`{name}` = s.`{to}`" for to, name in names.items())
        rows = self.session.createDataFrame(found.select([*names])).alias("s")

        def merge() -> None:
            self._table(path).alias("t").merge(rows, condition).whenMatchedDelete().execute()

        writer.unfenced(self.session, metadata, merge)

    def blank_samples(self, quality: str, metadata: str) -> None:
        none: dict[str, str | Column] = {name: F.lit(None).cast("string") for name in writer.VALUES_OF_ROWS}
        none["samples"] = F.lit(writer.NO_SAMPLES)
        writer.unfenced(self.session, metadata, lambda: self._table(quality).update(writer.HAS_VALUES, none))

    def vacuum(self, path: str, metadata: str) -> None:
        writer.vacuum(self.session, path, metadata, 0.0, short=True)

    def _table(self, path: str) -> DeltaTable:
        return DeltaTable.forPath(self.session, path)
