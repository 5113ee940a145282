"""Removes the commits of a table's log that are older than its retention, below a checkpoint that has all they said.

Delta in Spark does so behind its checkpoints. The rules are those of PROTOCOL.md, Metadata Cleanup: a commit goes only if a complete
checkpoint follows that is as old as the retention itself, so that every version of that time can still be read.
"""

from __future__ import annotations

import os
import time
from itertools import takewhile

import pyarrow.parquet as pq

from ingest.delta.delta_log import commit_versions, newest_complete
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.expired_files import seconds_of
from ingest.delta.log_errors import log_damaged
from ingest.runtime.files import LocalFiles, local_path

PROPERTY, DEFAULT = "delta.logRetentionDuration", "interval 30 days"
SWITCH = "delta.enableExpiredLogCleanup"


def clean(writer: DirectWriter, path: str) -> int:
    """Remove expired commits and older checkpoints, the oldest first; returns how many commits. The caller has completed the ledger.

    Raises Refused LOG_TORN if the checkpoint cannot be read, InvalidInput DIRECT_UNFIT for a retention that only Delta in Spark can read,
    and as `LiveTable.look`.
    """
    table = writer.looked_at(path)
    assert table.state is not None, "the look refuses a table without commits"
    if table.state.properties.get(SWITCH, "true").lower() == "false":
        return 0
    before_s = time.time() - seconds_of(table.state, path, PROPERTY, DEFAULT)
    names, folder = LocalFiles().names(f"{path}/_delta_log"), local_path(f"{path}/_delta_log")
    expired = takewhile(lambda version: os.stat(folder / f"{version:020}.json").st_mtime <= before_s, commit_versions(names))
    kept = max(expired, default=-1)  # the last of the oldest commits that are all expired
    checkpoint, files = newest_complete([name for name in names if name[:20].isdecimal() and int(name[:20]) <= kept])
    if checkpoint <= 0 or table.log.checkpoint_version() < checkpoint:
        return 0
    for name in files:
        _refuse_unreadable(path, str(folder / name))
    old = [name for name in names if name[:20].isdecimal() and int(name[:20]) < checkpoint]
    for name in old:  # ascending: a log that is cut off here begins later, and has no hole
        (folder / name).unlink(missing_ok=True)
    return len([*commit_versions(old)])


def _refuse_unreadable(path: str, checkpoint: str) -> None:
    """Raises Refused LOG_TORN for a checkpoint that cannot be read to its end."""
    try:
        with pq.ParquetFile(checkpoint) as file:
            for _ in file.iter_batches():
                pass
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise log_damaged(path, checkpoint) from error
