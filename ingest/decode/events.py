"""Decode batches of Kafka records into rows of the target, or into records with the reason why they are refused. Runs in Spark's workers.

Both writers use it. It needs pyarrow, numpy and msgspec. Workers get it by value, with the modules that it uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.arrow_json import DETAIL, RAW, REASON, BatchDecoder, Plan
from ingest.decode.headers import headers_of, last_header
from ingest.decode.partition_value import UNWRITABLE, unwritable
from ingest.decode.payload import payload_hashes
from ingest.decode.record_event_id import record_ids
from ingest.decode.rule_expression import ArrowRule, holds

KEY, VALUE, HEADER_TEXTS = "__key", "__value", "__headers"
MISSING_ID, NOT_UTF8, BROKEN_RULE = "missing_event_id", "not_utf8", "broken_rule"
# In a task. More records with an error of which nothing here knows are a defect of ours.
UNKNOWN_MAX = 100
TIME = "_kafka_timestamp"
# The years 1 to 9999, in microseconds since 1970.
TIME_MIN, TIME_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999
EVENT_ID, PAYLOAD_HASH, TOPIC_ID = "_event_id", "_payload_hash", "_topic_id"


@dataclass(frozen=True)
class EventPlan:
    """What a worker needs to decode records.

    `schema` has the target's columns in order. `json` is None for the format raw. `payload` names the columns of the payload. `header` is
    the header with the event id, `key` says that the record's key is it; with
    `topic_ids` (by number) its position is. `constants` are the columns that are the same in all rows of a
    batch. `rules` are the row rules by name, `partition_by` the columns of the layout.
    """

    schema: pa.Schema
    json: Plan | None
    payload: tuple[str, ...]
    key: bool = False
    header: str | None = None
    topic_ids: tuple[str, ...] = ()
    constants: tuple[tuple[str, int], ...] = ()
    rules: tuple[tuple[str, ArrowRule], ...] = ()
    partition_by: tuple[str, ...] = ()

    @property
    def output(self) -> pa.Schema:
        """The columns of decoded batches: the target's, all nullable, the reason with its detail, and the raw record."""
        raw = (pa.field(KEY, pa.binary()), pa.field(VALUE, pa.binary()), pa.field(HEADER_TEXTS, pa.string()))
        faults = (pa.field(REASON, pa.string()), pa.field(DETAIL, pa.string()))
        return pa.schema([*(field.with_nullable(True) for field in self.schema), *faults, *raw])


