"""The maintenance of one table's Delta tables: retention of the quarantine, then compaction, log checkpoint and VACUUM of each.

Each step is one Delta statement. After a crash between two steps the next maintenance does what is left. The caller holds the table's lock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ingest.delta import writer as commits
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Unreadable, asked
from ingest.delta.log_errors import table_missing
from ingest.repair.file_sizes import LARGE_BYTES, SMALL_BYTES, FileSizes, file_sizes, removable
from ingest.repair.retention import metadata, remove, retire
from ingest.runtime import crash_points
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import files_of, is_local
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_S = 86_400.0
# Below it, a reader or a writer that takes longer than the retention can lose files under its hands (Delta's own limit).
RETENTION_MIN_S = 7 * DAY_S
# Delta in Spark writes a checkpoint every ten commits, a run with the direct writer every hundred. Spark's also removes expired commits.
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

    `vacuumed` files of `freed_bytes` were deleted; the size is known on a local disk only. `retired` records left the quarantine.
    """

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    compacted: bool = False
    checkpointed: bool = False
    retired: int = 0
    vacuumed: int = 0
    freed_bytes: int = 0
    seconds: float = 0.0

    @property
    def did_something(self) -> bool:
        """Whether anything was changed or deleted."""
        return self.compacted or self.checkpointed or bool(self.retired or self.vacuumed)


@dataclass
class Maintained:
    """The maintenance of one table. `by` is `this command` or the run that did it."""

    table: str
    dry_run: bool
    by: str = "this command"
    tables: list[Tended] = field(default_factory=list)


@dataclass(frozen=True)
class Maintenance:
    """One maintenance. Without a session it is a dry run on a local disk. `stop` ends it before its next step."""

    session: SparkSession | None
    places: Places
    settings: Settings
    dry_run: bool = False
    stop: Callable[[], bool] = lambda: False

    def do(self) -> Maintained:
        """Do what is worth doing. Raises InvalidInput TABLE_MISSING, Unreadable, and Spark's own errors."""
        done = Maintained(self.places.name, self.dry_run)
        if not self._log(self.places.target).exists():
            raise table_missing(self.places.name, self.places.target)
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
            if sizes.worth_compacting and not self.stop():
                tended.compacted = True
                if not self._only_looks:
                    commits.compact(self._spark, path, self._about(), SMALL_BYTES, LARGE_BYTES)
                    crash_points.at("maintain_compacted", 0)
            if not self._only_looks:
                tended.checkpointed = self._checkpoint(path)
            if not self.stop():
                tended.vacuumed, tended.freed_bytes = self._vacuum(path)
        after = self._sizes(path)
        tended.files_after, tended.bytes_after = after.files, after.bytes
        if self._only_looks and tended.compacted:
            tended.files_after -= before.saved
        tended.seconds = round(time.monotonic() - started, 3)
        return tended

    def _retire(self) -> int:
        """Remove old settled records from the quarantine; returns how many."""
        now = datetime.now(UTC)
        before = now - timedelta(seconds=self.settings.keep_quarantine_s)
        open_too = self.settings.open_too
        if not self._log(self.places.ledger).exists():
            return 0
        found = asked(self.places.lake, self.session, lambda engine: retire(engine, self.places, before, now, open_too=open_too))
        if found is not None and not self._only_looks:
            return remove(self._spark, self.places, found, self._metadata())
        return found.records if found is not None else 0

    def _checkpoint(self, path: str) -> bool:
        """Write a checkpoint of the log if many commits follow the last one."""
        if self._log(path).commits_after_checkpoint() <= COMMITS_MAX:
            return False
        commits.checkpoint(self._spark, path)
        return True

    def _vacuum(self, path: str) -> tuple[int, int]:
        """Delete files that only old versions need; returns their number and size. A local disk is searched without Spark first."""
        hours = None if self.settings.vacuum_s is None else self.settings.vacuum_s / 3600
        found: dict[str, int] = {}
        if is_local(self.places.lake):
            try:
                found = removable(At(path), hours)
            except Unreadable:  # by deltalake; Spark may read it
                if self._only_looks:
                    raise
            else:
                if not found or self._only_looks:
                    return len(found), sum(found.values())
        elif self._only_looks:
            return 0, 0
        log = self._log(path)
        before = log.newest()
        commits.vacuum(self._spark, path, self._about(), hours, short=bool(self.settings.force))
        ends = [commit for commit in log.since(before) if commit.operation == "VACUUM END"]
        number = int(ends[-1].metrics.get("numDeletedFiles", 0)) if ends else len(found)
        return number, sum(found.values()) if number else 0

    def _sizes(self, path: str) -> FileSizes:
        return asked(self.places.lake, self.session, lambda engine: file_sizes(engine, path))

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """The quality table has a lock of its own: a check appends to it beside a run."""
        if name != "quality" or self._only_looks:
            yield
            return
        from ingest.run import table_lock

        with table_lock.alone(self._spark, self.places.lake, f"{self.places.root}/.quality"):
            yield

    @property
    def _only_looks(self) -> bool:
        return self.dry_run or self.session is None

    @property
    def _spark(self) -> SparkSession:
        assert self.session is not None, "only a dry run has no session"
        return self.session

    def _log(self, path: str) -> DeltaLog:
        return DeltaLog(files_of(self.places.lake, self.session), path)

    def _metadata(self) -> dict[str, Any]:
        more = {"reason": self.settings.force} if self.settings.force else {}
        return {**metadata(self.places), **more}

    def _about(self) -> str:
        return json.dumps(self._metadata())
