"""Our commits in the log of one table: the one way in which everybody reads them."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.delta.batch_commit import BatchCommit, Case
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog


def newest_first(log: DeltaLog, name: str, *cases: type[Case]) -> Iterator[tuple[Commit, BatchCommit]]:
    """The commits of `name` (`pipeline.table`) that are one of these cases (none given: any), newest first, as far as the log goes back.

    Raises Refused LOG_TORN.
    """
    for commit in log.newest_first():
        found = commit.batch_commit
        if found is not None and found.name == name and (not cases or isinstance(found.case, cases)):
            yield commit, found
