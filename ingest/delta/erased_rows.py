"""What the direct writer commits to the ledger, and for an erasure (ingest/repair)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.delta import writer
from ingest.delta.live_table import LiveTable
from ingest.delta.posting import Why, by_key, removals
from ingest.delta.put import Operation
from ingest.delta.row_sums import sums_of
from ingest.delta.stored_rows import TARGET, Columns, hashed_ids
from ingest.delta.table_rows import Actions, added, matching, rewritten, schema_of
from ingest.runtime.files import local_path

RESULT = ("run_id", "suite", "number")
# Delta's own rule for what is no data: names with a dot or an underscore at their beginning, except these.
CHANGE_DATA = "_change_data"


def appended(table: LiveTable, rows: Sequence[Mapping[str, Any]]) -> tuple[Operation, Actions]:
    """The lines that are added to a ledger."""
    new = pa.Table.from_pylist(list(rows), schema_of(table))
    return Operation("WRITE", {"mode": "Append", "partitionBy": "[]"}, {"numOutputRows": new.num_rows}), added(table, new)


def without(table: LiveTable, found: pa.Table, columns: Columns, why: Why) -> tuple[Operation, Actions] | None:
    """The deletion of these rows (`Columns.matched`), which is posted; None if none of them is there."""
    assert table.state is not None, "the table exists"
    names, matched, schema = columns.position, columns.matched(found), schema_of(table)
    ids = hashed_ids(table.state) if columns is TARGET else ()
    wanted = [found[name].cast(schema.field(column).type) for name, column in matched.items()]
    deleted: list[pa.RecordBatch] = []

    def change(rows: pa.Table, hit: np.ndarray) -> pa.Table:
        deleted.extend(rows.filter(pa.array(hit)).select([*names, *ids]).combine_chunks().to_batches())
        return rows.filter(pa.array(~hit))

    actions = rewritten(table, pa.Table.from_arrays(wanted, [*matched.values()]), change)
    postings = removals(by_key(sums_of(deleted)), why, target=columns is TARGET)
    condition = " AND ".join(f"(t.{name} = s.{name})" for name in matched.values())
    parameters = {"predicate": f'["{condition}"]', "matchedPredicates": '[{"actionType":"delete"}]'}
    metrics = {"numTargetRowsDeleted": sum(each.num_rows for each in deleted)}
    return (Operation("MERGE", parameters, metrics, postings), actions) if actions else None


def without_values(table: LiveTable) -> tuple[Operation, Actions] | None:
    """The removal of the values of rows from the validation results; None if there are none."""
    found = matching(table, RESULT, writer.HAS_VALUES)
    if not found.num_rows:
        return None

    def change(rows: pa.Table, hit: np.ndarray) -> pa.Table:
        for name in ("samples", *writer.VALUES_OF_ROWS):
            value = writer.NO_SAMPLES if name == "samples" else None
            values = [value if there else old for old, there in zip(rows[name].to_pylist(), hit.tolist(), strict=True)]
            rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), pa.array(values, rows.schema.field(name).type))
        return rows

    actions = rewritten(table, found, change)
    return Operation("UPDATE", {"predicate": "[]"}, {"numUpdatedRows": found.num_rows}), actions


def data_files(path: str, partition_by: Sequence[str]) -> list[str]:
    """All data files in the folder of the table at `path`, whether a version has them or not."""
    folder = os.path.realpath(local_path(path))
    found = (each for each in Path(folder).rglob("*") if not each.is_dir())

    def hidden(part: str) -> bool:
        return part[0] in "._" and part != CHANGE_DATA and part.partition("=")[0] not in partition_by

    return [str(each) for each in found if not any(map(hidden, each.relative_to(folder).parts))]


def unneeded(table: LiveTable, paths: Sequence[str]) -> list[str]:
    """Those of these files that the snapshot does not need."""
    folder = os.path.realpath(local_path(table.path))
    live = {os.path.realpath(os.path.join(folder, file.path)) for file in table.live.values()}
    return [path for path in paths if os.path.realpath(path) not in live]


def unlink(paths: Sequence[str]) -> None:
    """Delete files, each with the checksum that Hadoop keeps beside it."""
    for path in map(Path, paths):
        for each in (path, path.with_name(f".{path.name}.crc")):
            with suppress(FileNotFoundError):
                each.unlink()
