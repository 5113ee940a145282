"""Partitions: a table's rows split by their partition values, written into files of one partition each, and read back.

A file of a partition does not contain the partition columns: its add action has their values (partition_value.py). Workers get this module
by value, as they get data_file.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ingest.decode.partition_value import encoded, folder_name, text_or_none, value_of
from ingest.delta.data_file import StagedFile, read_file, read_groups, write_file


class InPartition(Protocol):
    """A file of the table: staged, or live."""

    @property
    def path(self) -> str: ...

    @property
    def partition_values(self) -> Mapping[str, str | None]: ...


def write_files(
    folder: str, rows: pa.Table, statistics_of: Sequence[str], partition_by: Sequence[str], prefix: str = "part-"
) -> list[StagedFile]:
    """Write the rows into new files of the table in `folder`, one for each combination of partition values.

    Raises ValueError for rows that `unwritable` marks.
    """
    return [write_partition(folder, rows.take(pa.array(at)), statistics_of, values, prefix) for values, at in split(rows, partition_by)]


def write_partition(
    folder: str, rows: pa.Table | Iterable[pa.Table], statistics_of: Sequence[str], values: Mapping[str, str | None], prefix: str = "part-"
) -> StagedFile:
    """Write rows of one partition into a new file, as `write_file`. `values` has the partition's values as text."""
    there = [name for name in statistics_of if name not in values]
    inside = "/".join(folder_name(name, text) for name, text in values.items())
    parts = (part.drop_columns(list(values)) for part in ((rows,) if isinstance(rows, pa.Table) else rows))
    return write_file(folder, parts, there, inside, values, prefix)


def split(rows: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[dict[str, str | None], np.ndarray]]:
    """The partition values as text, and the numbers of the rows that have them, for each combination of values."""
    if not partition_by:
        yield {}, np.arange(rows.num_rows)
        return
    groups, columns = np.zeros(rows.num_rows, np.int64), {}
    for name in partition_by:
        codes, values = encoded(rows[name])
        columns[name] = codes, [text_or_none(value) for value in values]
        # Numbered anew after each column, so that the product of many columns cannot overflow.
        _, groups = np.unique(groups * (len(values) + 1) + codes, return_inverse=True)
    order = np.argsort(groups, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1) if rows.num_rows else ():
        found: dict[str, str | None] = {}
        for name, (codes, texts) in columns.items():
            code = int(codes[at[0]])
            found[name] = texts[code] if code >= 0 else None
            if code >= 0 and found[name] is None:
                raise ValueError(f"a value of the partition column {name} cannot be written")
        yield found, at


def read(folder: str, file: InPartition, schema: pa.Schema) -> pa.Table:
    """These columns of a file of the table in `folder`, as `read_file`, with its partition values in their columns.

    Raises FileNotFoundError, and ValueError for a partition value that is not of the column's type.
    """
    return read_file(folder, file.path, schema, _values(file, schema))


def read_by_group(folder: str, file: InPartition, schema: pa.Schema) -> Iterator[pa.Table]:
    """As `read`, one row group after the other."""
    return read_groups(folder, file.path, schema, _values(file, schema))


def _values(file: InPartition, schema: pa.Schema) -> dict[str, Any]:
    texts = {name: text for name, text in file.partition_values.items() if name in schema.names}
    return {name: value_of(text, schema.field(name).type) for name, text in texts.items()}
