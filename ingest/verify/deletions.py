"""The rows that foreign DELETE commits removed from a table (I4). Searched only if rows are missing, and only until all are explained."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, Unreadable
from ingest.delta.reachable import deletes
from ingest.delta.stored_rows import NONE, Columns, Key, groups
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
    short: dict[Key, int],
    since: Mapping[Key, int],
    retired: Container[str | None] = (),
) -> list[Removed]:
    """Subtract from `short` (missing rows by key) the rows that DELETE commits after version `since` (by key) took, newest first.

    `short` is changed: it keeps the rows that no DELETE explains. The rows that a DELETE took are counted at the version before it and at
    its own. If VACUUM took those files, the DELETE's own row count is used, over all keys. A loss of that size can hide behind it (an
    accepted limit). `retired` names the DELETEs that the ledger's own rows explain.
    """
    removed: dict[int, int] = {}
    uncounted: list[Commit] = []
    version = -1 if table.version is None or not short else table.version
    for commit in deletes(DeltaLog(files_of(table.path, engine.session), table.path), version, retired):
        if not short or commit.version <= min(since[key] for key in short):
            break
        where = _only(short, columns)
        try:
            before, after = (groups(engine, At(table.path, commit.version - back), columns, where) for back in (1, 0))
        except Unreadable:
            uncounted.append(commit)
            continue
        for key in [key for key in short if commit.version > since[key]]:
            rows = min(short[key], max(0, before.get(key, NONE).rows - after.get(key, NONE).rows))
            removed[commit.version] = removed.get(commit.version, 0) + rows
            short[key] -= rows
            if not short[key]:
                del short[key]
    if _explained(uncounted, short, since):
        for commit in uncounted:
            unexplained = sum(short.values()) - sum(removed.get(each.version, 0) for each in uncounted)
            removed[commit.version] = min(commit.deleted_rows, unexplained)
        short.clear()
    return [Removed(name, version, rows) for version, rows in sorted(removed.items()) if rows]


def _explained(uncounted: list[Commit], short: Mapping[Key, int], since: Mapping[Key, int]) -> bool:
    """Whether the row counts of these DELETE commits explain all of `short`. For each key only later commits count."""
    missing = 0
    for key in sorted(short, key=lambda key: -since[key]):
        missing += short[key]
        if missing > sum(commit.deleted_rows for commit in uncounted if commit.version > since[key]):
            return False
    return bool(short)


def _only(short: Mapping[Key, int], columns: Columns) -> str:
    """The SQL condition for the batches in `short`, so that the engines skip other files."""
    epochs, batches = ([key[at] for key in short] for at in (0, 1))
    return f"`{columns.epoch}` BETWEEN {min(epochs)} AND {max(epochs)} AND `{columns.batch}` BETWEEN {min(batches)} AND {max(batches)}"
