"""The records of a batch that go to quarantine, as rows of that table: records that are no event, and conflicting copies (I5)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.batch.conflicts import CONFLICT
from ingest.batch.staged import Conflicts, Staged
from ingest.contract.columns import event_id_columns
from ingest.decode.arrow_json import DETAIL, REASON
from ingest.delta.table_definitions import QUARANTINE_FIELDS
from ingest.runtime.canonical_json import read_json


def quarantine_rows(staged: Staged, conflicts: Conflicts, records: DataFrame, same: Mapping[str, Any]) -> pa.Table:
    """The quarantine's rows of a batch. `same` has the columns that are equal in all of them."""
    rows = [*_no_events(staged), *_conflicting(conflicts, records)]
    schema = to_arrow_schema(T.StructType(list(QUARANTINE_FIELDS)), timezone="UTC")
    # Kafka's times as numbers: a producer may write any year, which Python's own times cannot express.
    at = schema.get_field_index("kafka_timestamp")
    numbers = schema.set(at, pa.field("kafka_timestamp", pa.int64()))
    return pa.Table.from_pylist([{**row, **same} for row in rows], numbers).cast(schema)


def _no_events(staged: Staged) -> Iterator[dict[str, Any]]:
    ids = event_id_columns(staged.contract)
    for row in _numbered(staged.refused, "_kafka_timestamp").to_pylist() if staged.refused is not None else ():
        texts = [_text(row[name]) for name in ids]
        yield {
            "partition": row["_partition"],
            "offset": row["_offset"],
            "kafka_timestamp": row["_kafka_timestamp"],
            "key": row["__key"],
            "value": row["__value"],
            "headers": _headers(row["__headers"]),
            "reason_code": row[REASON],
            "reason_detail": row[DETAIL],
            "event_id": None
            if None in texts
            else texts[0]
            if len(texts) == 1
            else json.dumps(texts, ensure_ascii=False, separators=(",", ":")),
        }


def _text(value: Any) -> str | None:
    """A value of an event id as Spark writes it as text; None for NULL, and for bytes that are not UTF-8."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return None
        case datetime():
            return value.replace(tzinfo=None).isoformat(" ").rstrip("0").rstrip(".") if value.microsecond else f"{value:%Y-%m-%d %H:%M:%S}"
        case Decimal():
            return f"{value:f}"
        case _:
            return None if value is None else str(value)


def _headers(text: str | None) -> list[dict[str, Any]] | None:
    """Headers from the text in which they passed the workers."""
    found = read_json(text) if text is not None else None
    return found and [{"key": each.get("key"), "value": base64.b64decode(each["value"]) if "value" in each else None} for each in found]


def _conflicting(conflicts: Conflicts, records: DataFrame) -> Iterator[dict[str, Any]]:
    """Conflicting copies with their bytes, which a second read of their positions brings."""
    if not conflicts:
        return
    partitions, offsets = zip(*conflicts, strict=True)
    wanted = pa.table({"partition": pa.array(partitions, pa.int32()), "offset": pa.array(offsets, pa.int64())})
    again = records.join(F.broadcast(records.sparkSession.createDataFrame(wanted)), ["partition", "offset"], "left_semi")
    found = _numbered(again.select("partition", "offset", "timestamp", "key", "value", "headers").toArrow(), "timestamp")
    there = {(row["partition"], row["offset"]): row for row in found.rename_columns({"timestamp": "kafka_timestamp"}).to_pylist()}
    for (partition, offset), differs in conflicts.items():
        # Compaction may have removed the record meanwhile. The conflict was found all the same, so it is kept without its bytes.
        row = there.get((partition, offset), {"partition": partition, "offset": offset})
        yield {**row, "reason_code": CONFLICT, "reason_detail": differs, "event_id": None}


def _numbered(table: pa.Table, name: str) -> pa.Table:
    """The table with a column of times as microseconds since 1970."""
    return table.set_column(table.column_names.index(name), name, table[name].cast(pa.int64()))
