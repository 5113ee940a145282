"""The statements of a maintenance, behind one protocol: by this process itself, or by Delta in Spark. They change no row, except that
settled records leave the quarantine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ingest.delta import expired_files, writer
from ingest.delta.batch_commit import BatchCommit
from ingest.delta.compaction import compact
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import Unreadable
from ingest.delta.direct_fit import unfit
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.expired_files import Expired
from ingest.delta.live_table import LiveTable
from ingest.delta.log_checkpoint import OTHER_FORM, write_checkpoint
from ingest.delta.log_cleanup import clean
from ingest.delta.merge_groups import LARGE_BYTES, SMALL_BYTES, whole
from ingest.delta.table_writer import SparkWriter, TableWriter
from ingest.runtime.files import files_of, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableUpkeep(Protocol):
    """Maintains the tables of one lake."""

    @property
    def writer(self) -> TableWriter:
        """Who writes."""
        ...

    def compact(self, path: str, about: BatchCommit, stop: Callable[[], bool]) -> None:
        """Merge the small files of a table; a clustered table is clustered."""
        ...

    def checkpoint(self, path: str) -> None:
        """Write a checkpoint of the table's log."""
        ...

    def clean_log(self, path: str) -> int:
        """Remove expired commits of the table's log; returns how many, as far as this is known."""
        ...

    def vacuum(self, path: str, about: BatchCommit, kept_s: float | None, *, short: bool) -> tuple[int, int]:
        """Delete the files that no version of the last `kept_s` needs (None: of the time that the table's property names, or 7 days).

        Returns their number and size. `short` permits less than 7 days.
        """
        ...


class DirectUpkeep:
    """By this process. Raises InvalidInput DIRECT_UNFIT for a table that needs Delta in Spark."""

    def __init__(self, writer: DirectWriter) -> None:
        self.writer = writer

    def compact(self, path: str, about: BatchCommit, stop: Callable[[], bool]) -> None:
        state = self.writer.looked_at(path).state
        if state is not None and state.cluster_by:
            raise unfit(path, "is clustered, and only Delta in Spark clusters")
        compact(self.writer, path, about, whole, stop)

    def checkpoint(self, path: str) -> None:
        write_checkpoint(path, self._with_known_checkpoints(path).version)

    def clean_log(self, path: str) -> int:
        return clean(self.writer, self._with_known_checkpoints(path).path)

    def vacuum(self, path: str, about: BatchCommit, kept_s: float | None, *, short: bool) -> tuple[int, int]:
        found = expired_files.expired(self.writer, self._with_known_checkpoints(path).path, kept_s)
        if found.sizes:
            self.writer.delete_files(path, about, [*found.sizes], sizeOfDataToDelete=found.bytes)
        return len(found.sizes), found.bytes

    def _with_known_checkpoints(self, path: str) -> LiveTable:
        table = self.writer.looked_at(path)
        if table.state is not None and OTHER_FORM in table.state.features:
            raise unfit(path, f"has the Delta feature {OTHER_FORM}, whose checkpoints Delta in Spark writes")
        return table


class SparkUpkeep:
    """By Delta in Spark."""

    def __init__(self, session: SparkSession) -> None:
        self.writer = SparkWriter(session)

    def compact(self, path: str, about: BatchCommit, stop: Callable[[], bool]) -> None:
        writer.compact(self.writer.session, path, about, SMALL_BYTES, LARGE_BYTES)

    def checkpoint(self, path: str) -> None:
        writer.checkpoint(self.writer.session, path)

    def clean_log(self, path: str) -> int:
        return 0  # Delta in Spark does it behind its checkpoints, and tells nobody

    def vacuum(self, path: str, about: BatchCommit, kept_s: float | None, *, short: bool) -> tuple[int, int]:
        session, found = self.writer.session, Expired({})
        if is_local(path):
            try:
                found = expired_files.removable(path, kept_s)  # without Spark first
            except Unreadable:  # by deltalake; Spark may read it
                pass
            else:
                if not found.sizes:
                    return 0, 0
        log = DeltaLog(files_of(path, session), path)
        before = log.newest()
        writer.vacuum(session, path, about, None if kept_s is None else kept_s / 3600, short=short)
        ends = [commit for commit in log.since(before) if commit.operation == "VACUUM END"]
        number = int(ends[-1].metrics.get("numDeletedFiles", 0)) if ends else len(found.sizes)
        return number, found.bytes if number else 0
