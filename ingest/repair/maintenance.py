"""The maintenance of one table's Delta tables: retention of the quarantine, then compaction, log checkpoint and VACUUM of each.

After a crash between two steps the next maintenance does what is left. The direct writer's steps run beside a run of the table, also
beside one that commits meanwhile; for Delta in Spark the caller holds the table's lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ingest.delta.batch_commit import BatchCommit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import asked
from ingest.delta.expired_files import removable
from ingest.delta.log_errors import table_missing
from ingest.delta.stored_rows import QUARANTINE
from ingest.delta.table_upkeep import TableUpkeep
from ingest.ledger.projection import complete
from ingest.repair.file_sizes import FileSizes, file_sizes
from ingest.repair.retention import about, remove, retirable
from ingest.run import table_lock
from ingest.runtime import crash_points
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import files_of, is_local
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_S = 86_400.0
# Below it, a reader or a writer that takes longer than the retention can lose files under its hands (Delta's own limit).
RETENTION_MIN_S = 7 * DAY_S
# Delta in Spark writes a checkpoint every ten commits, a run with the direct writer every fifty to hundred.
COMMITS_MAX = 20


@dataclass(frozen=True)
class Settings:
    """What a maintenance may remove. `vacuum_s` None: as the table's property says, 7 days by default. `force` permits less than that.

    Raises InvalidInput RETENTION_SHORT.
    """

    vacuum_s: float | None = None
    keep_quarantine_s: float = 90 * DAY_S
    open_too: bool = False
    force: str = ""

    def __post_init__(self) -> None:
        if self.vacuum_s is not None and self.vacuum_s < RETENTION_MIN_S and not self.force.strip():
            raise InvalidInput(
                "RETENTION_SHORT",
                f"a VACUUM that keeps {self.vacuum_s / DAY_S:g} days.",
                expected="at least 7 days: a query or a batch that began before the VACUUM may still need the files; so does time travel.",
                remedy='keep 7d; or stop all readers and writers and give the reason: --force-retention "why".',
            )


@dataclass
class Tended:
    """The maintenance of one Delta table (`target`, `quarantine`, `ledger` or `quality`). A dry run counts what it would do.

    `vacuumed` files of `freed_bytes` were deleted; the size is known on a local disk only. `retired` records left the quarantine, and
    `cleaned` expired commits the log; of those that Delta in Spark removes, the number is not known.
    """

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    compacted: bool = False
    checkpointed: bool = False
    cleaned: int = 0
    retired: int = 0
    vacuumed: int = 0
    freed_bytes: int = 0
    seconds: float = 0.0

    @property
    def did_something(self) -> bool:
        """Whether anything was changed or deleted."""
        return self.compacted or self.checkpointed or bool(self.retired or self.vacuumed or self.cleaned)


@dataclass
class Maintained:
    """The maintenance of one table."""

    table: str
    dry_run: bool
    tables: list[Tended] = field(default_factory=list)


@dataclass(frozen=True)
class Maintenance:
    """One maintenance, by `upkeep`. Without one it is a dry run, for which a remote lake needs a `session`.

    `stop` ends it before its next step.
    """

    upkeep: TableUpkeep | None
    places: Places
    settings: Settings
    stop: Callable[[], bool] = lambda: False
    session: SparkSession | None = None

    def do(self) -> Maintained:
        """Do what is worth doing.

        Raises InvalidInput TABLE_MISSING and DIRECT_UNFIT, Unreadable, as `LiveTable.look`, and Spark's own errors.
        """
        done = Maintained(self.places.name, self.upkeep is None)
        if not self._log(self.places.target).exists():
            raise table_missing(self.places.name, self.places.target)
        if self.upkeep is not None:
            # What VACUUM and the log's retention may take away. A short retention is refused beside a run.
            complete(self.upkeep.writer, self.places, alone=bool(self.settings.force))
        # The quarantine first: compaction then merges what its retention has left, and the ledger's new file.
        for name in ("quarantine", "target", "ledger", "quality"):
            path = f"{self.places.root}/{name}"
            if not self.stop() and self._log(path).exists():
                done.tables.append(self._tend(name, path))
        return done

    def _tend(self, name: str, path: str) -> Tended:
        started = time.monotonic()
        before = self._sizes(path)
        tended = Tended(name, before.files, before.files, before.bytes, before.bytes)
        if name == "quarantine":
            tended.retired = self._retire()
        with self._alone(name):
            sizes = self._sizes(path) if tended.retired else before
            tended.compacted = sizes.worth_compacting and not self.stop()
            if self.upkeep is not None:
                if tended.compacted:
                    self.upkeep.compact(path, self._about(), self.stop)
                    crash_points.at("maintain_compacted", 0)
                if self._log(path).commits_after_checkpoint() > COMMITS_MAX:
                    self.upkeep.checkpoint(path)
                    tended.checkpointed = True
                tended.cleaned = self.upkeep.clean_log(path)
            if not self.stop():
                tended.vacuumed, tended.freed_bytes = self._vacuum(path)
        after = self._sizes(path)
        tended.files_after, tended.bytes_after = after.files, after.bytes
        if self.upkeep is None and tended.compacted:
            tended.files_after -= before.saved
        tended.seconds = round(time.monotonic() - started, 3)
        return tended

    def _retire(self) -> int:
        """Remove old settled records from the quarantine; returns how many."""
        before = datetime.now(UTC) - timedelta(seconds=self.settings.keep_quarantine_s)
        open_too = self.settings.open_too
        if not self._log(self.places.ledger).exists():
            return 0
        found = asked(self.places.lake, self._spark, lambda engine: retirable(engine, self.places, before, open_too=open_too))
        if self.upkeep is None:
            return int(found.num_rows)
        reason = self.settings.force or ""
        removed = remove(self.upkeep.writer, self.places, found, self.places.quarantine, QUARANTINE, "retention", reason)
        crash_points.at("maintain_deleted", 0)
        return removed

    def _vacuum(self, path: str) -> tuple[int, int]:
        """Delete files that only old versions need; returns their number and size."""
        if self.upkeep is not None:
            return self.upkeep.vacuum(path, self._about(), self.settings.vacuum_s, short=bool(self.settings.force))
        if not is_local(path):
            return 0, 0
        found = removable(path, self.settings.vacuum_s)
        return len(found.sizes), found.bytes

    def _sizes(self, path: str) -> FileSizes:
        return asked(self.places.lake, self._spark, lambda engine: file_sizes(engine, path))

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """The quality table has a lock of its own: a check appends to it beside a run."""
        if name != "quality":
            yield
            return
        with table_lock.alone(self._spark, self.places.lake, f"{self.places.root}/.quality"):
            yield

    @property
    def _spark(self) -> SparkSession | None:
        return self.session if self.upkeep is None else self.upkeep.writer.session

    def _log(self, path: str) -> DeltaLog:
        return DeltaLog(files_of(self.places.lake, self._spark), path)

    def _about(self) -> BatchCommit:
        return about(self.places, self.settings.force or "")
