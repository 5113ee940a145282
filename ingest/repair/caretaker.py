"""Upkeep by a run, of its own tables: compaction beside the batches, and a whole maintenance every so often if asked (--maintain-every).

What the direct writer does runs beside the batches, in one thread for all tables of a run. Delta in Spark works between two batches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ingest.delta.compaction import compact
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.id_index import IdIndex
from ingest.delta.log_checkpoint import BEHIND_MAX, LogCheckpoints
from ingest.delta.merge_groups import tiered
from ingest.delta.table_upkeep import DirectUpkeep, SparkUpkeep
from ingest.repair.maintenance import Maintained, Maintenance, Settings
from ingest.repair.retention import about
from ingest.runtime.errors import InvalidInput
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Twenty batches of a run that commits twice a second take longer, so no look of this run finds more than one group of a tier.
COMPACT_EVERY_S = 5.0
# After an error that may pass, such as a full disk, or a ledger that somebody has put back: the next look reads it anew.
AGAIN_S = 60.0


@dataclass
class Caretaker:
    """The upkeep of a run's tables. `every_s` None: no maintenance. The first is due at once: a run may restart often.

    With `compacts`, small files are merged and log checkpoints written as the batches come. VACUUM and retention are left to a maintenance:
    they delete what somebody may still want to read.
    """

    every_s: float | None = None
    settings: Settings = field(default_factory=Settings)
    compacts: bool = False
    _maintained: dict[str, float] = field(default_factory=dict)
    _compact_at: dict[str, float] = field(default_factory=dict)
    _writers: dict[str, DirectWriter] = field(default_factory=dict)
    _by_spark: set[str] = field(default_factory=set)
    _one: threading.Lock = field(default_factory=threading.Lock)

    def due(self, places: Places, *, direct: bool) -> Literal["beside", "between"] | None:
        """Whether something is due: beside the batches, or between two of them. `direct`: the direct writer writes the batches."""
        if self._scheduled(places):
            return "beside" if direct and places.name not in self._by_spark else "between"
        compacts = self.compacts and direct and time.monotonic() >= self._compact_at.get(places.name, 0.0)
        return "beside" if compacts else None

    def _scheduled(self, places: Places) -> bool:
        last = self._maintained.get(places.name)
        return self.every_s is not None and (last is None or time.monotonic() - last >= self.every_s)

    def tend(self, session: SparkSession | None, places: Places, stop: Callable[[], bool]) -> list[str]:
        """Do what is due, with a session between two batches, without one beside them; returns notes for the user. Raises any error."""
        with self._one:  # the tables of a run do not take the batches' processors from each other
            if not self._scheduled(places):
                if session is None:  # else a batch has done meanwhile what was due
                    self._compact(places, stop)
                return []
            upkeep = DirectUpkeep(DirectWriter(ids=IdIndex.of(places))) if session is None else SparkUpkeep(session)
            self._maintained[places.name] = time.monotonic()  # also after an error, which would repeat itself after each batch
            try:
                return said(Maintenance(upkeep, places, self.settings, stop).do())
            except InvalidInput as error:
                if error.code != "DIRECT_UNFIT" or session is not None:
                    raise
                self._by_spark.add(places.name)
                del self._maintained[places.name]  # due at once, between two batches
                return []

    def _compact(self, places: Places, stop: Callable[[], bool]) -> None:
        """Merge small files, and write the checkpoints of the logs before a batch has to. A table that needs Spark is left alone."""
        self._compact_at[places.name] = time.monotonic() + AGAIN_S
        writer = self._writers.pop(places.name, None)
        writer = writer or DirectWriter(checkpoints=LogCheckpoints(BEHIND_MAX // 2), ids=IdIndex.of(places))
        try:
            for path in (places.target, places.quarantine, places.ledger):
                if not stop():
                    compact(writer, path, about(places), tiered, stop)
                    writer.checkpoint_if_due(path)
        except InvalidInput as error:
            if error.code != "DIRECT_UNFIT":
                raise
            self._compact_at[places.name] = float("inf")  # the batches find out, too
        else:
            self._writers[places.name] = writer
            self._compact_at[places.name] = time.monotonic() + COMPACT_EVERY_S


def said(done: Maintained) -> list[str]:
    """One line for each Delta table of which something was changed or deleted."""
    return [f"{done.table}: maintained: {line}" for line in lines(done) if "nothing to do" not in line]


def lines(done: Maintained) -> list[str]:
    """One line for each Delta table: what was done, or what a dry run would do."""
    found = []
    for each in done.tables:
        parts = []
        if each.retired:
            parts.append(f"{each.retired:,} old records removed")
        if each.compacted:
            parts.append(
                f"{each.files_before:,} files compacted to {each.files_after:,} ({size(each.bytes_before)} to {size(each.bytes_after)})"
            )
        if each.checkpointed:
            parts.append("log checkpoint written")
        if each.cleaned:
            parts.append(f"{each.cleaned:,} expired commits removed from the log")
        if each.vacuumed:
            freed = f", {size(each.freed_bytes)}" if each.freed_bytes else ""
            parts.append(f"VACUUM deleted {each.vacuumed:,} files{freed}")
        what = "; ".join(parts) or f"nothing to do ({each.files_before:,} files, {size(each.bytes_before)})"
        found.append(f"{each.table}: {what}; {each.seconds:.1f} s")
    return found


def size(number: int) -> str:
    """A number of bytes, as people read it: `12.3 MB`."""
    amount, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
