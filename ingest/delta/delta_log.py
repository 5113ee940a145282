"""Read a Delta table's log: its commits, and its checkpoints where Delta has cleaned up old commits (Delta's PROTOCOL.md).

This module reads only history: who committed which transaction id with which offset ranges and files. It reads no rows.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ingest.delta import log_errors
from ingest.delta.commit import Commit, parse_commit
from ingest.delta.table_state import TableState
from ingest.runtime.canonical_json import read_json
from ingest.runtime.files import Files, files_of
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Delta's feature for tables that a catalog commits to, and its name in the preview (PROTOCOL.md, Catalog-managed tables).
CATALOG_MANAGED = frozenset({"catalogManaged", "catalogOwned-preview"})


class DeltaLog:
    """The log of the table at `table`. Every call reads the files again.

    The log folder of an old table contains hundreds of thousands of files, so a listing is expensive. The class therefore caches the
    newest commit, called the tip, with the table's state, and asks for later commits by name. It lists the folder in three cases: on
    first use; when the tip is gone or has changed (the table was recreated, or its log cleaned up); and when the last checkpoint is ahead
    of all commits found.
    """

    def __init__(self, files: Files, table: str) -> None:
        self._files = files
        self.table = table
        self._folder = f"{table}/_delta_log"
        self._tip: tuple[int, str] | None = None  # the newest known commit, and the stamp of its file
        self._state: TableState | None = None  # at the tip or an earlier commit; usable while the tip is valid

    def versions(self) -> list[int]:
        """The versions whose commit files still exist, ascending. Delta cleans up old ones, after 30 days by default."""
        return list(commit_versions(self._files.names(self._folder)))

    def newest(self) -> int:
        """The newest version whose commit file exists; -1 if there is none."""
        return self._advance() if self._tip_is_valid() else self._newest_in(self._files.names(self._folder))

    def whole(self) -> bool:
        """Whether the log still goes back to the table's creation. Delta cleans up the oldest commits first."""
        return self._file_stamp(0) is not None

    def exists(self) -> bool:
        """Whether a Delta table exists, that is, whether its log contains a commit or a checkpoint."""
        return self.newest() >= 0 or any(name[:20].isdigit() for name in self._files.names(self._folder))

    def commits_after_checkpoint(self) -> int:
        """The number of commits that a reader reads after the last checkpoint."""
        return self.newest() - self.checkpoint_version()

    def commit(self, version: int) -> Commit:
        """The commit with this version. Raises FileNotFoundError if it is gone, and Refused LOG_TORN for a file that is not JSON."""
        return parse_commit(version, self._actions(version))

    def since(self, version: int) -> list[Commit]:
        """The commits after `version`, ascending."""
        try:
            return [self.commit(each) for each in range(version + 1, self.newest() + 1)]
        except FileNotFoundError:  # cleaned up: only a listing shows where the log starts
            return [self.commit(found) for found in self.versions() if found > version]

    def newest_first(self) -> Iterator[Commit]:
        """The commits that still exist, newest first."""
        version = self.newest()
        while version >= 0:
            try:
                commit = self.commit(version)
            except FileNotFoundError:  # the log starts after this version, or has a gap
                break
            yield commit
            version -= 1
        older = [found for found in self.versions() if found < version] if version >= 0 else []
        for found in reversed(older):
            yield self.commit(found)

    def state(self) -> TableState | None:
        """The table's state at its newest version; None if there is no table.

        Built from the last checkpoint and the commits after it. Raises Refused LOG_TORN if one of these files is missing or damaged, and
        CATALOG_MANAGED for a table whose newest commits only its catalog knows.
        """
        if self._state is None or not self._tip_is_valid():
            self._state = self._listed_state()
        elif (newest := self._advance()) > self._state.version:
            self._state = self._until(self._state, newest)
        if self._state is not None and (managed := self._state.features & CATALOG_MANAGED):
            raise log_errors.catalog_managed(self.table, min(managed))
        return self._state

    def _listed_state(self) -> TableState | None:
        names = self._files.names(self._folder)
        checkpoint, rows = self._last_checkpoint(names)
        # Skip the commits that the checkpoint covers: in an old table they are nearly all files of the folder.
        names = names[bisect_left(names, f"{checkpoint:020}") :]
        newest = self._newest_in(names)
        if newest < 0 and checkpoint < 0:
            return None
        self._refuse_holes(range(checkpoint + 1, newest), {*commit_versions(names)})
        state = replace(TableState(checkpoint).after(rows), stamp=self.stamp(checkpoint))
        return self._until(state, newest)

    def _until(self, state: TableState, newest: int) -> TableState:
        for version in range(state.version + 1, newest + 1):
            data = self._data(version)
            actions = self._parsed(data, self._path(version))
            state = replace(state.after(actions), version=version, stamp=_stamp_in(actions, data))
        return state

    def _newest_in(self, names: list[str]) -> int:
        """The newest commit in a listing; -1 if there is none. It becomes the tip."""
        newest = next(commit_versions(reversed(names)), -1)
        stamp = self._file_stamp(newest) if newest >= 0 else None
        self._tip, self._state = (newest, stamp) if stamp is not None else None, None
        return newest

    def _tip_is_valid(self) -> bool:
        """Whether the tip still exists unchanged, and no checkpoint is ahead of the commits that follow it."""
        return self._tip is not None and self._file_stamp(self._tip[0]) == self._tip[1] and self.checkpoint_version() <= self._advance()

    def _advance(self) -> int:
        """The newest commit that follows the tip without a gap. It becomes the tip."""
        assert self._tip is not None
        while (stamp := self._file_stamp(self._tip[0] + 1)) is not None:
            self._tip = self._tip[0] + 1, stamp
        return self._tip[0]

    def stamp(self, version: int) -> str:
        """A value that identifies this commit; empty if the commit is gone.

        The version alone does not: a copy of the table may replace it and then receive another commit with the same version. The stamp is
        Delta's own txnId, or the SHA-256 of the commit's file if it has none (delta-rs writes none).
        """
        try:
            data = self._data(version)
        except FileNotFoundError:
            return ""
        return _stamp_in(self._parsed(data, self._path(version)), data)

    def lacks(self, version: int, stamp: str) -> bool:
        """Whether the commit with this version and stamp is gone or was replaced. False if Delta cleaned it up."""
        return version > self.newest() or self.stamp(version) not in ("", stamp)

    def _refuse_holes(self, needed: range, listed: set[int]) -> None:
        # A listing is not atomic: a commit that it lacks may have been written meanwhile.
        hole = next((version for version in needed if version not in listed and self._file_stamp(version) is None), None)
        if hole is not None:
            raise log_errors.log_torn(self.table, hole, needed.stop)

    def _path(self, version: int) -> str:
        return f"{self._folder}/{version:020}.json"

    def _file_stamp(self, version: int) -> str | None:
        return self._files.stamp(self._path(version))

    def checkpoint_version(self) -> int:
        """The version of the last checkpoint; -1 if there is none. Delta cleans up only commits that a checkpoint covers."""
        data = self._files.read(f"{self._folder}/_last_checkpoint")
        try:
            return int(read_json(data)["version"]) if data else -1
        except (ValueError, KeyError, TypeError):
            return -1  # Delta overwrites the file in place, so it may be torn

    def _last_checkpoint(self, names: list[str]) -> tuple[int, list[dict[str, Any]]]:
        """The newest complete checkpoint, and its actions that describe the table; -1 if there is none. Raises Refused LOG_TORN."""
        version, files = newest_complete(names)
        rows: list[dict[str, Any]] = []
        damage: Exception | None
        for name in files:
            path, damage = f"{self._folder}/{name}", None
            try:
                found = self._checkpointed(path)
            except (ValueError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # an I/O error, not a damaged file
                found, damage = [], error
            if not found and self._files.read(path) == b"":  # left by a full disk; Delta ignores it too
                return self._last_checkpoint([other for other in names if other != name])
            if damage is not None:
                raise log_errors.log_damaged(self.table, path) from damage
            rows += found
        return version, rows

    def _checkpointed(self, path: str) -> list[dict[str, Any]]:
        # Delta writes JSON under the policy v2, which platforms set by themselves (on clustered tables), and lists data files elsewhere.
        return self._lines(path) if path.endswith(".json") else self._files.parquet(path, ("metaData", "txn", "protocol", "domainMetadata"))

    def _actions(self, version: int) -> list[dict[str, Any]]:
        return self._parsed(self._data(version), self._path(version))

    def _lines(self, path: str) -> list[dict[str, Any]]:
        data = self._files.read(path)
        if data is None:
            raise FileNotFoundError(path)
        return self._parsed(data, path)

    def _data(self, version: int) -> bytes:
        data = self._files.read(self._path(version))
        if data is None:
            raise FileNotFoundError(self._path(version))
        return data

    def _parsed(self, data: bytes, path: str) -> list[dict[str, Any]]:
        try:
            actions = [read_json(line) for line in data.splitlines() if line.strip()]
            if not all(isinstance(action, dict) for action in actions):
                raise ValueError("a line is no JSON object")
            return actions
        except ValueError as error:
            raise log_errors.log_damaged(self.table, path) from error


@dataclass(frozen=True)
class Logs:
    """The logs of target, quarantine and ledger. Keep one instance for repeated reads: each log lists its folder only once."""

    target: DeltaLog
    quarantine: DeltaLog
    ledger: DeltaLog

    @staticmethod
    def of(places: Places, session: SparkSession | None = None) -> Logs:
        """The logs of one table. A local lake needs no session."""
        files = files_of(places.lake, session)
        return Logs(*(DeltaLog(files, path) for path in (places.target, places.quarantine, places.ledger)))


def _stamp_in(actions: list[dict[str, Any]], data: bytes) -> str:
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return str(info.get("txnId") or hashlib.sha256(data).hexdigest())


def commit_versions(names: Iterable[str]) -> Iterator[int]:
    """The versions whose commit files are in this listing, in its order."""
    return (int(name[:-5]) for name in names if name.endswith(".json") and len(name) == 25 and name[:-5].isdecimal())


def newest_complete(names: list[str]) -> tuple[int, list[str]]:
    """The newest complete checkpoint and its files; -1 if there is none. Forms: classic, multi-part, UUID-named (Parquet or JSON)."""
    checkpoints = (name for name in reversed(names) if name[20:32] == ".checkpoint." and name[:20].isdecimal())
    for version, files in groupby(checkpoints, key=lambda name: int(name[:20])):  # names are sorted
        found: dict[int, list[str]] = {}
        for name in files:
            words = name.split(".")
            if words[-1] in ("parquet", "json"):
                found.setdefault(int(words[3]) if len(words) == 5 and words[3].isdecimal() else 1, []).append(name)
        if whole := [parts for parts, of in found.items() if len(of) >= parts]:
            parts = max(whole)
            return version, sorted(found[parts])[:parts]
    return -1, []
