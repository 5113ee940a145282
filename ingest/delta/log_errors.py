"""Errors for a Delta log that is missing, damaged, or does not have all commits."""

from __future__ import annotations

from ingest.runtime.errors import InvalidInput, Refused


def table_missing(name: str, where: str, expected: str = "a table that `ingest run` has created.") -> InvalidInput:
    """The error for a command on a table `name` (`pipeline.table`) whose Delta table, at the path `where`, does not exist."""
    return InvalidInput(
        "TABLE_MISSING",
        f"there is no Delta table at {where}.",
        expected=expected,
        remedy=f"run `ingest run {name}` first, or name the right --lake.",
    )


def log_torn(table: str, hole: int, newest: int) -> Refused:
    """The error for a Delta log that lacks a commit between its last checkpoint and its newest commit."""
    return Refused(
        "LOG_TORN",
        f"the log of {table} lacks the commit of version {hole}, but continues to version {newest}.",
        expected="each commit since the log's last checkpoint: Delta needs all of them to open the table. The missing content is unknown.",
        remedy=f"put {table}/_delta_log/{hole:020}.json back from a copy. If there is none, move {table} away: the next start reports "
        "how to continue.",
    )


def log_damaged(table: str, file: str) -> Refused:
    """The error for a file of a Delta log that is cut off or otherwise not in Delta's format."""
    return Refused(
        "LOG_TORN",
        f"{file} is not in the format in which Delta writes it.",
        expected="a JSON value in each line, or a complete Parquet file of a checkpoint. The content of the damaged file is unknown.",
        remedy="put the file back from a copy. If there is none, remove the file if Delta can do without it: the log has a checkpoint of a "
        "later version, or the file is itself a checkpoint and all commits before it exist. Otherwise move "
        f"{table} away, which Delta cannot open either: the next start reports how to continue.",
    )


def catalog_managed(table: str, feature: str) -> Refused:
    """The error for a table whose commits a catalog decides: its log may lack the newest ones."""
    return Refused(
        "CATALOG_MANAGED",
        f"{table} has the Delta feature {feature}: its catalog decides which commits count, and its log may lack the newest ones.",
        expected="a table that is read and written by its path.",
        remedy="name a --lake outside the catalog's own storage. The next run creates the tables there; "
        "`ingest register` makes them known to the catalog as external tables.",
    )
