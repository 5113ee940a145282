"""The rows of a live table, for statements of the direct writer: found by a condition, added, and files written again without Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.delta.data_file import StagedFile, sync
from ingest.delta.delta_sql import At, DataFusion
from ingest.delta.direct_fit import listed, refuse_rewrite
from ingest.delta.held_rows import held
from ingest.delta.live_table import LiveTable
from ingest.delta.partition import read, write_files, write_partition
from ingest.delta.statistics import statistics
from ingest.runtime.canonical_json import read_json
from ingest.runtime.files import local_path

Actions = list[Mapping[str, Any]]


def schema_of(table: LiveTable) -> pa.Schema:
    """The table's columns."""
    assert table.state is not None, "the table exists"
    return to_arrow_schema(T.StructType.fromJson(read_json(table.state.schema)), timezone="UTC")


def matching(table: LiveTable, names: Sequence[str], condition: str) -> pa.Table:
    """These columns of the rows that meet a condition, at the snapshot that was looked at. Raises Unreadable."""
    columns = ", ".join(f"`{name}`" for name in names)
    found = DataFusion().stream(f"SELECT {columns} FROM {{rows}} WHERE {condition}", rows=At(table.path, table.version))
    batches = [pa.record_batch(each) for each in found]
    wanted = pa.schema([schema_of(table).field(name) for name in names])
    return pa.Table.from_batches(batches).cast(wanted) if batches else wanted.empty_table()


def added(table: LiveTable, rows: pa.Table) -> Actions:
    """Write rows with the table's columns into new files, on the disk; returns the actions. A column that `rows` lacks is NULL."""
    assert table.state is not None, "the table exists"
    columns = [rows[each.name] if each.name in rows.column_names else pa.nulls(rows.num_rows, each.type) for each in schema_of(table)]
    whole = pa.Table.from_arrays(columns, schema_of(table).names).cast(schema_of(table))
    staged = write_files(str(local_path(table.path)), whole, described(table), table.state.partition_by)
    sync(str(local_path(table.path)), [each.path for each in staged])
    return [each.addition() for each in staged]


def rewritten(table: LiveTable, rows: pa.Table, change: Callable[[pa.Table, np.ndarray], pa.Table]) -> Actions:
    """Write the files that hold one of `rows` (by its columns) again, on the disk; returns the actions.

    `change` makes the new rows of a file from its rows and from which of them are held. Raises InvalidInput DIRECT_UNFIT for a table with a
    change data feed, before it writes anything.
    """
    assert table.state is not None, "the table exists"
    now, schema, folder = round(time.time() * 1000), schema_of(table), str(local_path(table.path))
    actions: Actions = []
    for file in list(table.live.values()):
        hit = held(read(folder, file, pa.schema([schema.field(name) for name in rows.column_names])), rows)
        if not hit.any():
            continue
        refuse_rewrite(table.state, table.path)
        found = read(folder, file, schema)
        actions.append(file.removal(now))
        if (left := change(found, hit)).num_rows:  # no change moves a row to another partition
            staged = write_partition(folder, left.cast(schema), described(table) or tuple(file.least), file.partition_values)
            sync(folder, [staged.path])
            actions.append(staged.addition())
    return actions


def linked(table: LiveTable, source: LiveTable) -> list[StagedFile]:
    """Give the files of `source` a second name each (a hard link) in the folder of `table`, on the disk, with statistics as `table` wants.

    The second name follows from the first one, so a repetition after a crash takes the links that are there.
    """
    schema, folder, found = schema_of(table), str(local_path(table.path)), []
    for file in source.live.values():
        inside, name = os.path.split(file.path)
        path = os.path.join(inside, f"swap-{name}")
        whole = os.path.join(folder, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with suppress(FileExistsError):
            os.link(os.path.join(local_path(source.path), file.path), whole)
        os.utime(whole)  # a VACUUM of another engine goes by the time of a file that no commit names yet
        names = [name for name in described(table) if name not in file.partition_values]
        staged = StagedFile(path, os.path.getsize(whole), 0, "{}", file.partition_values)
        rows = read(folder, staged, pa.schema([schema.field(name) for name in names or schema.names[:1]]))
        found.append(replace(staged, rows=rows.num_rows, stats=statistics(rows, names)))
    sync(folder, [each.path for each in found])
    return found


def described(table: LiveTable) -> tuple[str, ...]:
    """The columns of which files get statistics. The property of the table may also name nested fields, and columns that are gone."""
    assert table.state is not None, "the table exists"
    return tuple(name for name in listed(table.state) if name in schema_of(table).names)
