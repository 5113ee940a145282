"""Delta tables: versions, atomic commits, pairs, conflicts, RESTORE, REPLACE, the clean-up of the log (PROTOCOL.md of Delta).

What a version keeps in `force`, the versions that its state stands on, is the model's own truth; the engine has to find it
out from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from delta import exceptions as delta

from ingest.stream.delta_log import AddedFile, Commit, DeltaLog, State
from ingest.stream.mark import Mark

# A row is a tuple whose first item is what a MERGE compares: the event id in the target, the position in the quarantine.
Row = tuple[Any, ...]
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class KnownCommit(Commit):
    """A commit whose mark was parsed once, by the engine's own parser."""

    known: Mark | None = None

    @property
    def mark(self) -> Mark | None:
        return self.known


@dataclass
class Version:
    """One version of a table. `metadata` says whether the commit changed it, which fails every transaction at work."""

    commit: KnownCommit
    files: dict[str, tuple[Row, ...]]
    rows: dict[Any, Row]
    pairs: dict[str, int]
    force: tuple[int, ...]
    metadata: bool = False
    state: State | None = None
    serial: int = field(default_factory=count().__next__)


class DoubledKey(BaseException):
    """Two rows with one key: what a MERGE must never leave."""


@dataclass
class Table:
    """A Delta table. `log_from` is the first version whose commit file is still there."""

    path: str
    id: str
    column: str
    versions: list[Version] = field(default_factory=list)
    log_from: int = 0
    clock: Callable[[], datetime] = lambda: BEGIN

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    @property
    def number(self) -> int:
        """The newest version's number."""
        return len(self.versions) - 1

    def commit(
        self,
        operation: str,
        rows: Iterable[Row] = (),
        removed: Sequence[str] = (),
        *,
        partition: Callable[[Row], int] | None = None,
        pair: tuple[str, int] | None = None,
        user_metadata: str | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> Version:
        """Add `rows`, one file a partition, and remove files."""
        number = len(self.versions)
        by_partition: dict[int, list[Row]] = {}
        for row in rows:
            by_partition.setdefault(partition(row) if partition else 0, []).append(row)
        added, files = [], dict(self.newest.files) if self.versions else {}
        for name in removed:
            del files[name]
        for place, content in by_partition.items():
            path = f"{number}-{place}"
            files[path] = tuple(content)
            added.append(AddedFile(path, len(content), {self.column: str(place)} if partition else {}))
        force = (*self.newest.force, number) if self.versions else (number,)
        return self._put(operation, files, added, tuple(removed), force, pair, user_metadata, parameters or {})

    def restore(self, back: int, *, by_time: bool) -> Version:
        """RESTORE to version `back`: its files, the newest version's pairs (they are kept), and metadata again."""
        then, now = self.versions[back].files, self.newest.files
        added = [AddedFile(path, len(then[path]), {}) for path in then if path not in now]
        removed = tuple(path for path in now if path not in then)
        told = {"version": None, "timestamp": "some time"} if by_time else {"version": str(back), "timestamp": None}
        if by_time:  # versions with the same files hold the same rows: a time may mean any of them
            back = max(number for number, version in enumerate(self.versions) if version.files.keys() == then.keys())
        force = (*self.versions[back].force, len(self.versions))
        version = self._put("RESTORE", dict(then), added, removed, force, None, None, told)
        version.metadata = True
        return version

    def replace(self, *, overwrite: bool) -> Version:
        """CREATE OR REPLACE TABLE, or a full overwrite: no row stays, pairs do."""
        operation, parameters = ("WRITE", {"mode": "Overwrite"}) if overwrite else ("CREATE OR REPLACE TABLE", {})
        version = self._put(operation, {}, [], tuple(self.newest.files), (len(self.versions),), None, None, parameters)
        version.metadata = not overwrite
        return version

    def copy(self) -> Table:
        """The folder, copied."""
        return Table(self.path, self.id, self.column, list(self.versions), self.log_from, self.clock)

    def put_back(self, number: int) -> None:
        """The folder as it was at version `number`: its log and its pairs too."""
        del self.versions[number + 1 :]
        self.log_from = min(self.log_from, number)

    def _put(
        self,
        operation: str,
        files: dict[str, tuple[Row, ...]],
        added: list[AddedFile],
        removed: tuple[str, ...],
        force: tuple[int, ...],
        pair: tuple[str, int] | None,
        user_metadata: str | None,
        parameters: dict[str, Any],
    ) -> Version:
        number = len(self.versions)
        pairs = self.newest.pairs if self.versions else {}
        if pair is not None:
            pairs = {**pairs, pair[0]: pair[1]}
        gone = tuple((path, "") for path in removed)
        transactions = {} if pair is None else {pair[0]: pair[1]}
        metrics = {}
        if operation == "DELETE":
            metrics = {"numDeletedRows": str(sum(map(len, self.newest.files.values())) - sum(map(len, files.values())))}
        commit = KnownCommit(number, self.clock(), operation, transactions, user_metadata, tuple(added), gone, parameters, metrics)
        if pair is not None:
            object.__setattr__(commit, "known", super(KnownCommit, commit).mark)
        rows: dict[Any, Row] = {}
        if self.column:
            content = [row for part in files.values() for row in part]
            rows = {row[0]: row for row in content}
            if len(rows) != len(content):
                raise DoubledKey(self.path)
        version = Version(commit, files, rows, pairs, force)
        self.versions.append(version)
        return version

    def in_force(self) -> Iterator[KnownCommit]:
        """The commits in force, newest first, cleaned up or not: the truth."""
        return (self.versions[number].commit for number in reversed(self.newest.force))

    def conflict(self, since: int, app: str | None, *, blind: bool, overlaps: Callable[[Version], bool]) -> Exception | None:
        """What Delta raises for a transaction that read version `since`, under Serializable."""
        for version in self.versions[since + 1 :]:
            commit = version.commit
            if app is not None and app in commit.transactions:
                return delta.ConcurrentTransactionException("the same app id")
            if version.metadata:
                return delta.MetadataChangedException("metadata")
            if blind:
                continue
            if commit.removed:
                return delta.ConcurrentDeleteReadException("files that were read")
            if commit.added and overlaps(version):
                return delta.ConcurrentAppendException("files that were added")
        return None


class ModelLog(DeltaLog):
    """The log of a modelled table, as the engine reads it."""

    def __init__(self, files: Any, table: str) -> None:
        self.table = table
        self._tables: dict[str, Table] = files.world.tables

    def versions(self) -> list[int]:
        found = self._tables.get(self.table)
        return list(range(found.log_from, len(found.versions))) if found is not None else []

    def newest(self) -> int:
        found = self._tables.get(self.table)
        return found.number if found is not None else -1

    def exists(self) -> bool:
        return self.table in self._tables

    def commit(self, version: int) -> Commit:
        found = self._tables.get(self.table)
        if found is None or not found.log_from <= version < len(found.versions):
            raise FileNotFoundError(f"{self.table} version {version}")
        return found.versions[version].commit

    def since(self, version: int) -> list[Commit]:
        found = self._tables.get(self.table)
        return [] if found is None else [each.commit for each in found.versions[max(version + 1, found.log_from) :]]

    def state(self) -> State | None:
        found = self._tables.get(self.table)
        if found is None:
            return None
        newest = found.newest
        if newest.state is None:
            newest.state = State(found.number, found.id, "", {}, (), "", newest.pairs, self.stamp(found.number))
        return newest.state

    def stamp(self, version: int) -> str:
        found = self._tables.get(self.table)
        there = found is not None and found.log_from <= version < len(found.versions)
        return str(found.versions[version].serial) if found is not None and there else ""
