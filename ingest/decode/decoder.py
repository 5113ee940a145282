"""Decode Kafka records into events: one row per record, with either the contract's columns or the reason why it is refused.

Spark's Python workers decode JSON on Arrow batches (arrow_json.py). Spark itself evaluates row rules, and event ids from a record's key or
header. The result has the target's columns. Records for the quarantine also have `__reason`, `__detail`, and the raw `__key`, `__value` and
`__headers`. The raw columns are NULL on valid rows, so that a cached batch does not contain its bytes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract.columns import PAYLOAD_HASH, target_fields
from ingest.contract.definition import RAW_COLUMNS, Contract
from ingest.contract.sql_type import to_arrow
from ingest.decode import arrow_json, exact_json
from ingest.decode.arrow_json import BatchDecoder, Plan
from ingest.decode.partition_value import ESCAPED, NAME_BYTES_MAX, NULL_FOLDER, PATH_BYTES_MAX, UNWRITABLE
from ingest.decode.payload import payload_hash

HEADERS = cast(T.ArrayType, {column.name: column.data_type for column in RAW_COLUMNS}["headers"])
# The longest name of a partition's folder, without its column, for types other than STRING.
OTHERS_BYTES_MAX = 50

# Workers get these modules by value: an executor needs pyarrow, numpy and msgspec, and cannot have another version of this package.
for _module in (arrow_json, exact_json):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class BatchSource:
    """The origin of a batch: its topic id, its epoch and number, and its ingestion time."""

    topic_id: str
    epoch: int
    batch: int
    ingested_at: datetime


def decode(records: DataFrame, contract: Contract, source: BatchSource) -> DataFrame:
    """Decode the records of Spark's Kafka source (key, value, headers, topic, partition, offset, timestamp)."""
    frame = records.select(
        F.col("key").alias("__key"),
        F.col("value").alias("__value"),
        F.col("headers").alias("__headers"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_kafka_timestamp"),
    )
    faults: list[Column] = []
    if contract.source.format == "raw":
        frame = frame.select("*", *(F.col(f"__{column.name}").alias(column.name) for column in RAW_COLUMNS))
    else:
        frame = _json(frame, contract)
        faults.append(F.when(F.col(arrow_json.REASON).isNotNull(), _fault(F.col(arrow_json.REASON), F.col(arrow_json.DETAIL))))
    frame = frame.select(
        "*",
        F.lit(source.topic_id).alias("_topic_id"),
        F.timestamp_micros(F.lit(round(source.ingested_at.timestamp() * 1_000_000))).alias("_ingested_at"),
        F.lit(source.epoch).alias("_epoch"),
        F.lit(source.batch).cast("bigint").alias("_batch"),
    )
    if contract.event_id.kind in ("key", "header"):
        frame, more = _record_event_id(frame, contract)
        faults += more
    frame = frame.withColumn("__fault", F.coalesce(*faults, _no_fault()))
    for rule in contract.rules:
        # A rule applies only to rows whose columns are valid.
        broken = F.col("__fault").isNull() & ~holds(rule.check)
        frame = frame.withColumn("__fault", F.when(broken, _fault("broken_rule", F.lit(rule.name))).otherwise(F.col("__fault")))
    if _has_unwritable(contract):
        frame = frame.withColumn("__fault", F.coalesce("__fault", _unwritable(contract)))
    failed = F.col("__fault").isNotNull()
    columns = [F.col(f"`{field.name}`") for field in target_fields(contract) if field.name != PAYLOAD_HASH]
    if contract.conflicts == "table":
        columns.append(F.when(~failed, payload_hash(contract)).alias(PAYLOAD_HASH))
    kept = [F.when(failed, F.col(name)).alias(name) for name in ("__key", "__value", "__headers")]
    return frame.select(*columns, F.col("__fault.code").alias("__reason"), F.col("__fault.detail").alias("__detail"), *kept)


def holds(check: str) -> Column:
    """Whether a row meets a rule. The rule must be TRUE; NULL breaks it, as in Delta's CHECK."""
    return F.coalesce(F.expr(f"({check})"), F.lit(False))


def _has_unwritable(contract: Contract) -> bool:
    """Whether a partition value may be one that cannot be written: texts may; of other types only many columns together are too long."""
    names = contract.layout.partition_by
    kinds = {field.name: field.dataType for field in target_fields(contract)}
    return any(kinds[name] == T.StringType() for name in names) or sum(len(name) + OTHERS_BYTES_MAX for name in names) > NAME_BYTES_MAX


def _unwritable(contract: Contract) -> Column:
    """The fault of a row whose partition values cannot be written, by the rules of `partition_value.unwritable`; NULL if they can be."""
    escaped = "[" + "".join(f"\\x{ord(letter):02x}" for letter in sorted(ESCAPED)) + "]"
    faults, length = [], F.lit(0)
    for name in contract.layout.partition_by:
        text = F.col(f"`{name}`").cast("string")  # of a time a few bytes less than the commit has, which only the sum could notice
        around = len(name) + len("=/")
        size = F.octet_length(text) + 2 * F.regexp_count(text, F.lit(escaped)) + around
        length = length + F.coalesce(size, F.lit(around + len(NULL_FOLDER)))
        wrong = text.isin("", NULL_FOLDER) | F.contains(text, F.lit("\0"))
        wrong |= (size > NAME_BYTES_MAX + 1) | (length > PATH_BYTES_MAX)
        faults.append(F.when(wrong, _fault(UNWRITABLE, F.lit(name))))
    return F.coalesce(*faults)


def _fault(code: str | Column, detail: Column) -> Column:
    return F.struct((F.lit(code) if isinstance(code, str) else code).alias("code"), detail.cast("string").alias("detail"))


def _no_fault() -> Column:
    return F.lit(None).cast("struct<code:string,detail:string>")


def _json(records: DataFrame, contract: Contract) -> DataFrame:
    plan = plan_of(contract)
    decoded = [T.StructField(column.name, column.data_type) for column in contract.columns]
    if contract.unknown_fields == "keep":
        decoded.append(T.StructField("_unknown", T.MapType(T.StringType(), T.StringType())))
    decoded += [T.StructField(name, T.StringType()) for name in (arrow_json.REASON, arrow_json.DETAIL)]
    # Headers go as text: Spark's Arrow writer measures every part of a nested column per record, at ten times the cost of reading it.
    flat = records.withColumn("__headers", F.to_json("__headers"))
    found = flat.mapInArrow(_worker(plan), T.StructType([*flat.schema.fields, *decoded]))
    return found.withColumn("__headers", F.from_json("__headers", HEADERS))


def plan_of(contract: Contract) -> Plan:
    """What workers need to decode the contract's JSON."""
    return Plan(
        pa.schema([pa.field(column.name, to_arrow(column.sql_type), column.nullable) for column in contract.columns]),
        tuple(contract.event_id.columns),
        contract.unknown_fields,
        # Checks after the workers may still refuse a record.
        keep_raw=bool(contract.rules) or contract.event_id.kind != "columns" or _has_unwritable(contract),
    )


def _worker(plan: Plan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return lambda batches: BatchDecoder(plan).decode(batches)


def _record_event_id(frame: DataFrame, contract: Contract) -> tuple[DataFrame, list[Column]]:
    header = contract.event_id.header
    if header is None:
        found, where = F.col("__key"), "the key"
    else:
        # The last header with a name wins, as in Kafka's own Headers.lastHeader.
        named = F.filter(F.col("__headers"), lambda item: item["key"] == header)
        found, where = F.try_element_at(named, F.lit(-1))["value"], f"header {header}"
    checks = [
        F.when(found.isNull() | (F.length(found) == 0), _fault("missing_event_id", F.lit(f"{where} is missing or empty"))),
        F.when(~F.is_valid_utf8(found.cast("string")), _fault("not_utf8", F.lit(where))),
    ]
    return frame.withColumn("_event_id", as_text(found)), checks


def as_text(value: Column) -> Column:
    """The value as a STRING, NULL if it is BINARY that is not UTF-8: Spark would write its bytes, and other engines could not read them."""
    text = value.cast("string")
    return F.when(F.is_valid_utf8(text), text)
