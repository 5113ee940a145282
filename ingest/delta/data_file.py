"""Write a data file of a Delta table with pyarrow, and describe it as the add action of a commit.

A file is not part of the table before a commit names it. Workers get this module by value, as they get statistics.py.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.delta.statistics import Statistics

COMPRESSION = "zstd"
# A path in the log is a URI: these characters need no escape there (RFC 2396).
SAFE = "/=+:@,;!~*'()&$-_."


@dataclass(frozen=True)
class StagedFile:
    """A file in the table's folder that no commit names yet. `path` is relative to the table, `stats` the statistics as JSON."""

    path: str
    size: int
    rows: int
    stats: str
    partition_values: Mapping[str, str | None] = field(default_factory=dict)

    def addition(self, *, data_change: bool = True) -> dict[str, Any]:
        """The action that adds the file to the table."""
        about = {"path": quote(self.path, safe=SAFE), "partitionValues": dict(self.partition_values), "size": self.size}
        about |= {"modificationTime": round(time.time() * 1000), "dataChange": data_change, "stats": self.stats}
        return {"add": about}


def write_file(
    folder: str,
    rows: pa.Table | Iterable[pa.Table],
    statistics_of: Sequence[str],
    inside: str = "",
    values: Mapping[str, str | None] | None = None,
    prefix: str = "part-",
) -> StagedFile:
    """Write the rows into a new file of the table in `folder`, a local path. Each table of several becomes a row group.

    `inside` is the folder of the rows' partition in it, `values` are their partition values as text (partition.py). `prefix` begins the
    file's name.
    """
    name = os.path.join(inside, f"{prefix}{uuid.uuid4()}.zstd.parquet")
    path = os.path.join(folder, name)
    if inside:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    found, number = Statistics(statistics_of), 0
    writer: pq.ParquetWriter | None = None
    try:
        for part in (rows,) if isinstance(rows, pa.Table) else rows:
            if writer is None:
                # Without Arrow's own schema in the file: readers take the types from Parquet and from the table.
                writer = pq.ParquetWriter(path, part.schema, compression=COMPRESSION, store_schema=False, coerce_timestamps="us")
            writer.write_table(part)
            found.add(part)
            number += part.num_rows
        assert writer is not None, "at least one table"
        writer.close()
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(path)
        raise
    return StagedFile(name, os.path.getsize(path), number, found.as_json(), dict(values or {}))


def read_file(folder: str, path: str, schema: pa.Schema, values: Mapping[str, Any] | None = None) -> pa.Table:
    """These columns of a file of the table in `folder`, which any engine may have written.

    A column that the file lacks has its value of `values` in every row, or is NULL.

    Raises FileNotFoundError.
    """
    return next(_read(folder, path, schema, values or {}, by_group=False))


def read_groups(folder: str, path: str, schema: pa.Schema, values: Mapping[str, Any] | None = None) -> Iterator[pa.Table]:
    """As `read_file`, one row group after the other, on this thread alone."""
    return _read(folder, path, schema, values or {}, by_group=True)


def _read(folder: str, path: str, schema: pa.Schema, given: Mapping[str, Any], *, by_group: bool) -> Iterator[pa.Table]:
    # Spark may write times as INT96, which is read as nanoseconds unless told otherwise: years before 1677 would wrap around.
    with pq.ParquetFile(os.path.join(folder, path), coerce_int96_timestamp_unit="us") as file:
        names = [name for name in schema.names if name in file.schema_arrow.names and name not in given]
        groups = range(file.num_row_groups) if by_group else (None,)
        for group in groups:
            there = file.read(columns=names) if group is None else file.read_row_group(group, columns=names, use_threads=False)
            rows = file.metadata.num_rows if group is None else file.metadata.row_group(group).num_rows
            columns = [
                there[field.name].cast(field.type) if field.name in there.column_names else _same(given.get(field.name), field.type, rows)
                for field in schema
            ]
            yield pa.Table.from_arrays(columns, schema=schema)


def _same(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def refuse_changed(folder: str, files: Sequence[StagedFile]) -> None:
    """Raises OSError for a file that is gone, or has another size than was staged. Before each commit that names it: a VACUUM deletes what
    nobody has named for as long as it keeps files, and a size too small would make a reader find nothing."""
    for each in files:
        if (size := os.path.getsize(os.path.join(folder, each.path))) != each.size:
            raise OSError(f"{each.path} has {size} bytes, and {each.size} were staged")


def sync(folder: str, names: Sequence[str]) -> None:
    """Bring files and their folders onto the disk, before a commit names them."""
    folders = {""}
    for name in names:
        while name := os.path.dirname(name):  # each folder of a partition is an entry of the one above it
            folders.add(name)
    for path in (os.path.join(folder, name) for name in (*names, *sorted(folders, reverse=True))):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
