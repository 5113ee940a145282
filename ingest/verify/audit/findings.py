"""The result of an audit: numbers, and one line per fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

Fault = Literal["lost", "doubled", "aborted", "no record", "undecided"]
# In this order on the screen. An undecided row is no failure yet: its transaction may still commit.
FAULTS: dict[Fault, str] = {
    "lost": "records that no row contains",
    "doubled": "rows too many",
    "aborted": "rows of aborted transactions",
    "no record": "rows that no record explains",
    "undecided": "rows of transactions that are still open",
}
FAILURES: tuple[Fault, ...] = ("lost", "doubled", "aborted", "no record")
# One byte for each line: as text, the reason of 35 million lost records would exceed the 2 GiB of an Arrow array.
WORD = pa.dictionary(pa.int8(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("fault", WORD, nullable=False),
        pa.field("why", WORD, nullable=False),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("event_id", pa.string()),
        pa.field("rows", pa.int64(), nullable=False),
    ]
)


def faults(fault: Fault, why: str, rows: ArrayLike, *, partition: ArrayLike | None = None, offset: ArrayLike | None = None) -> pa.Table:
    """Lines of one fault: `rows` is the number of rows of each (for a lost record: 1, the row that is missing)."""
    counts = np.asarray(rows, np.int64)

    def column(values: Any, kind: pa.DataType) -> pa.Array:
        return pa.nulls(counts.size, kind) if values is None else pa.array(values, kind)

    places = None if partition is None else np.broadcast_to(np.asarray(partition, np.int32), counts.shape).copy()
    first = pa.array(np.zeros(counts.size, np.int8))
    words = [pa.DictionaryArray.from_arrays(first, pa.array([word])) for word in (fault, why)]
    columns = [*words, column(places, pa.int32()), column(offset, pa.int64()), pa.nulls(counts.size, pa.string()), pa.array(counts)]
    return pa.table(columns, schema=SCHEMA)


def joined(found: Sequence[pa.Table]) -> pa.Table:
    """The lines of several faults as one table (SCHEMA, with further columns of theirs)."""
    return pa.concat_tables(found).unify_dictionaries() if found else SCHEMA.empty_table()


@dataclass(frozen=True)
class Audit:
    """What an audit found. Counts of rows are of the table, counts of records and offsets of the topic.

    `records` are those that the isolation level reads. `found` has one line per fault (see SCHEMA). `gaps` are offsets without a row, with
    the reason. `expired` offsets are no longer in Kafka. `unverifiable` rows are at offsets, or have ids, that Kafka no longer has.
    `not_read` records come after the table's last row of their partition. `dropped` records are in no row, but their event id is.
    `rows_without_key` have NULL as position or id.
    """

    records: int
    rows: int
    found: pa.Table
    gaps: Mapping[str, int]
    expired: int
    unverifiable: Mapping[str, int]
    not_read: Mapping[int, int]
    dropped: int = 0
    rows_without_key: int = 0
    rows_of_other_topics: int = 0
    records_without_id: int = 0
    partitions_without_rows: Sequence[int] = field(default_factory=tuple)

    def counts(self, fault: Fault) -> dict[str, int]:
        """The number of rows (or lost records) of this fault, by the reason, the largest first."""
        summed = self.found.filter(pc.equal(self.found["fault"], fault)).group_by("why").aggregate([("rows", "sum")])
        pairs = zip(summed["why"].to_pylist(), summed["rows_sum"].to_pylist(), strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))

    def lines(self, fault: Fault, first: int) -> list[dict[str, Any]]:
        """The first lines of this fault."""
        lines: list[dict[str, Any]] = self.found.filter(pc.equal(self.found["fault"], fault)).slice(0, first).to_pylist()
        return lines

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, doubled, let in from an aborted transaction, or in the table without a record.

        A table without rows is never exact while the topic has records, whatever is out of reach: nothing was compared.
        """
        return bool(self.rows or not self.records) and not any(self.counts(fault) for fault in FAILURES)

    @property
    def complete(self) -> bool:
        """Whether Kafka still has what judges every row."""
        return not self.unverifiable
