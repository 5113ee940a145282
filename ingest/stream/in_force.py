"""Which commits of a Delta table are in force: what RESTORE, REPLACE or an overwrite left out is history and nothing more (I2).

RESTORE keeps the pairs of what it takes away, so that a pair proves nothing; only the history does. After
an ordinary commit what was in force before still is, and the commit too; after a RESTORE what was in force at the version
it went back to; after a replacement nothing of before. So the commits in force are one chain, walked from the newest back:
a RESTORE jumps, a replacement ends it. DELETE, UPDATE, OPTIMIZE, VACUUM and other people's appends are ordinary: they
change rows, and leave what was committed committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ingest.stream.delta_log import Commit, DeltaLog, FileKey

# As Delta and delta-rs name them in commitInfo. CLONE on an existing table replaces it.
REPLACING = ("REPLACE TABLE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT", "CLONE")


def leaves_out(commit: Commit) -> bool:
    """Whether this commit can leave out what was committed before it."""
    overwrites = commit.operation == "WRITE" and commit.parameters.get("mode") == "Overwrite" and not _partial(commit)
    # A stream in complete mode, somebody's own: each of its batches replaces all rows.
    overwrites |= commit.operation == "STREAMING UPDATE" and commit.parameters.get("outputMode") == "Complete"
    return commit.operation == "RESTORE" or (commit.operation in REPLACING and commit.version > 0) or overwrites


@dataclass
class InForce:
    """The commits in force of one table, as it was at `version` (None: its newest). They may be walked in part; what is known is kept."""

    log: DeltaLog
    version: int | None = None
    _walked: list[Commit] = field(default_factory=list)
    _next: int | None = None
    _before: int = -1
    _floor: int = 0

    def commits(self) -> Iterator[Commit]:
        """From the newest to the oldest that is in force and that the log still has."""
        position = 0
        while True:
            while position < len(self._walked):
                yield self._walked[position]
                position += 1
            if not self._step():
                return

    def holds(self, version: int) -> bool:
        """Whether this version is in force, in the log or before it."""
        for commit in self.commits():
            if commit.version <= version:
                return commit.version == version
        return version <= self.before_the_log()

    def left_out(self, since: int = -1) -> Iterator[Commit]:
        """From the newest back to behind version `since`, those that the log has and that are not in force."""
        chain = {commit.version for commit in self.commits()}
        for commit in self.log.newest_first():
            if commit.version <= since:
                return
            if commit.version not in chain:
                yield commit

    def before_the_log(self) -> int:
        """Versions up to this one that the log no longer has are in force too; -1: none. Walks to the end."""
        while self._step():
            pass
        return self._before

    def _step(self) -> bool:
        if self._next is None:
            versions = [each for each in self.log.versions() if self.version is None or each <= self.version]
            self._floor = _first_of_the_unbroken(versions)
            self._next = versions[-1] if versions else -1
        if self._next < 0:
            return False
        if self._next < self._floor:
            self._before, self._next = self._next, -1
            return False
        commit = self.log.commit(self._next)
        self._walked.append(commit)
        self._next = self._former(commit)
        return True

    def _former(self, commit: Commit) -> int:
        """The version whose state this commit continues; -1 for none."""
        if commit.operation == "RESTORE":
            told = str(commit.parameters.get("version"))
            return int(told) if told.isdigit() else self._restored(commit)
        return -1 if leaves_out(commit) else commit.version - 1

    def _restored(self, restore: Commit) -> int:
        """The version that a RESTORE to a time went back to: the newest whose files are those that the RESTORE left.

        Its commit names a time in some zone; its actions are beyond doubt. Versions with the same files hold the same rows.
        """
        wanted = ({file.key for file in restore.added}, set(restore.removed))
        more: set[FileKey] = set()  # in the older state, not in the one before the RESTORE
        fewer: set[FileKey] = set()  # the other way round
        for version in range(restore.version - 1, self._floor - 1, -1):
            if (more, fewer) == wanted:
                return version
            commit = self.log.commit(version)
            for file in commit.added:
                more.discard(file.key) if file.key in more else fewer.add(file.key)
            for key in commit.removed:
                fewer.discard(key) if key in fewer else more.add(key)
        # It went back to before the log's first commit; to which version nobody can tell, so none counts.
        return self._floor - 1 if (more, fewer) == wanted else -1


def _partial(commit: Commit) -> bool:
    """Whether an overwrite replaced only what a predicate, keys or its partitions cover; the rest of the table stayed."""
    told = [str(commit.parameters.get(by) or "") for by in ("predicate", "replaceOnCond", "replaceUsingCols")]
    # `replaceWhere` true leaves nothing; Delta's own SQL for it (REPLACE WHERE true) tells no predicate.
    if any(text.strip("() ").lower() not in ("", "true") for text in told):
        return True
    if any(told):
        return False
    if str(commit.parameters.get("isDynamicPartitionOverwrite")).lower() != "true":
        return False
    # Delta says so wherever spark.sql.sources.partitionOverwriteMode is dynamic. A table without partitions it overwrites as a whole all
    # the same; only the files tell: those of a partition name it, and where none was written none is removed.
    return any(file.partition_values for file in commit.added) or not (commit.added or commit.removed)


def _first_of_the_unbroken(versions: list[int]) -> int:
    """The least version from which on no commit is missing: before a gap nothing can be concluded."""
    first = versions[-1] if versions else 0
    for version in reversed(versions):
        if version < first - 1:
            break
        first = version
    return first
