"""What DELETE commits of others took from a table (I4): looked for only where something is short, and only until that is explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.delta.delta_log import Commit, DeltaLog
from ingest.delta.delta_sql import At, Engine, Unreadable
from ingest.delta.reachable import deletes
from ingest.delta.stored_rows import NONE, Columns, Key, groups
from ingest.runtime.files import files_of


@dataclass(frozen=True)
class Removed:
    """Rows that a DELETE commit took, as far as they are missing now."""

    table: str
    version: int
    rows: int


def explain(engine: Engine, name: str, table: At, columns: Columns, short: dict[Key, int], since: Mapping[Key, int]) -> list[Removed]:
    """Take off `short`, rows that are missing by key, what DELETE commits after version `since` (by key) took, the newest first.

    A DELETE is told by counts at the version before it and at its own. Where VACUUM took their files, its own figure counts, over all keys:
    a loss of that size can hide behind it (an accepted limit).
    """
    removed: dict[int, int] = {}
    untold: list[Commit] = []
    version = -1 if table.version is None or not short else table.version
    for commit in deletes(DeltaLog(files_of(table.path, engine.session), table.path), version):
        if not short or commit.version <= min(since[key] for key in short):
            break
        where = _only(short, columns)
        try:
            before, after = (groups(engine, At(table.path, commit.version - back), columns, where) for back in (1, 0))
        except Unreadable:
            untold.append(commit)
            continue
        for key in [key for key in short if commit.version > since[key]]:
            rows = min(short[key], max(0, before.get(key, NONE).rows - after.get(key, NONE).rows))
            removed[commit.version] = removed.get(commit.version, 0) + rows
            short[key] -= rows
            if not short[key]:
                del short[key]
    if _by_figures(untold, short, since):
        for commit in untold:
            removed[commit.version] = min(commit.deleted_rows, sum(short.values()) - sum(removed.get(each.version, 0) for each in untold))
        short.clear()
    return [Removed(name, version, rows) for version, rows in sorted(removed.items()) if rows]


def _by_figures(untold: list[Commit], short: Mapping[Key, int], since: Mapping[Key, int]) -> bool:
    """Whether the DELETE commits can have taken so many: of each key only those that came after it."""
    missing = 0
    for key in sorted(short, key=lambda key: -since[key]):
        missing += short[key]
        if missing > sum(commit.deleted_rows for commit in untold if commit.version > since[key]):
            return False
    return bool(short)


def _only(short: Mapping[Key, int], columns: Columns) -> str:
    """The batches in question, so that the engines leave out other files."""
    epochs, batches = ([key[at] for key in short] for at in (0, 1))
    return f"`{columns.epoch}` BETWEEN {min(epochs)} AND {max(epochs)} AND `{columns.batch}` BETWEEN {min(batches)} AND {max(batches)}"
