"""What the direct writer commits to the ledger, and for an erasure (ingest/repair)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.delta import writer
from ingest.delta.held_rows import held, updated
from ingest.delta.live_table import LiveTable
from ingest.delta.put import Operation
from ingest.delta.stored_rows import Columns
from ingest.delta.table_rows import Actions, added, matching, rewritten, schema_of
from ingest.runtime.files import local_path

RESULT = ("run_id", "suite", "number")
# Delta's own rule for what is no data: names with a dot or an underscore at their beginning, except these.
CHANGE_DATA = "_change_data"


def counted(table: LiveTable, rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> tuple[Operation, Actions] | None:
    """The insertion of ledger rows; None if nothing changes.

    A row with the key of an existing one replaces it, or with `names` sets only these columns of it, if it has values for them.
    """
    if not rows:
        return None
    given, key, epochs = pa.Table.from_pylist(list(rows), schema_of(table)), list(writer.LEDGER_KEY), [row["epoch"] for row in rows]
    known = held(given.select(key), matching(table, key, f"epoch BETWEEN {min(epochs)} AND {max(epochs)}"))
    old, new = given.filter(pa.array(known)), given.filter(pa.array(~known))
    for name in names:
        old = old.filter(pc.field(name).is_valid())
    changed = names or [name for name in given.column_names if name not in key]
    actions = rewritten(table, old.select(key), lambda found, hit: updated(found, hit, old, key, changed)) if old.num_rows else []
    actions += added(table, new) if new.num_rows else []
    metrics = {"numTargetRowsInserted": new.num_rows, "numTargetRowsUpdated": old.num_rows}
    return (Operation("MERGE", {}, metrics), actions) if actions else None


def without(table: LiveTable, found: pa.Table, columns: Columns) -> tuple[Operation, Actions] | None:
    """The deletion of the rows at these positions (e, b, p, o); None if none of them is there."""
    names = [columns.epoch, columns.batch, columns.partition, columns.offset]
    schema = schema_of(table)
    positions = pa.Table.from_arrays(
        [found[name].cast(schema.field(column).type) for name, column in zip("ebpo", names, strict=True)], names
    )
    deleted = 0

    def change(rows: pa.Table, hit: np.ndarray) -> pa.Table:
        nonlocal deleted
        deleted += int(hit.sum())
        return rows.filter(pa.array(~hit))

    actions = rewritten(table, positions, change)
    condition = " AND ".join(f"(t.{name} = s.{name})" for name in names)
    parameters = {"predicate": f'["{condition}"]', "matchedPredicates": '[{"actionType":"delete"}]'}
    return (Operation("MERGE", parameters, {"numTargetRowsDeleted": deleted}), actions) if actions else None


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
