"""Whether the row at a position was made of the record that Kafka has there: its time and its event id (I4).

An unclean election, or another topic under a forged id, leaves other records at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.contract.parts import Layout
from ingest.decode.event_plan import BatchSource, event_plan
from ingest.decode.events import TIME, Events
from ingest.decode.row_hash import Hashes, row_hashes
from ingest.delta.delta_sql import At, Engine, arrow
from ingest.delta.row_sums import whole
from ingest.delta.stored_rows import Columns
from ingest.kafka.intervals import Intervals, Offsets
from ingest.kafka.log.log_reader import Stretch
from ingest.kafka.log.record_batch import Record
from ingest.kafka.offsets import LANE_BITS, Partition, of_lane
from ingest.verify.balance import Finding
from ingest.verify.count import SHOWN_MAX
from ingest.verify.lost_records import batches, for_workers, microseconds

# The time of a row without one. The quarantine has none for a time beyond the calendar.
NO_TIME = np.iinfo(np.int64).min
NANOSECONDS_END = 2**63 // 1000


@dataclass(frozen=True, eq=False)
class Contents:
    """Rows or records of one partition: their offsets, their times (microseconds since 1970 UTC, or NO_TIME) and hashes of their event ids.

    Three arrays of one shape. `ids` is empty where no event ids are compared.
    """

    offsets: Offsets
    times: Offsets
    ids: Hashes

    @staticmethod
    def of(parts: Sequence[Contents]) -> Contents:
        """All parts, by ascending offset."""
        if not parts:
            return Contents(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint64))
        offsets, times, ids = (np.concatenate(each) for each in zip(*((p.offsets, p.times, p.ids) for p in parts), strict=True))
        order = np.argsort(offsets, kind="stable")
        return Contents(offsets[order], times[order], ids[order] if ids.size else ids)


def differing(rows: Contents, records: Contents) -> tuple[Offsets, Offsets]:
    """The offsets of the rows whose record has another time, and of those whose record has another event id.

    A row without a record at its position is no matter of this comparison. Records have one row an offset at most.
    """
    at = np.searchsorted(records.offsets, rows.offsets)
    there = at < records.offsets.size
    there[there] = records.offsets[at[there]] == rows.offsets[there]
    at, offsets = at[there], rows.offsets[there]
    there_at, times = records.times[at], rows.times[there]
    # Spark writes INT96, which DataFusion reads as nanoseconds: beyond the years 1677 to 2262 it reads another time.
    moved = (times != NO_TIME) & (times != there_at) & (np.abs(there_at) < NANOSECONDS_END)
    other = rows.ids[there] != records.ids[at] if rows.ids.size and records.ids.size else np.zeros(at.size, bool)
    return offsets[moved], offsets[other]


def of_other_records(partition: int, table: str, rows: Contents, records: Contents) -> Iterator[Finding]:
    """RECORD_DIFFERS for each run of rows that were made of other records."""
    for what, offsets in zip(("time", "event id"), differing(rows, records), strict=True):
        for start, end in list(Intervals.of_offsets(offsets))[:SHOWN_MAX]:
            found = f"Kafka's record has another {what} than the {table}'s row at its position"
            yield Finding("RECORD_DIFFERS", found, partition=partition, start_offset=start, end_offset=end)


def compared_ids(contract: Contract) -> tuple[str, ...]:
    """The columns of the event id that are compared: none if it is the position."""
    return () if contract.event_id.kind == "position" else event_id_columns(contract)


def stored(engine: Engine, table: At, columns: Columns, time: str, where: str, ids: Sequence[str]) -> dict[Partition, Contents]:
    """The rows of a table that meet `where`, by partition. `time` is the column of the record's time. Raises Unreadable."""
    names = [columns.source, columns.partition, columns.offset, time, *ids]
    sql = f"SELECT {', '.join(f'`{name}` AS c{number}' for number, name in enumerate(names))} FROM {{rows}} WHERE {where}"
    found: dict[Partition, list[Contents]] = {}
    for batch in arrow(engine, sql, rows=table):
        sources, partitions, offsets = map(whole, batch.columns[:3])
        times, hashes, lanes = _microseconds(batch.column(3)), row_hashes(batch.columns[4:]), sources << LANE_BITS | partitions
        for each in np.unique(lanes).tolist():
            here = lanes == each
            found.setdefault(of_lane(each), []).append(Contents(offsets[here], times[here], hashes[here] if hashes.size else hashes))
    return {of: Contents.of(parts) for of, parts in found.items()}


class Records:
    """Collects the records of one partition while its log is read."""

    def __init__(self, read: Callable[[Iterable[Record]], Iterator[Contents]]) -> None:
        self._read = read
        self._parts: list[Contents] = []

    def see(self, stretch: Stretch) -> None:
        """Collect the records of a stretch, if it has some."""
        if stretch.batch is not None and not stretch.batch.control:
            self._parts += self._read(stretch.batch.records())

    def contents(self) -> Contents:
        """All records so far."""
        return Contents.of(self._parts)


def reader_of(contract: Contract) -> Callable[[Iterable[Record]], Iterator[Contents]]:
    """What reads the times and event ids of a partition's records, as a batch's workers read them."""
    ids = compared_ids(contract)
    if not ids:

        def times(records: Iterable[Record]) -> Iterator[Contents]:
            both = np.array([(each.offset, microseconds(each.timestamp_ms)) for each in records], np.int64).reshape(-1, 2)
            yield Contents(both[:, 0], both[:, 1], np.empty(0, np.uint64))

        return times
    # With all columns of the event: records with fields beyond the contract take three times as long.
    alone: dict[str, Any] = {"layout": Layout(), "conflicts": "batch"}
    if contract.event_id.kind != "columns":
        alone["source"] = contract.source.model_copy(update={"format": "raw"})
    events = Events(event_plan(contract.model_copy(update=alone), BatchSource((), 0, 0, datetime.now(UTC)), ()))

    def times_and_ids(records: Iterable[Record]) -> Iterator[Contents]:
        for batch in batches(records, (0, 0)):  # no such id says where its record is
            for found in events.decode([for_workers(batch)]):
                offsets = np.asarray(found.column("_offset"))
                yield Contents(offsets, _microseconds(found.column(TIME)), row_hashes(found.column(name) for name in ids))

    return times_and_ids


def _microseconds(times: pa.Array) -> Offsets:
    return np.asarray(pc.fill_null(times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), NO_TIME).to_numpy(zero_copy_only=False))
