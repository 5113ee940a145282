"""The direct writer's commit: one file of the Delta log at exactly the version after the look, by a create that is exclusive and durable.

Who calls has looked at the table (`LiveTable.look`) and decided on that very snapshot. If another commit takes the version first, nothing
is written, and the caller looks and decides anew (I8). The outcome is a value with two cases. After an error the version is read: what
stands there says whether this attempt was stored, by its nonce.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ingest import __version__
from ingest.delta.batch_commit import BatchCommit
from ingest.delta.commit import Commit
from ingest.delta.live_table import LiveTable
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import LocalFiles

# A store that reports errors may have stored nothing. The same bytes are put again so often, then the run stops.
PUTS_MAX = 5


@dataclass(frozen=True)
class Committed:
    """This statement is in the table."""

    commit: Commit


@dataclass(frozen=True)
class Outrun:
    """Another commit has the version: nothing of this statement is in the table."""

    version: int


Outcome = Committed | Outrun


@dataclass(frozen=True)
class Operation:
    """What DESCRIBE HISTORY shows of a commit: Delta's name for it, its parameters and metrics."""

    name: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, int]


def put(
    files: LocalFiles, table: LiveTable, about: BatchCommit | str, operation: Operation, actions: Iterable[Mapping[str, Any]]
) -> Outcome:
    """Commit `actions` as the version after the one that `table` was last looked at. `about` is the metadata of the commit.

    With a BatchCommit the commit also carries its transaction id. Raises the store's error if nothing can be stored.
    """
    version, nonce = table.version + 1, str(uuid.uuid4())
    info: dict[str, Any] = {"timestamp": round(time.time() * 1000), "operation": operation.name}
    info["operationParameters"] = dict(operation.parameters)
    if version:
        info["readVersion"] = version - 1
    # No `isBlindAppend`: with it, Delta in Spark takes our appends for reads of the table, and a MERGE of another writer fails.
    info |= {"isolationLevel": "Serializable", "operationMetrics": {name: str(number) for name, number in operation.metrics.items()}}
    info |= {"engineInfo": f"Oncelake/{__version__}", "txnId": nonce}
    lines: list[Mapping[str, Any]] = [{"commitInfo": info | {"userMetadata": about if isinstance(about, str) else about.to_json()}}]
    if isinstance(about, BatchCommit):
        moment = round(time.time() * 1000)
        lines.append({"txn": {"appId": about.app_id, "version": about.id.txn_version, "lastUpdated": moment}})
    data = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in (*lines, *actions)).encode()
    for attempt in range(1, PUTS_MAX + 1):
        try:
            files.create(table.path_of(version), data)
        except OSError:
            if files.read(table.path_of(version)) is None and attempt == PUTS_MAX:
                raise
        there = files.read(table.path_of(version))
        if there == data:
            try:
                table.refuse_another()  # dropped and made again since the look: our commit is behind another table's
            except RunStopped:
                files.remove_file(table.path_of(version))
                raise
            return Committed(table.wrote(data))
        if there is not None:
            return Outrun(version)
    raise OSError(f"{table.path_of(version)} was stored, and is not there")
