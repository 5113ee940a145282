"""Delta tables: versions, transaction ids, changes by other users, and logs as the engine's own functions read them.

Only the rules of Delta that the design depends on are modelled (docs/reference/guarantees.md):
- a statement is skipped at its start if its transaction id is not above the table's
- a statement fails if a commit of its app id came while it was in flight
- a statement that reads the table fails if files changed while it was in flight
- RESTORE, overwrite and REPLACE keep transaction ids and log entries.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar

from ingest.delta.batch_commit import FENCED, BatchCommit, Create, Snapshot, Upkeep, app_id
from ingest.delta.delta_log import DeltaLog
from ingest.delta.posting import MODULUS, NOTHING, Key, Sums, Why, removals

PIPELINE, NAME = "p", "t"
APP = app_id(PIPELINE, NAME)
Rows = Mapping[Any, Any]
TABLES = ("target", "quarantine", "ledger")

_stamps = count()


@dataclass(slots=True, eq=False)
class Version:
    """One version: its rows, its commit, and the highest transaction id so far. The engine's functions take it for a Commit.

    Rows of the target are by event id (source, partition, offset, epoch, batch, topic id). Those of the quarantine are by position (epoch,
    batch, state, topic id), and those of the ledger are its lines. The topic ids are for `invariants.py` only: positions have its number.
    """

    version: int
    operation: str
    rows: Rows
    txn: int
    batch_commit: BatchCommit | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    added: tuple[int, ...] = ()
    deleted_rows: int = 0
    stamp: str = field(default_factory=lambda: str(next(_stamps)))
    _sums: dict[Key, Sums] | None = None
    committed_at: ClassVar[dt.datetime] = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    @property
    def fenced(self) -> bool:
        """Whether it has a transaction id of ours."""
        return self.batch_commit is not None and isinstance(self.batch_commit.case, FENCED)

    @property
    def removed(self) -> tuple[str, ...]:
        """The files that it removed, of which only their existence counts."""
        return ("one",) if self.operation == "DELETE" else ()

    def sums(self) -> dict[Key, Sums]:
        """The sums of its rows, target or quarantine, by key."""
        if self._sums is None:
            self._sums = summed(self.rows)
        return self._sums


def summed(rows: Rows) -> dict[Key, Sums]:
    """The sums of these rows of target or quarantine by key."""
    found: dict[Key, Sums] = {}
    for id, row in rows.items():
        at, epoch, batch = (row[:3], *row[3:5]) if isinstance(id, int) else (id, *row[:2])
        key = Key(epoch, batch, *at[:2])
        found[key] = found.get(key, NOTHING) + Sums(1, at[2], hash((id if isinstance(id, int) else -1, *at)) % MODULUS)
    return found


class Table:
    """A table. Its log starts at version `log_from`."""

    def __init__(self, id: str, versions: Iterable[Version] = (), log_from: int = 0) -> None:
        self.id, self.log_from = id, log_from
        self.versions = list(versions) or [Version(0, "CREATE TABLE", {}, -1, BatchCommit(Create(), PIPELINE, NAME))]

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    def copy(self, back: int = 0) -> Table:
        """A copy of the folder as it was `back` versions ago."""
        newest = len(self.versions) - 1 - back
        return Table(
            self.id, self.versions[: newest + 1], self.log_from if self.log_from <= newest else 0
        )  # the copy is older than the cleanup

    def commit(self, operation: str, rows: Rows, batch_commit: BatchCommit | None = None, **more: Any) -> Version:
        """Add a version."""
        self.versions.append(Version(len(self.versions), operation, rows, self.newest.txn, batch_commit, **more))
        if batch_commit is not None and self.newest.fenced:
            self.newest.txn = batch_commit.id.txn_version
        return self.newest

    def conflict(self, since: int, *, fenced: bool, reads: bool) -> str:
        """Why a statement that started at version `since` fails: `transaction`, `files`, or an empty string."""
        later = self.versions[since + 1 :]
        if fenced and any(each.fenced for each in later):
            return "transaction"
        if any(each.operation.startswith("REPLACE") for each in later):
            return "files"
        before = self.versions[since].rows
        return "files" if reads and any(each.rows is not before for each in later) else ""

    # Changes by other users.

    def restore(self, back: int) -> None:
        """RESTORE to `back` versions ago."""
        to = self.versions[len(self.versions) - 1 - back]
        self.commit("RESTORE", to.rows, parameters={"version": to.version})

    def overwrite(self, keep: int) -> None:
        """Overwrite the table with only the first `keep` of its rows."""
        kept = dict(list(self.newest.rows.items())[:keep])
        self.commit("WRITE", kept, parameters={"mode": "Overwrite"}, added=tuple(range(len(kept))))

    def replace(self, id: str) -> None:
        """REPLACE TABLE: empty, with another table id."""
        self.id = id
        self.commit("REPLACE TABLE", {})

    def delete(self, key: Any) -> None:
        """DELETE of one row."""
        self.commit("DELETE", {id: row for id, row in self.newest.rows.items() if id != key}, deleted_rows=1)

    def remove(self, key: Any, why: Why, writer: str, *, posted: bool = True, removed: bool = True) -> None:
        """Our own removal of one row, which is posted in the same commit."""
        gone = {key: self.newest.rows[key]}
        postings = removals(summed(gone), why, target=why == "erasure") if posted else ()
        about = BatchCommit(Upkeep(), PIPELINE, NAME, writer=writer, postings=postings)
        self.commit("MERGE", {id: row for id, row in self.newest.rows.items() if id != key or not removed}, about)

    def optimize(self) -> None:
        self.commit("OPTIMIZE", dict(self.newest.rows))

    def clean(self) -> None:
        """Delta deletes all commits except the newest from the log; the table keeps its rows."""
        self.log_from = len(self.versions) - 1


class Log:
    """The log of the table that is currently at one path, as the engine's functions read it."""

    def __init__(self, tables: list[Table | None], which: int) -> None:
        self.tables, self.which = tables, which
        self.table = TABLES[which]

    def _all(self) -> list[Version]:
        table = self.tables[self.which]
        return table.versions[table.log_from :] if table is not None else []

    def versions(self) -> list[int]:
        return [each.version for each in self._all()]

    def whole(self) -> bool:
        return self.versions()[:1] == [0]

    def newest(self) -> int:
        table = self.tables[self.which]
        return len(table.versions) - 1 if table is not None else -1

    def commit(self, version: int) -> Version:
        table = self.tables[self.which]
        if table is None or not table.log_from <= version < len(table.versions):
            raise FileNotFoundError(f"{self.table} version {version}")
        return table.versions[version]

    def newest_first(self) -> Iterator[Version]:
        return reversed(self._all())

    def since(self, version: int) -> list[Version]:
        table = self.tables[self.which]
        return table.versions[max(version + 1, table.log_from) :] if table is not None else []

    def stamp(self, version: int) -> str:
        try:
            return self.commit(version).stamp
        except FileNotFoundError:
            return ""

    lacks: Any = DeltaLog.lacks

    def state(self) -> Any:
        table = self.tables[self.which]
        if table is None:
            return None
        newest = table.newest
        transactions = {APP: newest.txn} if newest.txn >= 0 else {}
        snapshot = Snapshot(table.id, newest.version, newest.stamp)
        return SimpleNamespace(snapshot=snapshot, version=newest.version, transactions=transactions, properties={})
