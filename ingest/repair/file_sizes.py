"""The files of a Delta table: how many there are, and how many fewer after a compaction. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from ingest.delta.delta_sql import DataFusion, Engine, by_path, unreadable
from ingest.delta.merge_groups import LARGE_BYTES, SMALL_BYTES
from ingest.runtime.files import local_path

# A table of up to ten files more than necessary is read as fast as one of a single file.
SAVED_FILES_MIN = 10


@dataclass(frozen=True)
class FileSizes:
    """The files of a table's newest version. `small` is the number of files below SMALL_BYTES, `saved` how many fewer there could be."""

    files: int
    bytes: int
    small: int
    saved: int

    @property
    def worth_compacting(self) -> bool:
        """Whether a compaction would be noticed."""
        return self.saved >= SAVED_FILES_MIN


def summed(sizes: Iterable[tuple[tuple[object, ...], int]]) -> FileSizes:
    """The summary of files, each given as its partition values and its size. Delta merges files of one partition only. Pure."""
    files = total = 0
    small: dict[tuple[object, ...], tuple[int, int]] = {}
    for partition, size in sizes:
        files, total = files + 1, total + size
        if size < SMALL_BYTES:
            number, together = small.get(partition, (0, 0))
            small[partition] = number + 1, together + size
    saved = sum(number - max(1, ceil(together / LARGE_BYTES)) for number, together in small.values())
    return FileSizes(files, total, sum(number for number, _ in small.values()), saved)


def file_sizes(engine: Engine, table: str) -> FileSizes:
    """The files of a table. Through Spark only their number and total size are known, as if all had the same size. Raises Unreadable."""
    if isinstance(engine, DataFusion):
        return summed(_of(file) for file in _added(table))
    with unreadable():
        (row,) = engine.session.sql(f"DESCRIBE DETAIL {by_path(table)}").collect()
    files, total = int(row["numFiles"]), int(row["sizeInBytes"])
    return summed(((), total // files) for _ in range(files))


def _added(table: str) -> list[dict[str, Any]]:
    import pyarrow as pa
    from deltalake import DeltaTable

    with unreadable():
        added = pa.table(DeltaTable(str(local_path(table))).get_add_actions(flatten=True))
        wanted = [name for name in added.schema.names if name == "size_bytes" or name.startswith("partition.")]
        rows: list[dict[str, Any]] = added.select(wanted).to_pylist()
    return rows


def _of(file: Mapping[str, Any]) -> tuple[tuple[object, ...], int]:
    return tuple(value for name, value in file.items() if name != "size_bytes"), int(file["size_bytes"])
