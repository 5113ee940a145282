"""A commit of a Delta log: who made it, and which files it added and removed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from ingest.delta.batch_commit import FENCED, BatchCommit
from ingest.runtime.canonical_json import read_json

# A data file and its deletion vector (empty if it has none). Together they determine which rows are read.
FileKey = tuple[str, str]


@dataclass(frozen=True)
class AddedFile:
    """A data file that a commit added. `records` is None if the writer stored no statistics."""

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
    """One version of a Delta table."""

    version: int
    committed_at: datetime
    operation: str
    transactions: dict[str, int]
    user_metadata: str | None
    added: tuple[AddedFile, ...] = ()
    removed: tuple[FileKey, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def batch_commit(self) -> BatchCommit | None:
        """Our BatchCommit, or None. A fenced statement is ours only with its transaction id: other engines may copy our metadata (I1)."""
        found = BatchCommit.from_json(self.user_metadata)
        if found is not None and isinstance(found.case, FENCED) and self.transactions.get(found.app_id) != found.id.txn_version:
            return None
        return found

    @property
    def deleted_rows(self) -> int:
        """The number of rows that a DELETE or a MERGE reports as deleted. Delta and delta-rs name this metric differently."""
        names = ("numDeletedRows", "num_deleted_rows", "numTargetRowsDeleted")
        return int(next((self.metrics[name] for name in names if self.metrics.get(name)), 0))


def parse_commit(version: int, actions: list[dict[str, Any]]) -> Commit:
    """Build a commit from its actions."""
    info: dict[str, Any] = {}
    transactions: dict[str, int] = {}
    added: list[AddedFile] = []
    removed: list[FileKey] = []
    for action in actions:
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "txn" in action:
            transactions[action["txn"]["appId"]] = int(action["txn"]["version"])
        elif "add" in action:
            add = action["add"]
            stats = read_json(add.get("stats") or "{}")
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
    )


def _vector(file: dict[str, Any]) -> str:
    vector = file.get("deletionVector")
    return f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}" if vector else ""