class Events:
    """Decodes batches of records: `__key`, `__value`, `__headers` (as text), `_source`, `_partition`, `_offset`, `_kafka_timestamp`."""

    def __init__(self, plan: EventPlan) -> None:
        self._plan = plan
        self._json = BatchDecoder(plan.json) if plan.json is not None else None
        self._unknown = 0

    def decode(self, batches: Iterable[pa.RecordBatch], *, keep_raw: bool = False) -> Iterator[pa.RecordBatch]:
        """One row for each record (`EventPlan.output`), not in their order. Rows without a reason have no raw record, unless `keep_raw`.

        A record that raises an error that nothing here knows is refused as `unwritable`: one record must not stop a table (I5). Raises the
        error if there are more than UNKNOWN_MAX such records: then it is no matter of a record.
        """
        for batch in batches:
            yield from self._tried(batch, keep_raw=keep_raw)

    def _tried(self, records: pa.RecordBatch, *, keep_raw: bool) -> Iterator[pa.RecordBatch]:
        try:
            found = [self._decoded(each, keep_raw=keep_raw) for each in self._split(records) if each.num_rows]
        except (OSError, MemoryError, ImportError):
            raise
        except Exception as error:
            if records.num_rows > 1:  # halves, until it is one record
                middle = records.num_rows // 2
                yield from self._tried(records.slice(0, middle), keep_raw=keep_raw)
                yield from self._tried(records.slice(middle), keep_raw=keep_raw)
                return
            self._unknown += 1
            if self._unknown > UNKNOWN_MAX:
                raise
            found = [self.unwritable(records.append_column(DETAIL, pa.array([type(error).__name__])))]
        yield from found

    def _split(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return self._json.decode([records]) if self._json is not None else iter([records])

    def unwritable(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Records that are refused without a look at their values; `__detail` has the causes."""
        given = dict(zip(records.schema.names, records.columns, strict=True))
        given |= self._origin(given["_source"])
        given[REASON] = pa.array([UNWRITABLE] * records.num_rows)
        if TIME in given:
            given[TIME] = _of_calendar(given[TIME])[0]
        output = self._plan.output
        columns = [given.get(field.name, pa.nulls(records.num_rows, field.type)) for field in output]
        return pa.RecordBatch.from_arrays(columns, schema=output)

    def _origin(self, sources: pa.Array) -> dict[str, pa.Array]:
        """The columns that say where the records come from."""
        found = {name: repeated(value, self._plan.schema.field(name).type, len(sources)) for name, value in self._plan.constants}
        return found | ({TOPIC_ID: pa.array(self._plan.topic_ids).take(sources)} if self._plan.topic_ids else {})

    def _decoded(self, batch: pa.RecordBatch, *, keep_raw: bool) -> pa.RecordBatch:
        plan, rows = self._plan, batch.num_rows
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        faults = _Faults(columns.pop(REASON, None), columns.pop(DETAIL, None), rows)
        columns[TIME], beyond = _of_calendar(columns[TIME])
        faults.add(beyond, UNWRITABLE, TIME)
        if plan.json is None:
            columns |= {"key": columns[KEY], "value": columns[VALUE], "headers": headers_of(columns[HEADER_TEXTS])}
        columns |= self._origin(columns["_source"])
        if plan.key or plan.header is not None:
            found = columns[KEY] if plan.header is None else last_header(columns[HEADER_TEXTS], plan.header)
            where = "the key" if plan.header is None else f"header {plan.header}"
            columns[EVENT_ID], missing, wrong = record_ids(found)
            faults.add(missing, MISSING_ID, f"{where} is missing or empty")
            faults.add(wrong, NOT_UTF8, where)
        events = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        for name, rule in plan.rules:
            faults.add(~_numpy(holds(rule, events)), BROKEN_RULE, name)
        if plan.partition_by:
            wrong, causes = unwritable(events, plan.partition_by)
            faults.add(wrong, UNWRITABLE, causes)
        if PAYLOAD_HASH in plan.schema.names:
            hashes = payload_hashes(((name, columns[name]) for name in plan.payload), rows).view(np.int64)
            columns[PAYLOAD_HASH] = pa.array(hashes, mask=faults.found)
        for name in () if keep_raw else RAW:
            kind = columns[name].type
            columns[name] = pc.if_else(pa.array(faults.found), columns[name], pa.scalar(None, kind)) if faults.any else pa.nulls(rows, kind)
        columns |= {REASON: faults.reason, DETAIL: faults.detail}
        output = plan.output
        return pa.RecordBatch.from_arrays([columns[name] for name in output.names], schema=output)


class _Faults:
    """The first fault of each record, if it has one."""

    def __init__(self, reason: pa.Array | None, detail: pa.Array | None, rows: int) -> None:
        self.reason: pa.Array = reason if reason is not None else pa.nulls(rows, pa.string())
        self.detail: pa.Array = detail if detail is not None else pa.nulls(rows, pa.string())
        self.found = _numpy(self.reason.is_valid()) if self.reason.null_count < rows else np.zeros(rows, bool)

    @property
    def any(self) -> bool:
        return bool(self.found.any())

    def add(self, wrong: np.ndarray, code: str, detail: str | pa.Array) -> None:
        """Note this fault for the records that have none yet."""
        new = wrong & ~self.found
        if new.any():
            mask = pa.array(new)
            self.reason, self.detail = pc.if_else(mask, code, self.reason), pc.if_else(mask, detail, self.detail)
            self.found = self.found | new


def _of_calendar(times: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The times, NULL where they are beyond the years 1 to 9999, and where that is: most readers of a table could not read them."""
    numbers = times.cast(pa.int64())
    least, greatest = pc.min_max(numbers).as_py().values()
    if least is None or (least >= TIME_MIN and greatest <= TIME_MAX):
        return times, np.zeros(len(times), bool)
    beyond = pc.fill_null(pc.or_(pc.less(numbers, TIME_MIN), pc.greater(numbers, TIME_MAX)), False)
    return pc.if_else(beyond, pa.scalar(None, times.type), times), _numpy(beyond)


def repeated(value: int | str, kind: pa.DataType, rows: int) -> pa.Array:
    """A column with the same value in every row."""
    if isinstance(value, str):
        return pa.array([value], kind).take(pa.array(np.zeros(rows, np.int32)))
    return pa.array(np.full(rows, value, np.int64)).cast(kind, safe=False)


def _numpy(array: Any) -> np.ndarray:
    return np.asarray(array.to_numpy(zero_copy_only=False))
