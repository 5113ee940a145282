"""The direct writer's commit: one file of the Delta log at exactly the version after the look, by a create that is exclusive and durable.

Who calls has looked at the table (`LiveTable.look`) and decided on that very snapshot. If another commit takes the version first, nothing
is written, and the caller looks and decides anew (I8). The outcome is a value with two cases. After an error the version is read: what
stands there says whether this attempt was stored, by its nonce. If the store keeps reporting errors, the exception tells the two outcomes
apart: NotStored and OutcomeUnknown.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ingest import __version__
from ingest.delta.batch_commit import FENCED, Batch, BatchCommit
from ingest.delta.commit import Commit
from ingest.delta.live_table import LiveTable
from ingest.delta.posting import Posting
from ingest.runtime import crash_points
from ingest.runtime.errors import IngestError, RunStopped
from ingest.runtime.files import LocalFiles

# A store that reports errors may have stored nothing. The same bytes are put again after each of these pauses, then the run stops. They
# grow, because a store that is overloaded needs rest; all together they are shorter than the interval between two batches may be.
PAUSES_S = (0.1, 0.3, 0.9, 2.0)


@dataclass(frozen=True)
class Committed:
    """This statement is in the table."""

    commit: Commit


@dataclass(frozen=True)
class Outrun:
    """Another commit has the version: nothing of this statement is in the table."""

    version: int


Outcome = Committed | Outrun


class NotStored(OSError):
    """The store reported errors, and the version was read as absent after the last one: the statement is surely not in the table."""


class OutcomeUnknown(OSError):
    """The store reported errors, and the version could not be read, or not be made durable: the commit may be in the table."""


def nothing_stored(error: BaseException) -> bool:
    """Whether a statement that ended with this error is surely not in the table, so that the files it would have named may be deleted.

    True for NotStored, FENCED and COMMIT_OUTRUN. Any other error, also a signal, may have come after the commit.
    """
    return isinstance(error, NotStored) or (isinstance(error, IngestError) and error.code in ("FENCED", "COMMIT_OUTRUN"))


@dataclass(frozen=True)
class Operation:
    """What DESCRIBE HISTORY shows of a commit: Delta's name for it, its parameters and metrics. And what it changes in the books."""

    name: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, int]
    postings: tuple[Posting, ...] = ()


def put(
    files: LocalFiles,
    table: LiveTable,
    about: BatchCommit,
    operation: Operation,
    actions: Iterable[Mapping[str, Any]],
    pause: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Commit `actions` as the version after the one that `table` was last looked at. `about` is the metadata of the commit, to which
    the postings of `operation` are added.

    A fenced statement also carries its transaction id. `pause` waits so many seconds before another attempt.

    Raises NotStored if the store stores nothing (`nothing_stored` is then true). Raises OutcomeUnknown if it does not tell: the commit may
    be in the table, so the files that it names must stay. Raises as `LiveTable.refuse_another`, after it has taken back the commit.
    """
    version = table.version + 1
    data = _content(version, about, operation, actions)
    if not _stored(files, table, version, data, pause):
        return Outrun(version)
    if isinstance(about.case, Batch) and not table.path.endswith("quarantine"):
        crash_points.at("put_sent", about.id.number)
    try:
        table.refuse_another()  # dropped and made again since the look: our commit is behind another table's
    except RunStopped:
        files.remove_file(table.path_of(version))
        raise
    return Committed(table.wrote(data))


def _content(version: int, about: BatchCommit, operation: Operation, actions: Iterable[Mapping[str, Any]]) -> bytes:
    """The commit's file. Its `txnId` is new, so no other commit has the same bytes."""
    moment = round(time.time() * 1000)
    info: dict[str, Any] = {"timestamp": moment, "operation": operation.name}
    info["operationParameters"] = dict(operation.parameters)
    if version:
        info["readVersion"] = version - 1
    # No `isBlindAppend`: with it, a MERGE of another engine under WriteSerializable would not look for conflicts with our rows.
    info |= {"isolationLevel": "Serializable", "operationMetrics": {name: str(number) for name, number in operation.metrics.items()}}
    info |= {"engineInfo": f"Oncelake/{__version__}", "txnId": str(uuid.uuid4())}
    about = replace(about, postings=(*about.postings, *operation.postings))
    lines: list[Mapping[str, Any]] = [{"commitInfo": info | {"userMetadata": about.to_json()}}]
    if isinstance(about.case, FENCED):
        lines.append({"txn": {"appId": about.app_id, "version": about.id.txn_version, "lastUpdated": moment}})
    return "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in (*lines, *actions)).encode()


def _stored(files: LocalFiles, table: LiveTable, version: int, data: bytes, pause: Callable[[float], None]) -> bool:
    """Store `data` as this version, on the disk; False if another commit is there. Raises NotStored and OutcomeUnknown."""
    path = table.path_of(version)
    failure: OSError | None = None
    surely_not = True
    for wait_s in (0.0, *PAUSES_S):
        if wait_s:
            pause(wait_s)
        try:
            if files.create(table.path_of(version), data):
                return True
        except OSError as error:
            failure = error
        try:
            there = files.read(path)
            surely_not = there is None
            if there == data:  # of an earlier attempt, or of this one: an error came after its name was there
                files.sync_name(path)
                return True
            if there is not None:
                return False
        except OSError as error:
            failure, surely_not = error, False
    kind = NotStored if surely_not else OutcomeUnknown
    if failure is None:
        raise kind(f"{path} exists for a create, and not for a read")
    if failure.errno is None:
        raise kind(str(failure)) from failure
    raise kind(failure.errno, failure.strerror, failure.filename or path) from failure
