"""Whether the executors of a cluster see the lake's own folder, asked before a run writes anything. Workers get this module by value.

The executors write the data files. On a disk that is not the driver's, they would be missing in the table.
"""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from ingest.runtime.errors import InvalidEnvironment
from ingest.runtime.files import LocalFiles, local_path

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

MARKER = "driver"
# Twice as many tasks as cores: each executor that is there gets one.
TASKS_A_CORE = 2


def refuse_unshared(session: SparkSession, name: str, lake: str) -> None:
    """Raises InvalidEnvironment LAKE_NOT_SHARED if an executor cannot write files into the local lake of the table `name` that this process
    then sees. Whoever writes, executors write the data files.

    An executor that joins later is not asked. With the direct writer its files are missing at the commit, so the batch fails and nothing of
    it is stored.
    """
    master = session.sparkContext.master or "local"
    if master == "local" or master.startswith("local["):
        return
    folder, secret, files = local_path(lake) / f".executors-{uuid.uuid4().hex}", uuid.uuid4().hex, LocalFiles()
    try:
        files.write(f"{folder}/{MARKER}", secret.encode())
        tasks = TASKS_A_CORE * max(1, session.sparkContext.defaultParallelism)
        look = partial(_written, str(folder), secret)
        answers = session.range(0, tasks, numPartitions=tasks).mapInArrow(look, "host string, file string, error string").toArrow()
        for answer in answers.to_pylist():
            if answer["error"] or not (folder / answer["file"]).exists():
                why = f" ({answer['error']})" if answer["error"] else ""
                raise InvalidEnvironment(
                    "LAKE_NOT_SHARED",
                    f"the lake of {name}, {lake}, is not the same folder on the executor {answer['host']}{why}. Nothing was written.",
                    expected="a lake that driver and executors see under the same path.",
                    remedy="mount that folder under the same path on every machine of the cluster, where the executors' user may write; "
                    "or run with --master local[*].",
                )
    finally:
        files.remove(str(folder))


def _written(folder: str, secret: str, _: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row a task: the executor's host, the file that it has written, and what it could not do."""
    file, error = uuid.uuid4().hex, ""
    try:
        if Path(folder, MARKER).read_text(encoding="ascii") != secret:
            error = "another folder has that path"
        else:
            os.close(os.open(os.path.join(folder, file), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError as found:
        error = found.strerror or str(found)
    yield pa.RecordBatch.from_pydict({"host": [socket.gethostname()], "file": [file], "error": [error]})
