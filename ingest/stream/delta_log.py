"""Reads the log of a Delta table: commits and, where old ones were cleaned up, its checkpoints (PROTOCOL.md of Delta).

Only history is read here (who committed which pair with which ranges and files); the rows are Spark's to read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from ingest.files import Files
from ingest.stream import refusals
from ingest.stream.mark import Mark, Statement

# A data file and, where rows of it are deleted by a deletion vector, which one: together they say what is read of it.
FileKey = tuple[str, str]


@dataclass(frozen=True)
class AddedFile:
    """A data file that a commit added; `records` is None where the writer kept no statistics."""

    path: str
    records: int | None
    partition_values: dict[str, str] = field(default_factory=dict)
    vector: str = ""

    @property
    def key(self) -> FileKey:
        """The file with its deletion vector."""
        return self.path, self.vector


@dataclass(frozen=True)
class Commit:
    """One version of a Delta table. Without `changes_rows` it has only written rows anew that were there, as OPTIMIZE does."""

    version: int
    committed_at: datetime
    operation: str
    transactions: dict[str, int]
    user_metadata: str | None
    added: tuple[AddedFile, ...] = ()
    removed: tuple[FileKey, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    changes_rows: bool = True

    @property
    def mark(self) -> Mark | None:
        """The batch that this commit is, if it is one of ours: it must hold both the metadata and the pair."""
        mark = Mark.from_json(self.user_metadata)
        if mark is None:
            return None
        statements: tuple[Statement, ...] = ("target", "quarantine", "ledger")
        pairs = {mark.app_id(statement): mark.id.number for statement in statements}
        return mark if any(pairs.get(app) == version for app, version in self.transactions.items()) else None

    @property
    def deleted_rows(self) -> int:
        """Rows that a DELETE says it took; Delta and delta-rs have a name each for the figure."""
        return int(self.metrics.get("numDeletedRows") or self.metrics.get("num_deleted_rows") or 0)


@dataclass(frozen=True)
class State:
    """What a table's log says of the table at its newest version, rows aside. `pairs` are txnVersion by txnAppId; `stamp` tells the
    newest commit from any other of its number (empty if its file is gone)."""

    version: int
    id: str
    schema: str
    properties: dict[str, str]
    partition_by: tuple[str, ...]
    comment: str
    pairs: dict[str, int]
    stamp: str = ""


class DeltaLog:
    """The log of the table at `table`; every call looks at the files anew.

    The folder of a table that lives long holds tens of thousands of files, and a listing costs as much. So the newest commit is
    remembered, and what follows it is asked for by name. The folder is listed at the first look; when the commit that was the newest
    is gone or another (the table was made again, the log cleaned up); and when a checkpoint of the log is ahead of all that was found.
    """

    def __init__(self, files: Files, table: str) -> None:
        self._files = files
        self.table = table
        self._folder = f"{table}/_delta_log"
        self._tip: tuple[int, str] | None = None  # the newest commit that was seen, and its stamp

    def versions(self) -> list[int]:
        """The versions whose commit files are still there, ascending (old ones are cleaned up after 30 days by default)."""
        return _commit_versions(self._files.names(self._folder))

    def newest(self) -> int:
        """The newest version whose commit file is there; -1 if there is none."""
        if self._tip is not None and self._file_stamp(self._tip[0]) == self._tip[1]:
            while (stamp := self._file_stamp(self._tip[0] + 1)) is not None:
                self._tip = self._tip[0] + 1, stamp
            if self._checkpoint_told() <= self._tip[0]:
                return self._tip[0]
        newest = max(self.versions(), default=-1)
        stamp = self._file_stamp(newest) if newest >= 0 else None
        self._tip = (newest, stamp) if stamp is not None else None
        return newest

    def exists(self) -> bool:
        """Whether there is a Delta table: a commit or a checkpoint of the log."""
        return any(name[:20].isdigit() for name in self._files.names(self._folder))

    def commit(self, version: int) -> Commit:
        """The commit with this version. Raises FileNotFoundError, and Refused LOG_TORN for a file that is no JSON."""
        return parse_commit(version, self._actions(version))

    def since(self, version: int) -> list[Commit]:
        """The commits after `version`, ascending."""
        try:
            return [self.commit(each) for each in range(version + 1, self.newest() + 1)]
        except FileNotFoundError:  # cleaned up: only a listing tells where the log begins
            return [self.commit(found) for found in self.versions() if found > version]

    def newest_first(self) -> Iterator[Commit]:
        """The commits from the newest to the oldest that is still there."""
        version = self.newest()
        while version >= 0:
            try:
                commit = self.commit(version)
            except FileNotFoundError:  # the log begins behind it, or has a gap
                break
            yield commit
            version -= 1
        older = [found for found in self.versions() if found < version] if version >= 0 else []
        for found in reversed(older):
            yield self.commit(found)

    def state(self) -> State | None:
        """The table's state at its newest version, from the last checkpoint of the log and the commits after it; None without a table.

        Raises Refused LOG_TORN if one of these commits is missing or damaged.
        """
        names = self._files.names(self._folder)
        versions = _commit_versions(names)
        checkpoint, rows = self._last_checkpoint(names)
        if not versions and checkpoint < 0:
            return None
        self._refuse_holes(range(checkpoint + 1, max(versions, default=-1)), {*versions})
        metadata: dict[str, Any] = {}
        pairs: dict[str, int] = {}
        stamp = None
        for row in rows:
            metadata = row.get("metaData") or metadata
            if txn := row.get("txn"):
                pairs[txn["appId"]] = int(txn["version"])
        for version in versions:
            if version <= checkpoint:
                continue
            actions = self._actions(version)
            stamp = _stamp_in(actions)
            for action in actions:
                metadata = action.get("metaData", metadata)
                if txn := action.get("txn"):
                    pairs[txn["appId"]] = int(txn["version"])
        return State(
            max([checkpoint, *versions]),
            str(metadata.get("id", "")),
            str(metadata.get("schemaString", "")),
            dict(metadata.get("configuration") or {}),
            tuple(metadata.get("partitionColumns") or ()),
            str(metadata.get("description") or ""),
            pairs,
            self.stamp(checkpoint) if stamp is None else stamp,
        )

    def stamp(self, version: int) -> str:
        """What tells this commit from one of the same number in a copy that was put in its place and written to; empty if it is gone."""
        try:
            return _stamp_in(self._actions(version))
        except FileNotFoundError:
            return ""

    def _refuse_holes(self, needed: range, listed: set[int]) -> None:
        # A listing is no snapshot: what it lacks may have been written while it was made.
        hole = next((version for version in needed if version not in listed and self._file_stamp(version) is None), None)
        if hole is not None:
            raise refusals.log_torn(self.table, hole, needed.stop)

    def _path(self, version: int) -> str:
        return f"{self._folder}/{version:020}.json"

    def _file_stamp(self, version: int) -> str | None:
        return self._files.stamp(self._path(version))

    def _checkpoint_told(self) -> int:
        """The version of the log's last checkpoint; -1 without one. Delta cleans up only what a checkpoint holds."""
        data = self._files.read(f"{self._folder}/_last_checkpoint")
        try:
            return int(json.loads(data)["version"]) if data else -1
        except (ValueError, KeyError, TypeError):
            return -1  # Delta writes it over the former one; a torn one tells nothing

    def _last_checkpoint(self, names: list[str]) -> tuple[int, list[dict[str, Any]]]:
        """The newest checkpoint whose files are all there, and what it tells of the table; -1 for none. Raises Refused LOG_TORN."""
        version, files = _newest_whole(names)
        rows: list[dict[str, Any]] = []
        damage: Exception | None
        for name in files:
            path, damage = f"{self._folder}/{name}", None
            try:
                found = self._checkpointed(path)
            except (ValueError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # it is not the file that is damaged
                found, damage = [], error
            if not found and self._files.read(path) == b"":  # as a disk leaves it that was full: Delta takes no notice of such a one
                return self._last_checkpoint([other for other in names if other != name])
            if damage is not None:
                raise refusals.log_damaged(self.table, path) from damage
            rows += found
        return version, rows

    def _checkpointed(self, path: str) -> list[dict[str, Any]]:
        # JSON is what Delta writes under the policy v2, which platforms set by themselves (on clustered tables); its files are elsewhere.
        return self._lines(path) if path.endswith(".json") else self._files.parquet(path, ("metaData", "txn"))

    def _actions(self, version: int) -> list[dict[str, Any]]:
        return self._lines(self._path(version))

    def _lines(self, path: str) -> list[dict[str, Any]]:
        data = self._files.read(path)
        if data is None:
            raise FileNotFoundError(path)
        try:
            return [json.loads(line) for line in data.splitlines() if line.strip()]
        except ValueError as error:
            raise refusals.log_damaged(self.table, path) from error


def parse_commit(version: int, actions: list[dict[str, Any]]) -> Commit:
    """The commit that these actions are."""
    info: dict[str, Any] = {}
    transactions: dict[str, int] = {}
    added: list[AddedFile] = []
    removed: list[FileKey] = []
    changes = [bool(file.get("dataChange", True)) for action in actions for kind, file in action.items() if kind in ("add", "remove")]
    for action in actions:
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "txn" in action:
            transactions[action["txn"]["appId"]] = int(action["txn"]["version"])
        elif "add" in action:
            add = action["add"]
            stats = json.loads(add.get("stats") or "{}")
            added.append(AddedFile(unquote(add["path"]), stats.get("numRecords"), add.get("partitionValues") or {}, _vector(add)))
        elif "remove" in action:
            removed.append((unquote(action["remove"]["path"]), _vector(action["remove"])))
    return Commit(
        version,
        datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC),
        str(info.get("operation", "")),
        transactions,
        info.get("userMetadata"),
        tuple(added),
        tuple(removed),
        info.get("operationParameters") or {},
        info.get("operationMetrics") or {},
        any(changes),
    )


def _vector(file: dict[str, Any]) -> str:
    vector = file.get("deletionVector")
    return f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}" if vector else ""


def _stamp_in(actions: list[dict[str, Any]]) -> str:
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return f"{info.get('timestamp', '')} {info.get('txnId', '')}".strip()


def _commit_versions(names: list[str]) -> list[int]:
    return [int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit() and len(name) == 25]


def _newest_whole(names: list[str]) -> tuple[int, list[str]]:
    """The newest checkpoint whose files are all there, and these; -1 for none. Forms: classic, in parts, with a UUID (Parquet or JSON)."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in names:
        words = name.split(".")
        if len(words) >= 3 and words[0].isdigit() and words[1] == "checkpoint" and words[-1] in ("parquet", "json"):
            parts = int(words[3]) if len(words) == 5 else 1
            found.setdefault((int(words[0]), parts), []).append(name)
    whole = {key: files for key, files in found.items() if len(files) >= key[1]}
    if not whole:
        return -1, []
    key = max(whole)
    return key[0], whole[key] if key[1] > 1 else whole[key][:1]
