"""Refusals of a damaged Delta log."""

from __future__ import annotations

from ingest.runtime.errors import Refused


def log_torn(table: str, hole: int, newest: int) -> Refused:
    """A Delta log that lacks a commit between its last checkpoint and its newest commit."""
    return Refused(
        "LOG_TORN",
        f"the log of {table} lacks the commit of version {hole}, and goes on to version {newest}.",
        expected="each commit since the log's last checkpoint: Delta opens the table only with all of them; what that one held is unknown.",
        remedy=f"put {table}/_delta_log/{hole:020}.json back from a copy; if there is none, move {table} away, and the next start tells "
        "how to go on.",
    )


def log_damaged(table: str, file: str) -> Refused:
    """A file of a Delta log that is cut off, or otherwise not what Delta writes."""
    return Refused(
        "LOG_TORN",
        f"{file} is not in the format in which Delta writes it.",
        expected="a JSON value in each line, or a whole Parquet file of a checkpoint: what it held is unknown.",
        remedy="put the file back from a copy. If there is none: where the log has a checkpoint of a later version, or this is one and all "
        f"commits before it are there, take the file away, since Delta does without it; else move {table} away, which Delta does not open "
        "either, and the next start tells how to go on.",
    )
