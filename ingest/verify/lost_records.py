"""Records in neither target nor quarantine: each is a duplicate, or lost (I4).

They are decoded again, by the code of a batch's workers. The event id of a duplicate is in the target, or was there until a DELETE removed
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.decode.arrow_json import REASON
from ingest.decode.arrow_rule import arrow_rules
from ingest.decode.event_plan import BatchSource, event_plan
from ingest.decode.events import Events
from ingest.decode.headers import HEADERS, structs, texts_of
from ingest.decode.rule_refusal import RuleRaises, Untranslatable
from ingest.delta.commit import Commit
from ingest.delta.delta_sql import At, Engine, Unreadable, arrow
from ingest.kafka.intervals import Offsets
from ingest.kafka.log.log_reader import Log, records_at
from ingest.kafka.log.record_batch import Record
from ingest.kafka.offsets import OffsetRange, Partition
from ingest.ledger.ledger_line import Line
from ingest.runtime.output import err_line
from ingest.verify.balance import Finding
from ingest.verify.count import SHOWN_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The event ids of so many records are in memory at once. The target's event ids are read once for each such number.
IDS_MAX = 1_000_000
# A batch for the decoder ends at one of these numbers: Spark's own number of rows, and bytes of values.
BATCH_ROWS, BATCH_BYTES = 10_000, 8 * 2**20
KAFKA = pa.schema(
    [
        *(("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS), ("source", pa.int16())),
        *(("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))),
    ]
)
# The same columns as `Events` reads them.
RECORD = ["__key", "__value", "__headers", "_source", "_partition", "_offset", "_kafka_timestamp"]
OFFSET = "__offset"

Decode = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
"""The columns of the event id, `__reason` and `__offset` of records with the columns of KAFKA."""


@dataclass(frozen=True)
class Gone:
    """How many rows or records in this range of a partition retention or an erasure removed; `rows_too`: also records that were events."""

    range: OffsetRange
    rows: int
    rows_too: bool


def decoder(session: Callable[[], SparkSession], contract: Contract, topic_ids: tuple[str, ...]) -> Decode:
    """Decode as the workers of a batch do, in this process. Says so and calls `session` if a row rule needs Spark."""
    names, source = [*event_id_columns(contract), REASON, "_offset"], BatchSource(topic_ids, 0, 0, datetime.now(UTC))

    def renamed(found: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([found.column(name) for name in names], names=[*names[:-1], OFFSET])

    try:
        events = Events(event_plan(contract, source, arrow_rules(contract)))
    except (Untranslatable, RuleRaises) as why:
        from ingest.decode.decoder import decode

        err_line(f"ingest: records of {contract.name} are decoded through Spark, because of a row rule with {why}")
        spark = session()

        def by_spark(records: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
            found = decode(spark.createDataFrame(pa.Table.from_batches([records])), contract, source)
            return map(renamed, found.select(*(f"`{name}`" for name in dict.fromkeys(names))).toArrow().to_batches())

        return by_spark

    def by_worker(records: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        return map(renamed, events.decode([for_workers(records)]))

    return by_worker


def lost(
    engine: Engine,
    decode: Decode,
    reader: Log,
    of: Partition,
    offsets: Offsets,
    target: str,
    ids: Sequence[str],
    deleted: Sequence[Commit],
    lines: Sequence[Line],
    gone: Sequence[Gone],
) -> Iterator[Finding]:
    """RECORD_LOST for each record at `offsets` whose event id the target lacks, now and before every DELETE after the record's batch.

    `ids` are the columns of the event id, `lines` the partition's batches, `gone` what retention and erasures removed there.

    Raises what `records_at` raises, and Unreadable.
    """
    shown = 0
    # Of a record that retention or an erasure removed, only the range and the number are known. A record of retention was not a row, so it
    # must still be refused.
    left = [[each.range.start, each.range.end, each.rows, each.rows_too] for each in gone]
    for begin in range(0, len(offsets), IDS_MAX):
        records = records_at(reader, of[1], offsets[begin : begin + IDS_MAX])
        found = [events for batch in batches(records, of) for events in decode(batch)]
        missing = _missing(engine, found, target, ids, deleted, lines)
        for each in left:
            may_be = (offset for offset, reason in sorted(missing.items()) if reason or each[3])
            inside = {*[offset for offset in may_be if each[0] <= offset < each[1]][: each[2]]}
            each[2] -= len(inside)
            missing = {offset: reason for offset, reason in missing.items() if offset not in inside}
        for offset, reason in sorted(missing.items())[: SHOWN_MAX - shown]:
            what = "is in neither target nor quarantine, and its event id is not in the target"
            why = f" ({reason}: it belongs in quarantine)" if reason else ""
            yield Finding("RECORD_LOST", what + why, partition=of[1], start_offset=offset, end_offset=offset + 1)
        shown += len(missing)
        if shown >= SHOWN_MAX:
            return


def _missing(
    engine: Engine, found: Sequence[pa.RecordBatch], target: str, ids: Sequence[str], deleted: Sequence[Commit], lines: Sequence[Line]
) -> dict[int, str | None]:
    """The reasons of the records whose event id is not accounted for, by offset."""
    if not found:  # Kafka has expired them meanwhile
        return {}
    same = " AND ".join(f"r.`{name}` = t.`{name}`" for name in ids)
    sql = f"SELECT r.* FROM {{records}} r LEFT ANTI JOIN {{target}} t ON {same}"
    absent = list(arrow(engine, sql, records=pa.Table.from_batches(found), target=At(target)))
    if not absent:
        return {}
    nowhere = pa.Table.from_batches(absent)
    missing: dict[int, str | None] = dict(zip(nowhere[OFFSET].to_pylist(), nowhere[REASON].to_pylist(), strict=True))
    for commit in deleted:
        sql = f"SELECT r.`{OFFSET}` FROM {{records}} r LEFT SEMI JOIN {{target}} t ON {same}"
        try:
            there = [*arrow(engine, sql, records=nowhere, target=At(target, commit.version - 1))]
        except Unreadable:
            continue  # VACUUM has taken the files
        for offset in (offset for batch in there for offset in batch.column(0).to_pylist()):
            # Only a DELETE after the record's batch excuses it: a copy that was read after the DELETE must be a row again.
            if max(r.version for r in lines if r.posting.range is not None and offset in r.posting.range) < commit.version:
                missing.pop(offset, None)
    return missing


def for_workers(records: pa.RecordBatch) -> pa.RecordBatch:
    """Records with the columns of KAFKA as `Events` reads them."""
    columns = [texts_of(column) if name == "headers" else column for name, column in zip(KAFKA.names, records.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=RECORD)


def microseconds(milliseconds: int) -> int:
    """A record's time for a column of 64 bits. What exceeds them is beyond the calendar in any case, so that the decoder refuses it."""
    return min(max(milliseconds * 1000, -(2**63)), 2**63 - 1)


def batches(records: Iterable[Record], of: Partition) -> Iterator[pa.RecordBatch]:
    """The records with the columns of KAFKA, some at a time."""
    taken: list[tuple[Any, ...]] = []
    size = 0
    for each in records:
        given = structs(each.headers), *of, each.offset, microseconds(each.timestamp_ms)
        taken.append((each.key, each.value, *given))
        size += len(each.value or b"")
        if len(taken) == BATCH_ROWS or size >= BATCH_BYTES:
            yield _batch(taken)
            taken, size = [], 0
    if taken:
        yield _batch(taken)


def _batch(records: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*records, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(values, kind) for values, kind in zip(columns, KAFKA.types, strict=True)], schema=KAFKA)
