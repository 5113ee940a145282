"""Stage a batch: what runs in Spark's Python workers for the direct writer.

Rows go to Parquet files in the target's folder, records that are no event to files in the quarantine's folder. A small task hands its rows
to the driver instead, which writes one file for all of them. A task that Spark tries again leaves only files that no commit names. Workers
get this module by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.batch.dedup import POSITION, ROW, TIME, later_copies, twice
from ingest.batch.outputs import ROLL_BYTES, SMALL_BYTES, TARGET, Held, as_bytes, in_memory, is_small, positions, written
from ingest.batch.refused import Refused
from ingest.decode.arrow_json import REASON
from ingest.decode.events import EventPlan, Events
from ingest.decode.payload import PAYLOAD, payload_hashes
from ingest.decode.row_hash import row_hashes
from ingest.delta.partition import split


@dataclass(frozen=True)
class Stage:
    """What a worker needs to stage records of a batch.

    `folder` is the target's folder and `prefix` the beginning of its new files' names, `event_id` the columns of the event id (none: no id
    occurs twice), `statistics` the columns with statistics. With `all_copies` later copies of an event id are written too. `refused` makes
    the quarantine's rows.
    """

    events: EventPlan
    folder: str
    prefix: str
    event_id: tuple[str, ...]
    statistics: tuple[str, ...]
    all_copies: bool
    refused: Refused

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The output rows of a task."""
        right, wrong = Held(), Held()
        for batch in Events(self.events).decode(batches):
            reason = batch.column(REASON)
            if reason.null_count < batch.num_rows:
                fault = reason.is_valid()
                wrong.add(self.refused.decoded(batch.filter(fault)))
                batch = batch.filter(pc.invert(fault))
            right.add(batch.select(self.events.schema.names))
            if right.bytes > ROLL_BYTES:
                yield from self._staged(right.taken(), small=False)
            if wrong.bytes > ROLL_BYTES:
                yield self.refused.staged(wrong.taken(), small=False)
        if right.batches:
            yield from self._staged(rows := right.taken(), small=is_small(rows))
        if wrong.batches:
            yield self.refused.staged(rows := wrong.taken(), small=is_small(rows))

    def _staged(self, rows: pa.Table, *, small: bool) -> Iterator[pa.RecordBatch]:
        rows = rows.cast(self.events.schema)
        # The driver splits rows that it writes.
        for values, at in split(rows, () if small else self.events.partition_by):
            part = rows.take(pa.array(at)) if values else rows
            hashes = row_hashes(part[name].combine_chunks() for name in self.event_id)
            about: dict[str, Any] = {}
            order, kept, copies = (None, len(part), None) if self.all_copies else self._without_copies(part, hashes)
            if order is not None:
                part, hashes, about = part.take(pa.array(order)), hashes[order], {"copies": as_bytes(copies)}
            about |= {"hashes": hashes.tobytes(), **positions(part, *POSITION)}
            part = part.slice(0, kept)
            if small:
                yield in_memory(TARGET, part, about)
            else:
                yield written(TARGET, self.folder, self.prefix, part, self.statistics, values, about)

    def _without_copies(self, rows: pa.Table, hashes: np.ndarray) -> tuple[np.ndarray | None, int, pa.Table | None]:
        """An order of the rows in which the later copies of an event id come last; how many are none; and, for the driver, which decides
        about the copies of all tasks, the rows whose id occurs again, as `later_copies` takes them.

        None for the order if there are no copies, or more than the driver should get: they are written, and the driver reads them.
        """
        again = twice(hashes)
        if not again.size:
            return None, len(rows), None
        copies = candidates(rows.take(pa.array(again)), self.event_id, self.events.payload, again)
        later = later_copies(copies)[ROW].to_numpy()
        if not later.size or copies.nbytes > SMALL_BYTES:
            return None, len(rows), None
        is_later = np.zeros(len(rows), bool)
        is_later[later] = True
        order = np.concatenate([np.flatnonzero(~is_later), np.flatnonzero(is_later)])
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        numbers = pa.array(place[copies[ROW].to_numpy()])
        return order, len(order) - len(later), copies.set_column(copies.column_names.index(ROW), ROW, numbers)


def candidates(rows: pa.Table, event_id: Sequence[str], payload: Sequence[str], numbers: np.ndarray) -> pa.Table:
    """The event ids, positions, times, payload hashes and numbers of these rows, as `later_copies` takes them."""
    hashes = payload_hashes(((name, rows[name].combine_chunks()) for name in payload), rows.num_rows)
    found = rows.select([*dict.fromkeys((*event_id, *POSITION, TIME))])
    return found.append_column(PAYLOAD, pa.array(hashes)).append_column(ROW, pa.array(numbers.astype(np.int64)))
