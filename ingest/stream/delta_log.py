"""Reads commits from a Delta log: the JSON files of `_delta_log`, as PROTOCOL.md of Delta describes them.

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
from ingest.stream.mark import Mark, Statement, app_id


@dataclass(frozen=True)
class AddedFile:
    """A data file that a commit added; `records` is None where the writer kept no statistics."""

    path: str
    records: int | None
    partition_values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Commit:
    """One version of a Delta table."""

    version: int
    committed_at: datetime
    operation: str
    transactions: dict[str, int]
    user_metadata: str | None
    added: tuple[AddedFile, ...]

    @property
    def mark(self) -> Mark | None:
        """The batch that this commit is, if it is one of ours: it must hold both the metadata and the pair (trap 20)."""
        mark = Mark.from_json(self.user_metadata)
        if mark is None:
            return None
        statements: tuple[Statement, ...] = ("target", "quarantine", "ledger")
        pairs = {mark.app_id(statement): mark.id.number for statement in statements}
        return mark if any(pairs.get(app) == version for app, version in self.transactions.items()) else None


class DeltaLog:
    """The log of the table at `table`; every call looks at the files anew."""

    def __init__(self, files: Files, table: str) -> None:
        self._files = files
        self.table = table

    def versions(self) -> list[int]:
        """The versions whose commit files are still there, ascending (old ones are cleaned up after 30 days by default)."""
        names = self._files.names(f"{self.table}/_delta_log")
        return [int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit() and len(name) == 25]

    def exists(self) -> bool:
        """Whether there is a Delta table: a commit or a checkpoint of the log."""
        return any(name[:20].isdigit() for name in self._files.names(f"{self.table}/_delta_log"))

    def commit(self, version: int) -> Commit:
        """The commit with this version. Raises FileNotFoundError."""
        data = self._files.read(f"{self.table}/_delta_log/{version:020}.json")
        if data is None:
            raise FileNotFoundError(f"{self.table}/_delta_log/{version:020}.json")
        return _parse(version, data)

    def since(self, version: int) -> list[Commit]:
        """The commits after `version`, ascending."""
        return [self.commit(found) for found in self.versions() if found > version]

    def newest_first(self) -> Iterator[Commit]:
        """The commits from the newest to the oldest that is still there."""
        for version in reversed(self.versions()):
            yield self.commit(version)

    def last_with(self, pipeline: str, table: str, query_id: str, statement: Statement) -> Commit | None:
        """The newest commit that carries a pair of this query and statement."""
        app = app_id(pipeline, table, query_id, statement)
        return next((commit for commit in self.newest_first() if app in commit.transactions), None)


def _parse(version: int, data: bytes) -> Commit:
    info: dict[str, Any] = {}
    transactions: dict[str, int] = {}
    added: list[AddedFile] = []
    for line in data.splitlines():
        if not line.strip():
            continue
        action = json.loads(line)
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "txn" in action:
            transactions[action["txn"]["appId"]] = int(action["txn"]["version"])
        elif "add" in action:
            stats = json.loads(action["add"].get("stats") or "{}")
            added.append(AddedFile(unquote(action["add"]["path"]), stats.get("numRecords"), action["add"].get("partitionValues") or {}))
    return Commit(
        version,
        datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC),
        str(info.get("operation", "")),
        transactions,
        info.get("userMetadata"),
        tuple(added),
    )
