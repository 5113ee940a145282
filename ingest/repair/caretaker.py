"""Maintenance by a run, between two batches of a table: on request of `ingest maintain`, and every so often if asked (--maintain-every)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingest.repair import requests
from ingest.repair.maintenance import Maintained, Maintenance, Settings
from ingest.runtime.files import is_local
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Caretaker:
    """The upkeep of a run's tables. `every_s` None: only on request. The first maintenance is due at once: a run may restart often."""

    every_s: float | None = None
    settings: Settings = field(default_factory=Settings)
    _last: dict[str, float] = field(default_factory=dict)

    def due(self, places: Places) -> bool:
        """Whether a table's maintenance is due."""
        return self._scheduled(places) or (is_local(places.lake) and requests.waiting(places))

    def _scheduled(self, places: Places) -> bool:
        last = self._last.get(places.name)
        return self.every_s is not None and (last is None or time.monotonic() - last >= self.every_s)

    def tend(self, session: SparkSession, places: Places, stop: Callable[[], bool]) -> list[str]:
        """Do what is due; returns notes for the user. An error of a request is its answer; any other error is raised."""
        notes: list[str] = []
        while is_local(places.lake) and (request := requests.take(places)) is not None:
            try:
                done = Maintenance(session, places, request.settings, stop=stop).do()
            except Exception as error:
                requests.answer(places, request, f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")
                raise
            done.by = f"the run in process {os.getpid()}"
            requests.answer(places, request, done)
            notes += said(done)
        if self._scheduled(places):
            self._last[places.name] = time.monotonic()
            notes += said(Maintenance(session, places, self.settings, stop=stop).do())
        return notes


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
