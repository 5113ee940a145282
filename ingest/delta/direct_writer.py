"""The direct writer: statements on Delta tables that this process writes itself, without Spark and its JVM (I8).

Each statement looks at the table, decides on that snapshot, and commits at the version after it, or looks again (`put`). Tables are small
here except the target, to which batches only add files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from ingest.contract.definition import Contract
from ingest.delta import contract_change, erased_rows, metadata_change, quarantine_rows, writer
from ingest.delta.batch_commit import Alter, BatchCommit, Check, Create, Mark, Snapshot
from ingest.delta.commit import Commit
from ingest.delta.creation import create_operation, creation
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import Unreadable
from ingest.delta.direct_fit import refuse_unfit
from ingest.delta.id_index import IdIndex
from ingest.delta.live_table import LiveTable
from ingest.delta.log_checkpoint import LogCheckpoints
from ingest.delta.posting import Why
from ingest.delta.put import Committed, Operation, put
from ingest.delta.stored_rows import Columns
from ingest.delta.table_definitions import TableDefinition, definitions, quality_definition
from ingest.delta.table_rows import linked
from ingest.delta.table_state import TableState
from ingest.runtime.errors import Bug, IngestError, RunStopped
from ingest.runtime.files import LocalFiles, local_path
from ingest.runtime.places import Places

# Another commit that comes first costs a look and the decision. So many in a row are not chance.
LOOKS_MAX = 20
NOTHING = Operation("WRITE", {"mode": "Append", "partitionBy": "[]"}, {"numFiles": 0, "numOutputRows": 0, "numOutputBytes": 0})

Decide = Callable[[LiveTable], tuple[Operation, Sequence[Mapping[str, Any]]] | None]
"""Actions for the snapshot that was just looked at; None if there is nothing to commit."""


class DirectWriter:
    """The statements of starts and batches, with the tables as they were last looked at.

    With a `contract`, a change of the target during the run is judged as a start judges it. `ids` is the index of the target's event ids.
    """

    session: SparkSession | None = None

    def __init__(self, contract: Contract | None = None, checkpoints: LogCheckpoints | None = None, ids: IdIndex | None = None) -> None:
        self.contract = contract
        self.ids = ids
        self.files = LocalFiles()
        self._tables: dict[str, LiveTable] = {}
        self._checkpoints = checkpoints or LogCheckpoints()

    def table(self, path: str) -> LiveTable:
        """The table at this path, loaded on first use."""
        if path not in self._tables:
            found = self._unread(path)
            found.load()
            self._tables[path] = found
        return self._tables[path]

    def looked_at(self, path: str) -> LiveTable:
        """The table at this path, with all commits that are there now. Raises as `LiveTable.look`."""
        table = self.table(path)
        table.look()
        return table

    def look(self, path: str) -> Snapshot | None:
        """The newest snapshot of the table at this path. Raises as `LiveTable.look`."""
        return self.looked_at(path).snapshot

    def _unread(self, path: str) -> LiveTable:
        if not path.endswith("/target"):
            return LiveTable(self.files, path)
        table = LiveTable(self.files, path, self.contract)
        table.ids = self.ids
        return table

    def create_tables(self, contract: Contract, places: Places) -> None:
        """Create target, quarantine and ledger if they do not exist. Existing tables stay unchanged."""
        for definition in definitions(contract, places):
            self._create(contract, definition)

    def _create(self, contract: Contract, definition: TableDefinition) -> None:
        table = self._unread(definition.path)
        if table.load() is None:
            actions = creation(definition)
            refuse_unfit(TableState(0).after(actions), definition.path)
            local_path(definition.path).mkdir(parents=True, exist_ok=True)
            put(self.files, table, writer.about(Create(), contract), create_operation(definition), actions)
            table.load()  # whoever created it
        self._tables[definition.path] = table

    def fence(self, log: DeltaLog, batch_commit: BatchCommit) -> Commit | None:
        """Commit no rows under a transaction id; None if another writer has this epoch or a later one."""
        self._tables.pop(log.table, None)  # a start reads the table as it is now
        return self.try_commit(log.table, lambda: batch_commit, lambda _: (NOTHING, ()))

    def delete(self, log: DeltaLog, batch_commit: BatchCommit, condition: str) -> Commit | None:
        """Delete the quarantined records that meet a condition; None if none does. Raises RunStopped FENCED."""
        commit = self.try_commit(log.table, lambda: batch_commit, partial(quarantine_rows.without, condition=condition))
        state = self.table(log.table).state
        if commit is None and state is not None and state.transactions.get(batch_commit.app_id, -1) >= batch_commit.id.txn_version:
            raise writer.fenced(log, batch_commit)
        return commit

    def overwrite(self, log: DeltaLog, source: str, still: writer.Still) -> Commit:
        """Replace all rows of a table by those of the table at `source`, whose files become this table's too. Raises RunStopped FENCED."""
        of = LiveTable(self.files, source)
        of.load()
        new = linked(self.table(log.table), of)

        def decide(table: LiveTable) -> tuple[Operation, Sequence[Mapping[str, Any]]]:
            # A repetition after a crash may find its own files. No commit may remove and add the same one.
            names, at_ms = {file.path for file in new}, round(time.time() * 1000)
            actions = [file.removal(at_ms) for path, file in table.live.items() if path not in names]
            metrics = {"numFiles": len(new), "numOutputRows": sum(file.rows for file in new), "numRemovedFiles": len(actions)}
            metrics["numOutputBytes"] = sum(file.size for file in new)
            actions += [file.addition() for file in new if file.path not in table.live]
            return Operation("WRITE", {"mode": "Overwrite", "partitionBy": "[]"}, metrics), actions

        return self.commit(log, still, decide)

    def append_ledger(
        self, places: Places, about: BatchCommit, rows: Sequence[Mapping[str, Any]], session: SparkSession | None = None
    ) -> None:
        """Append lines to the ledger."""
        self.unfenced(places.ledger, about, partial(erased_rows.appended, rows=rows))

    def append_quality(self, contract: Contract, places: Places, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append validation results (the quality table's columns). Creates the table, or adds the columns that an older one lacks."""
        definition, path = quality_definition(places), places.quality
        self._create(contract, definition)
        self._unfenced(path, writer.about(Alter(), contract), partial(metadata_change.with_columns, wanted=definition.fields))
        self._unfenced(path, writer.about(Check(), contract), partial(erased_rows.appended, rows=rows))

    def post(self, log: DeltaLog, batch_commit: BatchCommit) -> Commit:
        """Commit postings without rows. Raises RunStopped FENCED."""
        return self.commit(log, lambda: batch_commit, lambda _: (NOTHING, ()))

    def merge_quarantine(self, log: DeltaLog, still: writer.Still, rows: pa.Table, *, reopen: bool) -> Commit:
        """Insert the records of `rows` (the quarantine's columns) whose position the quarantine lacks. Raises RunStopped FENCED.

        `reopen`: these offsets were read before. A record that was `replayed` as a row, and is refused this time, becomes open again. There
        is a commit also if nothing is new.
        """
        return self.commit(log, still, lambda table: quarantine_rows.merged(table, rows, reopen=reopen))

    def mark_replayed(self, positions: pa.Table, places: Places, batch_commit: BatchCommit, by: str) -> None:
        """Set the quarantined records at `positions` (source, partition, offset and at, the time) to `replayed`."""
        decide = partial(quarantine_rows.marked_replayed, positions=positions, by=by)
        self._unfenced(places.quarantine, batch_commit, decide)

    def alter(self, contract: Contract, places: Places) -> None:
        """Make the target match its contract, in one commit. Raises InvalidInput DIRECT_UNFIT for changes that Spark has to make."""
        path = places.target

        def decide(table: LiveTable) -> tuple[Operation, Sequence[Mapping[str, Any]]] | None:
            assert table.state is not None, "the look refuses a table without commits"
            contract_change.refuse_impossible(contract, path, contract_change.changes(contract, table.state))
            return metadata_change.altered(contract, table.state, path)

        self._tables[path] = LiveTable(self.files, path)  # without the contract, which does not match yet
        self._tables[path].load()
        try:
            self._unfenced(path, writer.about(Alter(), contract), decide)
        finally:
            del self._tables[path]

    def set_state(self, places: Places, condition: str, state: str, by: str) -> None:
        """Set the `state` of the quarantined records that meet a condition."""
        decide = partial(quarantine_rows.with_state, condition=condition, state=state, at=datetime.now(UTC), by=by)
        self.unfenced(places.quarantine, BatchCommit(Mark(), places.pipeline, places.table), decide)

    def remove(self, found: pa.Table, path: str, columns: Columns, about: BatchCommit, why: Why) -> int:
        """Delete these rows (`Columns.matched`), and post it; returns how many they were."""
        commit = self.unfenced(path, about, partial(erased_rows.without, found=found, columns=columns, why=why))
        return commit.deleted_rows if commit is not None else 0

    def blank_samples(self, quality: str, about: BatchCommit) -> None:
        """Remove the values of rows from all validation results."""
        self.unfenced(quality, about, erased_rows.without_values)

    def vacuum(self, path: str, about: BatchCommit) -> None:
        """Delete all files that the newest version does not need."""
        state = self.looked_at(path).state
        assert state is not None, "the look refuses a table without commits"
        there = erased_rows.data_files(path, state.partition_by)
        # After the listing: a file that another engine commits in between is needed.
        self.delete_files(path, about, erased_rows.unneeded(self.looked_at(path), there))

    def delete_files(self, path: str, about: BatchCommit, paths: Sequence[str], **metrics: int) -> None:
        """Delete these files, between two commits that say so; `metrics` says more of them."""
        begun = Operation("VACUUM START", {}, {"numFilesToDelete": len(paths), **metrics})
        done = Operation("VACUUM END", {"status": "COMPLETED"}, {"numDeletedFiles": len(paths)})
        self.unfenced(path, about, lambda _: (begun, ()))
        erased_rows.unlink(paths)
        self.unfenced(path, about, lambda _: (done, ()))

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
            if table.look():
                continue  # `still` has judged an older snapshot
            assert table.state is not None, "a table without commits was refused by the look"
            if table.state.transactions.get(batch_commit.app_id, -1) >= batch_commit.id.txn_version:
                return None
            if (decided := decide(table)) is None:
                return None
            _refuse_unpartitioned(table, decided[1])
            outcome = put(self.files, table, batch_commit, *decided)
            if isinstance(outcome, Committed):
                self._checkpoints.write_if_due(table)
                return outcome.commit
        raise _overrun(path)

    def unfenced(self, path: str, about: BatchCommit, decide: Decide) -> Commit | None:
        """Commit what `decide` makes of the newest snapshot, without a transaction id: any process may repeat it. None if there is nothing.

        The table may have been put back meanwhile: nothing else depends on it.
        """
        try:
            self.looked_at(path)
        except RunStopped:
            self._tables.pop(path)
        return self._unfenced(path, about, decide)

    def _unfenced(self, path: str, about: BatchCommit, decide: Decide) -> Commit | None:
        table = self.table(path)
        if table.state is None:
            raise Unreadable(f"{path} is no Delta table: it was dropped or moved away")
        for _ in range(LOOKS_MAX):
            table.look()
            if (decided := decide(table)) is None:
                return None
            _refuse_unpartitioned(table, decided[1])
            outcome = put(self.files, table, about, *decided)
            if isinstance(outcome, Committed):
                self._checkpoints.write_if_due(table)
                return outcome.commit
        raise _overrun(path)

    def checkpoint_if_due(self, path: str) -> None:
        """Write a checkpoint of the table's log, if the newest is too far behind. Raises nothing."""
        self._checkpoints.write_if_due(self.table(path))

    def tidy_ids(self, path: str) -> None:
        """Merge the segments of the table's index, and remove those of files that are gone. Raises as `LiveTable.look`."""
        if self.ids is not None and path.endswith("/target"):
            with suppress(OSError):  # it is a cache
                self.ids.tidy(self.looked_at(path))

    def finish(self) -> None:
        """At the end of a run that ends by itself: write checkpoints, for the next start and for readers. Raises nothing."""
        for path, table in self._tables.items():
            self._checkpoints.write_at_end(table)
            with suppress(IngestError):
                self.tidy_ids(path)  # looks: the upkeep may have committed, and has made the segments of files that are not known here


def _refuse_unpartitioned(table: LiveTable, actions: Sequence[Mapping[str, Any]]) -> None:
    """Raises Bug for a file without the partition values of the table: readers would take NULL for them, or fail."""
    assert table.state is not None, "the table exists"
    for file in (action["add"] for action in actions if "add" in action):
        if {*file["partitionValues"]} != {*table.state.partition_by}:
            raise Bug(
                "PARTITIONS_MISSING",
                f"the file {file['path']} of {table.path} has the partition values {sorted(file['partitionValues'])}.",
                expected=f"those of the table: {sorted(table.state.partition_by)}.",
            )


def _overrun(path: str) -> RunStopped:
    return RunStopped(
        "COMMIT_OUTRUN",
        f"another writer committed to {path} first, {LOOKS_MAX} times in a row. Nothing was written.",
        expected="a table on which other writers do not commit many times a second.",
        remedy="stop or slow down the other writer, and run again.",
    )
