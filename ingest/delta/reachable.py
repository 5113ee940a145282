"""What RESTORE, REPLACE and full overwrites make of a Delta table's history: they leave out commits, and RESTORE undoes DELETEs (I4, I6).

RESTORE keeps the transaction ids of what it takes away, so a transaction id proves nothing; only the history does.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingest.delta.delta_log import Commit, DeltaLog, FileKey

# As Delta and delta-rs name them in commitInfo. CLONE on an existing table replaces it.
REPLACING = ("REPLACE TABLE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT", "CLONE")


def reverts(commit: Commit) -> bool:
    """Whether this commit can leave out what was committed before it."""
    overwrites = commit.operation == "WRITE" and commit.parameters.get("mode") == "Overwrite" and not _partial(commit)
    # A stream in complete mode, somebody's own: each of its batches replaces all rows.
    overwrites |= commit.operation == "STREAMING UPDATE" and commit.parameters.get("outputMode") == "Complete"
    return commit.operation == "RESTORE" or (commit.operation in REPLACING and commit.version > 0) or overwrites


def deletes(log: DeltaLog, version: int) -> Iterator[Commit]:
    """DELETE commits of others up to `version` that no RESTORE undid, the newest first, as far as the log goes back without a gap.

    Those before a replacement or an overwrite count: it was made of the rows that they left.
    """
    while version >= 0:
        try:
            commit = log.commit(version)
        except FileNotFoundError:
            return
        if commit.operation == "DELETE" and commit.batch_commit is None:
            yield commit
        version = _restored(log, commit) if commit.operation == "RESTORE" else version - 1


def _restored(log: DeltaLog, restore: Commit) -> int:
    """The version that a RESTORE went back to; -1 if nobody can tell.

    One to a time names the time in some zone; its files are beyond doubt: the newest version with the files that the RESTORE left.
    Versions with the same files hold the same rows.
    """
    reported = str(restore.parameters.get("version"))
    if reported.isdigit():
        return int(reported)
    wanted = ({file.key for file in restore.added}, set(restore.removed))
    more: set[FileKey] = set()  # in the older state, not in the one before the RESTORE
    fewer: set[FileKey] = set()  # the other way round
    for version in range(restore.version - 1, -1, -1):
        if (more, fewer) == wanted:
            return version
        try:
            commit = log.commit(version)
        except FileNotFoundError:
            break
        for file in commit.added:
            more.discard(file.key) if file.key in more else fewer.add(file.key)
        for key in commit.removed:
            fewer.discard(key) if key in fewer else more.add(key)
    return -1


def _partial(commit: Commit) -> bool:
    """Whether an overwrite replaced only what a predicate, keys or its partitions cover; the rest of the table stayed."""
    reported = [str(commit.parameters.get(by) or "") for by in ("predicate", "replaceOnCond", "replaceUsingCols")]
    # `replaceWhere` true leaves nothing; Delta's own SQL for it (REPLACE WHERE true) tells no predicate.
    if any(text.strip("() ").lower() not in ("", "true") for text in reported):
        return True
    if any(reported):
        return False
    if str(commit.parameters.get("isDynamicPartitionOverwrite")).lower() != "true":
        return False
    # Delta says so wherever spark.sql.sources.partitionOverwriteMode is dynamic. A table without partitions it overwrites as a whole all
    # the same; only the files tell: those of a partition name it, and where none was written none is removed.
    return any(file.partition_values for file in commit.added) or not (commit.added or commit.removed)
