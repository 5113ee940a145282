"""What the direct writer commits to a quarantine: new records, and states of the records that are there (I4)."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.delta.held_rows import held, updated
from ingest.delta.live_table import LiveTable
from ingest.delta.put import Operation
from ingest.delta.table_rows import Actions, added, matching, rewritten

KEY = ("source", "partition", "offset")
STATE = ("state", "state_changed_at", "state_by")
REPLAYED = "replayed"


def merged(table: LiveTable, rows: pa.Table, *, reopen: bool) -> tuple[Operation, Actions]:
    """The insertion of the records of `rows` whose position the quarantine lacks.

    With `reopen`, a record that is `replayed` and comes again gets the state of `rows`.
    """
    there = _there(table, rows)
    known = held(rows.select(KEY), there.select(KEY))
    replayed = there.filter(pc.equal(there["state"], REPLAYED)) if reopen else there.slice(0, 0)
    actions = _with_states(table, replayed, rows)
    if not known.all():
        actions += added(table, rows.filter(pa.array(~known)))
    metrics = {"numTargetRowsInserted": int((~known).sum()), "numTargetRowsUpdated": replayed.num_rows}
    return Operation("MERGE", {}, {"numSourceRows": rows.num_rows, **metrics, "numTargetRowsDeleted": 0}), actions


def marked_replayed(table: LiveTable, positions: pa.Table, by: str) -> tuple[Operation, Actions] | None:
    """The change of the records at `positions` (source, partition, offset, at) to `replayed`; None if all are, or none is there."""
    there = _there(table, positions)
    still = there.filter(pc.not_equal(there["state"], REPLAYED))
    metrics = {"numSourceRows": positions.num_rows, "numTargetRowsUpdated": still.num_rows}
    return _stated(table, still, positions, REPLAYED, by, Operation("MERGE", {}, metrics))


def without(table: LiveTable, condition: str) -> tuple[Operation, Actions] | None:
    """The deletion of the records that meet a condition; None if there are none. The commit does not name the condition."""
    rows = matching(table, (*KEY, "epoch", "batch"), condition)
    if not rows.num_rows:
        return None
    actions = rewritten(table, rows, lambda found, hit: found.filter(pa.array(~hit)))
    return Operation("DELETE", {"predicate": "[]"}, {"numDeletedRows": rows.num_rows}), actions


def with_state(table: LiveTable, condition: str, state: str, at: datetime, by: str) -> tuple[Operation, Actions] | None:
    """The change of the state of the records that meet a condition; None if there are none."""
    found = matching(table, KEY, condition)
    moment = pa.array([at] * found.num_rows, pa.timestamp("us", "UTC"))
    operation = Operation("UPDATE", {"predicate": "[]"}, {"numUpdatedRows": found.num_rows})
    return _stated(table, found, found.append_column("at", moment), state, by, operation)


def _stated(
    table: LiveTable, records: pa.Table, positions: pa.Table, state: str, by: str, operation: Operation
) -> tuple[Operation, Actions] | None:
    """The change of `records` to a state, since `at` of their position; None if there are none."""
    values = positions.select(KEY)
    for name, column in {"state": state, "state_changed_at": positions["at"], "state_by": by}.items():
        values = values.append_column(name, pa.array([column] * positions.num_rows, pa.string()) if isinstance(column, str) else column)
    return (operation, _with_states(table, records, values)) if records.num_rows else None


def _there(table: LiveTable, rows: pa.Table) -> pa.Table:
    """Position and state of the quarantine's records at the positions of `rows`."""
    names = (*KEY, "state")
    if not rows.num_rows:
        return matching(table, names, "false")
    bounds = []
    for name in KEY:
        ends = pc.min_max(rows[name])
        bounds.append(f"`{name}` BETWEEN {ends['min'].as_py()} AND {ends['max'].as_py()}")
    found = matching(table, names, " AND ".join(bounds))
    return found.filter(pa.array(held(found.select(KEY), rows.select(KEY))))


def _with_states(table: LiveTable, records: pa.Table, values: pa.Table) -> Actions:
    """Write the files of these records (by position and state) again, with the states of `values`."""

    def change(found: pa.Table, hit: np.ndarray) -> pa.Table:
        return updated(found, hit, values, KEY, STATE)

    return rewritten(table, records, change) if records.num_rows else []
