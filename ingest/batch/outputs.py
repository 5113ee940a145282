"""What a worker of the direct writer hands to the driver: one row for each file that it staged, or for rows that the driver writes.

Workers get this module by value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.delta.partition import write_partition
from ingest.kafka.offsets import LANE_BITS

TARGET, QUARANTINE = "target", "quarantine"
# A worker holds so many bytes of rows as Arrow, and about as many again while it writes them.
ROLL_BYTES = 128 * 1024 * 1024
# What a task may hand to the driver. Fewer rows than this make a file that is not worth opening.
SMALL_ROWS, SMALL_BYTES = 20_000, 4 * 1024 * 1024
# Spark's description of an output row.
STAGED = "table string, path string, size bigint, stats string, partition string, rows bigint, hashes binary, lanes binary, "
STAGED += "offsets binary, data binary, copies binary"


class Held:
    """Rows in memory."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self.batches.append(batch)
            self.bytes += batch.nbytes

    def taken(self) -> pa.Table:
        """The rows, which are not held any longer."""
        found, self.batches, self.bytes = pa.Table.from_batches(self.batches), [], 0
        return found


def is_small(rows: pa.Table) -> bool:
    """Whether the driver writes these rows."""
    return bool(rows.num_rows <= SMALL_ROWS and rows.nbytes <= SMALL_BYTES)


def positions(rows: pa.Table, *names: str) -> dict[str, bytes]:
    """Lane (`offsets.lane`) and offset of each row. `names` are the columns of its source, partition and offset."""
    sources, partitions, offsets = (rows[name].to_numpy().astype(np.int64) for name in names)
    return {"lanes": (sources << LANE_BITS | partitions).tobytes(), "offsets": offsets.tobytes()}


def in_memory(table: str, rows: pa.Table, about: dict[str, Any]) -> pa.RecordBatch:
    """The output row of rows that the driver writes."""
    return _output({**about, "table": table, "rows": rows.num_rows, "data": as_bytes(rows)})


def written(
    table: str, folder: str, prefix: str, rows: pa.Table, statistics: Sequence[str], values: dict[str, str | None], about: dict[str, Any]
) -> pa.RecordBatch:
    """Write rows of one partition as a file; returns its output row. `prefix` begins the file's name."""
    staged = write_partition(folder, rows, statistics, values, prefix)
    found = {"path": staged.path, "size": staged.size, "stats": staged.stats, "partition": json.dumps(values)}
    return _output({**about, **found, "table": table, "rows": rows.num_rows})


def as_bytes(table: pa.Table) -> bytes:
    """The table as Arrow's stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _output(found: dict[str, Any]) -> pa.RecordBatch:
    columns = [column.split(" ") for column in STAGED.split(", ")]
    kinds = {"string": pa.string(), "bigint": pa.int64(), "binary": pa.binary()}
    return pa.RecordBatch.from_arrays([pa.array([found.get(name)], kinds[kind]) for name, kind in columns], [name for name, _ in columns])
