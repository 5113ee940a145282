"""The rows that foreign DELETE commits removed from a table (I4). Searched only if rows are missing, and only until all are explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, Unreadable
from ingest.delta.posting import NOTHING, Key, Sums
from ingest.delta.reachable import deletes
from ingest.delta.stored_rows import Columns, sums_at
from ingest.ledger.books import Books
from ingest.runtime.files import files_of


@dataclass(frozen=True)
class Removed:
    """The number of rows that a DELETE commit took, as far as they are missing now. `table` is `target` or `quarantine`."""

    table: str
    version: int
    rows: int


def explain(
    engine: Engine,
    name: str,
    table: At,
    columns: Columns,
    ids: Sequence[str],
    short: dict[Key, Sums],
    since: Mapping[Key, int],
    books: Books,
) -> list[Removed]:
    """Subtract from `short` (missing rows by key) the rows that DELETE commits after version `since` (by key) took, newest first.

    `short` is changed: it keeps the rows that no DELETE explains. The rows that a DELETE took are those of the version before it that its
    own version lacks. If VACUUM took those files, the DELETE's own row count is used, over all keys. A loss of that size can hide behind it
    (an accepted limit).
    """
    removed: dict[int, int] = {}
    uncounted: list[Commit] = []
    version = -1 if table.version is None or not short else table.version
    for commit in deletes(DeltaLog(files_of(table.path, engine.session), table.path), version):
        if not short or commit.version <= min(since.get(key, 0) for key in short):
            break
        where = _only(short, columns, books)
        try:
            before, after = (sums_at(engine, At(table.path, commit.version - back), columns, ids, where) for back in (1, 0))
        except Unreadable:
            uncounted.append(commit)
            continue
        for key, sums in before.items():
            gone, at = sums - after.get(key, NOTHING), books.folded(key)
            if not gone or at not in short or commit.version <= since.get(at, 0):
                continue
            removed[commit.version] = removed.get(commit.version, 0) + gone.rows
            short[at] -= gone
            if not short[at]:
                del short[at]
    lacking = {key: each.rows for key, each in short.items() if each.rows > 0}
    if _explained(uncounted, lacking, since):
        for commit in uncounted:
            unexplained = sum(lacking.values()) - sum(removed.get(each.version, 0) for each in uncounted)
            removed[commit.version] = min(commit.deleted_rows, unexplained)
        for key in lacking:
            del short[key]
    return [Removed(name, version, rows) for version, rows in sorted(removed.items()) if rows]


def _explained(uncounted: list[Commit], short: Mapping[Key, int], since: Mapping[Key, int]) -> bool:
    """Whether the row counts of these DELETE commits explain all of `short`, by number. For each key only later commits count."""
    missing = 0
    for key in sorted(short, key=lambda key: -since.get(key, 0)):
        missing += short[key]
        if missing > sum(commit.deleted_rows for commit in uncounted if commit.version > since.get(key, 0)):
            return False
    return bool(short)


def _only(short: Mapping[Key, Sums], columns: Columns, books: Books) -> str:
    """The SQL condition for the batches in `short`, so that the engines skip other files."""
    epochs, batches = [key.epoch for key in short], [key.batch for key in short]
    if 0 in batches:  # a rebuild has the rows of all its epochs
        return f"`{columns.epoch}` BETWEEN {min(epochs)} AND {max(*epochs, books.rebuilt_until)}"
    return f"`{columns.epoch}` BETWEEN {min(epochs)} AND {max(epochs)} AND `{columns.batch}` BETWEEN {min(batches)} AND {max(batches)}"
