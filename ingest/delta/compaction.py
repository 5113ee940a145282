"""Compaction by the direct writer: small files of one partition become one file, in a commit that changes no row, beside other writers.

The files are written once, before the commit, which rebases: a commit in between may add files, and the same actions then go behind it.
If it has removed a file of a group, the group is dropped and what was written for it is deleted, so no row comes back. A merged file
carries no tags: on a clustered table it is not clustered until the next OPTIMIZE of Delta in Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ingest.delta.batch_commit import BatchCommit
from ingest.delta.data_file import StagedFile, refuse_changed, sync
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.erased_rows import unlink
from ingest.delta.live_table import DataFile, LiveTable
from ingest.delta.merge_groups import Group
from ingest.delta.partition import read_by_group, write_partition
from ingest.delta.put import Operation, nothing_stored
from ingest.delta.table_rows import Actions, described, schema_of
from ingest.runtime import crash_points
from ingest.runtime.files import local_path

# Rows are kept until a row group is large enough: as many as pyarrow's own row groups have, or so many bytes in memory.
GROUP_ROWS, GROUP_BYTES = 1024 * 1024, 64 * 1024**2
# Files of one commit. A maintenance that is killed loses no more work than that.
COMMIT_BYTES = 128 * 1024**2
PARAMETERS = {"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": "false"}


@dataclass(frozen=True)
class _Merged:
    """A group of live files, and the file that no commit names yet and that has their rows."""

    group: Group
    file: StagedFile


def compact(
    writer: DirectWriter,
    path: str,
    about: BatchCommit,
    choose: Callable[[Sequence[DataFile]], Sequence[Group]],
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Merge the groups that `choose` makes of the live files; returns how many files are gone. `stop` ends it before its next group.

    Raises as `LiveTable.look`, and RunStopped COMMIT_OUTRUN.
    """
    table, removed = writer.looked_at(path), 0
    for groups in _together(choose([*table.live.values()])):
        if stop():
            break
        removed += _commit(writer, path, about, groups)
    writer.tidy_ids(path)
    return removed


def _together(groups: Sequence[Group]) -> Iterator[list[Group]]:
    """The groups of each commit."""
    found: list[Group] = []
    size = 0
    for group in groups:
        found.append(group)
        size += sum(file.size for file in group)
        if size >= COMMIT_BYTES:
            yield found
            found, size = [], 0
    if found:
        yield found


def _commit(writer: DirectWriter, path: str, about: BatchCommit, groups: Sequence[Group]) -> int:
    table, folder = writer.table(path), str(local_path(path))
    merged: list[_Merged] = []
    named = False

    def decide(now: LiveTable) -> tuple[Operation, Actions] | None:
        nonlocal named
        for each in [each for each in merged if any(file.path not in now.live for file in each.group)]:
            _delete(folder, [each])  # no commit named it: the one before this look was outrun
            merged.remove(each)
        named = False
        refuse_changed(folder, [each.file for each in merged])
        named = bool(merged)
        return _optimize(merged) if merged else None

    try:
        for group in groups:
            merged.append(_Merged(group, _merge(table, group)))
            if table.ids is not None:  # before a batch needs it
                table.ids.follow(table, schema_of(table), group, merged[-1].file)
        sync(folder, [each.file.path for each in merged])
        crash_points.at("maintain_merged", 0)
        writer.unfenced(path, about, decide)
    except BaseException as error:
        if not named or nothing_stored(error):
            _delete(folder, merged)
        raise
    return sum(len(each.group) - 1 for each in merged)


def _merge(table: LiveTable, group: Group) -> StagedFile:
    """Write the rows of these files into one new file."""
    schema, folder = schema_of(table), str(local_path(table.path))
    # Without the property, what the statistics of these files have in common.
    names = described(table) or tuple(name for name in group[0].least if all(name in file.least for file in group))

    def parts() -> Iterator[pa.Table]:
        kept, rows, size = [schema.empty_table()], 0, 0
        for part in (part for file in group for part in read_by_group(folder, file, schema)):
            kept.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                yield pa.concat_tables(kept)
                kept, rows, size = [], 0, 0
        if kept:
            yield pa.concat_tables(kept)

    return write_partition(folder, parts(), names, group[0].partition_values)


def _delete(folder: str, merged: Sequence[_Merged]) -> None:
    unlink([f"{folder}/{each.file.path}" for each in merged])


def _optimize(merged: Sequence[_Merged]) -> tuple[Operation, Actions]:
    now = round(time.time() * 1000)
    removed, added = [file for each in merged for file in each.group], [each.file for each in merged]
    sizes = sorted(file.size for file in added)
    metrics: Mapping[str, int] = {
        "numRemovedFiles": len(removed),
        "numAddedFiles": len(added),
        "numRemovedBytes": sum(file.size for file in removed),
        "numAddedBytes": sum(sizes),
        "numDeletionVectorsRemoved": 0,
        "minFileSize": sizes[0],
        **{f"p{share}FileSize": sizes[len(sizes) * share // 100] for share in (25, 50, 75)},
        "maxFileSize": sizes[-1],
    }
    actions: list[Mapping[str, Any]] = [file.removal(now, data_change=False) for file in removed]
    return Operation("OPTIMIZE", PARAMETERS, metrics), actions + [file.addition(data_change=False) for file in added]
