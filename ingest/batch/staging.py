"""Stage a batch: what runs in Spark's Python workers for the direct writer.

Decoded rows go to Parquet files in the target's folder, and one output row describes each file. A small task hands its rows to the driver
instead, which writes one file for all of them. Records that are no event come back with their bytes. A task that Spark tries again leaves
only files that no commit names. Workers get this module by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ingest.decode.arrow_json import DETAIL, RAW, REASON, BatchDecoder, Plan
from ingest.decode.rule_expression import ArrowRule, holds
from ingest.delta.data_file import write_file

BROKEN_RULE = "broken_rule"
SEED = 42  # Spark's own
# A worker of PySpark hands over batches of 10,000 records. Fewer rows than this make a file that is not worth opening.
SMALL_ROWS = 20_000
# Spark's description of an output row.
STAGED = (
    "path string, size bigint, stats string, rows bigint, hashes binary, partitions binary, offsets binary, data binary, refused binary"
)


@dataclass(frozen=True)
class Stage:
    """What a worker needs to stage records of a batch.

    `folder` is the target's folder, `schema` has the target's columns in order, `event_id` the columns of the event id, `statistics` the
    columns with statistics, `constants` the values that are the same in all rows of the batch, `rules` the row rules by name.
    """

    decode: Plan
    folder: str
    schema: pa.Schema
    event_id: tuple[str, ...]
    statistics: tuple[str, ...]
    constants: tuple[tuple[str, int], ...]
    rules: tuple[tuple[str, ArrowRule], ...] = ()

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The output rows of a task."""
        right: list[pa.RecordBatch] = []
        refused: list[pa.RecordBatch] = []
        for batch in map(self._ruled, BatchDecoder(self.decode).decode(batches)):
            if batch.column(REASON).null_count == batch.num_rows:
                right.append(batch)
            else:
                fault = batch.column(REASON).is_valid()
                refused.append(batch.filter(fault))
                right.append(batch.filter(pc.invert(fault)))
        if rows := sum(batch.num_rows for batch in right):
            table = self._table(pa.Table.from_batches(right), rows)
            found: dict[str, Any] = {"rows": rows, "hashes": self._hashes(table).tobytes()}
            for name, column, kind in (("partitions", "_partition", np.int32), ("offsets", "_offset", np.int64)):
                found[name] = table[column].to_numpy().astype(kind).tobytes()
            if rows <= SMALL_ROWS:
                found["data"] = _bytes(table)
            else:
                staged = write_file(self.folder, table, self.statistics)
                found |= {"path": staged.path, "size": staged.size, "stats": staged.stats}
            yield _output(found)
        if sum(batch.num_rows for batch in refused):
            names = [*RAW, "_partition", "_offset", "_kafka_timestamp", REASON, DETAIL, *self.decode.event_id]
            yield _output({"refused": _bytes(pa.Table.from_batches(refused).select(names))})

    def _ruled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, with the first broken rule as the reason of each event that breaks one."""
        reason, detail = batch.column(REASON), batch.column(DETAIL)
        for name, rule in self.rules:
            broken = pc.and_(pc.invert(holds(rule, batch)), reason.is_null())
            if broken.true_count:
                reason = pc.if_else(broken, BROKEN_RULE, reason)
                detail = pc.if_else(broken, name, detail)
        for column, array in ((REASON, reason), (DETAIL, detail)):
            batch = batch.set_column(batch.schema.get_field_index(column), column, array)
        return batch

    def _table(self, events: pa.Table, rows: int) -> pa.Table:
        constants = dict(self.constants)
        columns = []
        for field in self.schema:
            if field.name in constants:
                value = constants[field.name]
                columns.append(pa.array(np.full(rows, value, np.int64)).cast(field.type, safe=False))
            else:
                columns.append(events[field.name])
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _hashes(self, table: pa.Table) -> np.ndarray:
        return hashes(table, self.event_id)


def hashes(table: pa.Table, event_id: Sequence[str]) -> np.ndarray:
    """A 64-bit hash of each row's event id (uint64, shape (rows,)). Equal ids have equal hashes."""
    found: np.ndarray | None = None
    for name in event_id:
        column = table[name]
        texts = column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())
        values = texts.to_pylist()
        if found is None:
            one = xxhash.xxh64_intdigest
            found = np.fromiter((one(value, SEED) for value in values), np.uint64, len(values))
        else:
            found = np.fromiter(map(xxhash.xxh64_intdigest, values, found.tolist()), np.uint64, len(values))
    assert found is not None, "an event id has columns"
    return found


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _output(found: dict[str, Any]) -> pa.RecordBatch:
    kinds = {"size": pa.int64(), "rows": pa.int64(), "path": pa.string(), "stats": pa.string()}
    names = [column.split(" ")[0] for column in STAGED.split(", ")]
    return pa.RecordBatch.from_arrays([pa.array([found.get(name)], kinds.get(name, pa.binary())) for name in names], names)
