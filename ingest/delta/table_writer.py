"""The statements of a start, behind one protocol: by Spark, or by this process itself (docs/decisions/direct-commits.md)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from delta.tables import DeltaTable
from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.contract.definition import Contract
from ingest.delta import writer
from ingest.delta.batch_commit import BatchCommit, Mark, Snapshot
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Spark, unescaped
from ingest.delta.posting import NOTHING, Key, Sums, Why, removals
from ingest.delta.stored_rows import TARGET, Columns, hashed_ids, sums_at
from ingest.runtime.files import files_of
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

    def delete(self, log: DeltaLog, batch_commit: BatchCommit, condition: str) -> Commit | None:
        """Delete the rows that meet a condition, under a transaction id; None if no row does. Raises RunStopped FENCED."""
        ...

    def overwrite(self, log: DeltaLog, source: str, still: writer.Still) -> Commit:
        """Replace all rows of a table by those of the table at `source`, under a transaction id. Raises RunStopped FENCED."""
        ...

    def append_ledger(
        self, places: Places, about: BatchCommit, rows: Sequence[Mapping[str, Any]], session: SparkSession | None = None
    ) -> None:
        """Append lines to the ledger. Inside a batch, Spark's writer uses the batch's own `session`."""
        ...

    def post(self, log: DeltaLog, batch_commit: BatchCommit) -> Commit:
        """Commit postings without rows, such as the offsets at which an epoch starts, under a transaction id. Raises RunStopped FENCED."""
        ...

    def mark_replayed(self, positions: pa.Table, places: Places, batch_commit: BatchCommit, by: str) -> None:
        """Set quarantined records that are rows now to `replayed`.

        `positions` has the columns source, partition, offset and at (the time). It needs no transaction id: repeating it changes nothing.
        """
        ...

    def set_state(self, places: Places, condition: str, state: str, by: str) -> None:
        """Set the `state` of the quarantined records that meet a condition (with the escapes of `delta_sql`). It removes none, so every
        balance still holds."""
        ...

    def remove(self, found: pa.Table, path: str, columns: Columns, about: BatchCommit, why: Why) -> int:
        """Delete these rows (`Columns.matched`), and post it; returns how many they were.

        The commit names columns only, never the values of a condition: Delta's log keeps it.
        """
        ...

    def blank_samples(self, quality: str, about: BatchCommit) -> None:
        """Remove the values of rows from all validation results: samples, unexpected and observed values, and texts of exceptions."""
        ...

    def vacuum(self, path: str, about: BatchCommit) -> None:
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

    def post(self, log: DeltaLog, batch_commit: BatchCommit) -> Commit:
        return writer.commit(self.session, log, lambda: batch_commit, lambda: writer.append_nothing(self.session, log.table))

    def delete(self, log: DeltaLog, batch_commit: BatchCommit, condition: str) -> Commit | None:
        commit = writer.try_commit(self.session, log, lambda: batch_commit, lambda: self._table(log.table).delete(condition))
        if commit is None and writer.newer(log, batch_commit) is not None:
            raise writer.fenced(log, batch_commit)
        return commit  # without rows to delete there is no commit, which therefore fences nobody

    def overwrite(self, log: DeltaLog, source: str, still: writer.Still) -> Commit:
        return writer.overwrite(self.session.read.format("delta").load(source), log, still)

    def append_ledger(
        self, places: Places, about: BatchCommit, rows: Sequence[Mapping[str, Any]], session: SparkSession | None = None
    ) -> None:
        writer.append_ledger(session or self.session, places.ledger, about, rows)

    def mark_replayed(self, positions: pa.Table, places: Places, batch_commit: BatchCommit, by: str) -> None:
        condition = "t.source = s.source AND t.`partition` = s.`partition` AND t.`offset` = s.`offset` AND t.state <> 'replayed'"
        changed: dict[str, str | Column] = {"state": F.lit("replayed"), "state_changed_at": F.col("s.at"), "state_by": F.lit(by)}
        rows = self.session.createDataFrame(positions).alias("s")

        def merge() -> None:
            self._table(places.quarantine).alias("t").merge(rows, condition).whenMatchedUpdate(set=changed).execute()

        writer.unfenced(self.session, batch_commit, merge)

    def set_state(self, places: Places, condition: str, state: str, by: str) -> None:
        changed: dict[str, str | Column] = {"state": F.lit(state), "state_changed_at": F.current_timestamp(), "state_by": F.lit(by)}
        about = BatchCommit(Mark(), places.pipeline, places.table)
        writer.unfenced(self.session, about, lambda: self._table(places.quarantine).update(unescaped(condition), changed))

    def remove(self, found: pa.Table, path: str, columns: Columns, about: BatchCommit, why: Why) -> int:
        log = DeltaLog(files_of(path, self.session), path)
        state = log.state()
        assert state is not None, "the caller has read the table"
        ids, engine = hashed_ids(state) if columns is TARGET else (), Spark(self.session)
        sums = sums_at(engine, At(path, state.version), columns, ids, only=found)
        if not sums:
            return 0
        # A MERGE, whose condition names columns only: Delta's log keeps the condition of a DELETE.
        matched = columns.matched(found)
        condition = " AND ".join(f"t.`{name}` = s.{to}" for to, name in matched.items())
        rows = self.session.createDataFrame(found.select([*matched])).alias("s")

        def merge() -> None:
            self._table(path).alias("t").merge(rows, condition).whenMatchedDelete().execute()

        def posting(gone: Mapping[Key, Sums]) -> BatchCommit:
            return replace(about, writer=str(uuid.uuid4()), postings=removals(gone, why, target=columns is TARGET))

        statement = posting(sums)
        writer.unfenced(self.session, statement, merge)
        own = next((each for each in log.since(state.version) if each.batch_commit is not None and each.batch_commit == statement), None)
        if own is None:  # somebody else has removed all of them
            return 0
        if own.version > state.version + 1:  # without a lock, another process may have removed some of them before this statement
            before, after = (sums_at(engine, At(path, own.version - back), columns, ids, only=found) for back in (1, 0))
            gone = {key: each - after.get(key, NOTHING) for key, each in before.items()}
            if wrong := {key: each for key in gone | sums if (each := gone.get(key, NOTHING) - sums.get(key, NOTHING))}:
                writer.correct(self.session, path, posting(wrong))
            sums = gone
        return sum(each.rows for each in sums.values())

    def blank_samples(self, quality: str, about: BatchCommit) -> None:
        none: dict[str, str | Column] = {name: F.lit(None).cast("string") for name in writer.VALUES_OF_ROWS}
        none["samples"] = F.lit(writer.NO_SAMPLES)
        writer.unfenced(self.session, about, lambda: self._table(quality).update(writer.HAS_VALUES, none))

    def vacuum(self, path: str, about: BatchCommit) -> None:
        writer.vacuum(self.session, path, about, 0.0, short=True)

    def _table(self, path: str) -> DeltaTable:
        return DeltaTable.forPath(self.session, path)
