"""The files of a table that VACUUM deletes: those that no version of the retention needs, and those of failed writes that are as old."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

import pyarrow.parquet as pq

from ingest.delta.delta_log import commit_versions, newest_complete
from ingest.delta.delta_sql import unreadable
from ingest.delta.direct_fit import unfit
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.erased_rows import data_files, unneeded
from ingest.delta.live_table import LiveTable, place
from ingest.delta.table_state import TableState
from ingest.runtime.canonical_json import read_json
from ingest.runtime.files import LocalFiles, local_path

PROPERTY, DEFAULT = "delta.deletedFileRetentionDuration", "interval 7 days"
# A property may say less, but beside a run: a batch in progress has looked at files that are removed now, and has written others.
KEPT_MIN_S = 86_400.0
UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}


@dataclass(frozen=True)
class Expired:
    """Files on the disk that may be deleted, by path, with their sizes."""

    sizes: dict[str, int]

    @property
    def bytes(self) -> int:
        """Their size together."""
        return sum(self.sizes.values())


def seconds_of(state: TableState, path: str, name: str, default: str) -> float:
    """The seconds of a property such as `interval 7 days`. Raises InvalidInput DIRECT_UNFIT for one that only Delta in Spark can read."""
    text = state.properties.get(name, default)
    parts = re.fullmatch(r"(?:interval\s+)?(\d+)\s+([a-z]+?)s?", text.strip().lower())
    if parts is None or parts[2] not in UNITS:
        raise unfit(path, f"has the property {name} = {text}")
    return int(parts[1]) * UNITS[parts[2]]


def expired(writer: DirectWriter, path: str, kept_s: float | None) -> Expired:
    """The files of a local table that VACUUM deletes. `kept_s` None: the time of the table's property, 7 days by default, 1 day at least.

    A file of an old version is kept for so long after its removal, a file that no version has so long after it was written: a batch in
    progress has written it. Raises as `LiveTable.look`, and InvalidInput DIRECT_UNFIT.
    """
    state = writer.looked_at(path).state
    assert state is not None, "the look refuses a table without commits"
    of_table_s = seconds_of(state, path, PROPERTY, DEFAULT)
    kept_s = max(KEPT_MIN_S, of_table_s) if kept_s is None else kept_s
    before_s = time.time() - kept_s
    there = data_files(path, state.partition_by)
    # After the listing: what is committed in between is needed.
    table = writer.looked_at(path)
    folder = os.path.realpath(local_path(path))
    removed = {os.path.realpath(os.path.join(folder, name)) for name in _removed_since(table, before_s * 1000, by_log=kept_s > of_table_s)}
    sizes = {}
    for name in unneeded(table, there):
        with suppress(FileNotFoundError):
            status = os.stat(name)
            if status.st_mtime < before_s and os.path.realpath(name) not in removed:
                sizes[name] = status.st_size
    return Expired(sizes)


def removable(path: str, kept_s: float | None) -> Expired:
    """As `expired`, as deltalake tells, which also reads tables that only Delta in Spark can write. Raises Unreadable."""
    from deltalake import DeltaTable

    with unreadable():
        kept_h = None if kept_s is None else ceil(kept_s / 3600)
        found = DeltaTable(str(local_path(path))).vacuum(kept_h, dry_run=True, enforce_retention_duration=False, full=True)
    paths = ((name, local_path(path) / name) for name in found)
    return Expired({name: there.stat().st_size for name, there in paths if there.is_file()})


def _removed_since(table: LiveTable, since_ms: float, *, by_log: bool) -> set[str]:
    """The places of files that were removed at this time or later: they are in the newest checkpoint, or in a commit after it.

    `by_log`: in any commit that is still there, because a checkpoint forgets a removal after the time that the table's property names.
    """
    files, folder = LocalFiles(), f"{table.path}/_delta_log"
    listed = files.names(folder)
    version, names = newest_complete(listed)
    found = set()
    for name in names:
        with pq.ParquetFile(local_path(f"{folder}/{name}")) as file:
            rows = file.read(columns=["remove.path", "remove.deletionTimestamp"])
        for each in rows["remove"].to_pylist() if "remove" in rows.column_names else ():
            if each is not None and each.get("path") is not None and (each.get("deletionTimestamp") or 0) >= since_ms:
                found.add(place(table.path, each["path"]))
    for number in (each for each in commit_versions(listed) if by_log or each > version):
        for line in (files.read(table.path_of(number)) or b"").splitlines():
            removed = read_json(line).get("remove") if b'"remove"' in line else None
            if removed is not None and (removed.get("deletionTimestamp") or 0) >= since_ms:
                found.add(place(table.path, removed["path"]))
    return found
