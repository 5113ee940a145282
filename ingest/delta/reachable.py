"""The effect of RESTORE, REPLACE and full overwrites on a Delta table's history: they revert commits, and RESTORE undoes DELETEs (I4, I6).

A RESTORE keeps the transaction ids of the commits that it reverts. So a transaction id proves nothing; only the history does.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingest.delta.batch_commit import RollBack, Snapshot, Swap
from ingest.delta.commit import Commit, FileKey
from ingest.delta.delta_log import DeltaLog

# The names of Delta and delta-rs in commitInfo. CLONE into an existing table replaces it.
REPLACING = ("REPLACE TABLE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT", "CLONE")


def reverts(commit: Commit) -> bool:
    """Whether this commit can revert earlier commits. The swap of a rebuild does not: its rows replace those of all earlier epochs."""
    if commit.batch_commit is not None and isinstance(commit.batch_commit.case, Swap):
        return False
    overwrites = commit.operation == "WRITE" and commit.parameters.get("mode") == "Overwrite" and not _partial(commit)
    # Each batch of a foreign stream in complete mode replaces all rows.
    overwrites |= commit.operation == "STREAMING UPDATE" and commit.parameters.get("outputMode") == "Complete"
    return commit.operation == "RESTORE" or (commit.operation in REPLACING and commit.version > 0) or overwrites


def copied(log: DeltaLog, now: Snapshot, then: Snapshot) -> str | None:
    """Why a table is not the one that was recorded as `then`; None if it is.

    A copy has another table id, lacks the recorded version, or has another stamp at it. A version that Delta has cleaned from the log
    proves nothing.
    """
    if now.table_id != then.table_id:
        return f"its table id is {now.table_id}, but was {then.table_id}"
    # The log is listed again: another run may have committed since.
    if log.lacks(then.version, then.stamp):
        return f"it was dropped, or is a copy: its version {then.version} is missing, or differs from the one that was recorded"
    return None


def deletes(log: DeltaLog, version: int) -> Iterator[Commit]:
    """Foreign DELETE commits up to `version` that no RESTORE undid, newest first, as far as the log goes back without a gap.

    A DELETE before a replacement or an overwrite counts too: the new content was built from the rows that the DELETE left.
    """
    while version >= 0:
        try:
            commit = log.commit(version)
        except FileNotFoundError:
            return
        # Of ours only the roll-back is one. Another engine may repeat the metadata of any other.
        if commit.operation == "DELETE" and not (commit.batch_commit is not None and isinstance(commit.batch_commit.case, RollBack)):
            yield commit
        version = _restored(log, commit) if commit.operation == "RESTORE" else version - 1


def _restored(log: DeltaLog, restore: Commit) -> int:
    """The version that a RESTORE went back to; -1 if it cannot be determined.

    A RESTORE to a timestamp records the time in an unknown zone, so this function compares files. It returns the newest version with the
    files that the RESTORE left: versions with the same files contain the same rows.
    """
    recorded = str(restore.parameters.get("version"))
    if recorded.isdigit():
        return int(recorded)
    wanted = ({file.key for file in restore.added}, set(restore.removed))
    more: set[FileKey] = set()  # in the older version, not in the one before the RESTORE
    fewer: set[FileKey] = set()  # vice versa
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
    """Whether an overwrite replaced only the rows that a predicate, keys or its partitions cover, and kept all others."""
    conditions = [str(commit.parameters.get(by) or "") for by in ("predicate", "replaceOnCond", "replaceUsingCols")]
    # `replaceWhere` true replaces all rows. Delta's own SQL for it (REPLACE WHERE true) records no predicate.
    if any(text.strip("() ").lower() not in ("", "true") for text in conditions):
        return True
    if any(conditions):
        return False
    if str(commit.parameters.get("isDynamicPartitionOverwrite")).lower() != "true":
        return False
    # Delta records this parameter wherever spark.sql.sources.partitionOverwriteMode is dynamic, but still overwrites a table without
    # partitions as a whole. Only the files show it: a partition's files name it, and without added files none are removed.
    return any(file.partition_values for file in commit.added) or not (commit.added or commit.removed)
