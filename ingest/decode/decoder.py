"""Decode Kafka records into events with Spark: one row per record, with either the contract's columns or the reason why it is refused.

Spark's Python workers decode (events.py). Spark itself evaluates the row rules of a contract that has one which workers cannot evaluate.
The result has the target's columns. Records for the quarantine also have `__reason`, `__detail`, and the raw `__key`, `__value` and
`__headers`. The raw columns are NULL on valid rows, so that a cached batch does not contain its bytes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ingest.contract.definition import RAW_COLUMNS, Contract
from ingest.decode import arrow_json, events, exact_json, headers, partition_value, payload, record_event_id, row_hash, rule_expression
from ingest.decode.arrow_json import DETAIL, REASON
from ingest.decode.arrow_rule import arrow_rules
from ingest.decode.event_plan import BatchSource, event_plan, payload_columns, target_schema
from ingest.decode.events import BROKEN_RULE, EventPlan, Events
from ingest.decode.payload import PAYLOAD
from ingest.decode.rule_refusal import RuleRaises, Untranslatable

HEADERS = cast(T.ArrayType, {column.name: column.data_type for column in RAW_COLUMNS}["headers"])

# Workers get these modules by value: an executor needs pyarrow, numpy and msgspec, and cannot have another version of this package.
for _module in (arrow_json, events, exact_json, headers, partition_value, payload, record_event_id, row_hash, rule_expression):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]


def decode(records: DataFrame, contract: Contract, source: BatchSource) -> DataFrame:
    """Decode records (key, value, headers, partition, offset and timestamp of Spark's Kafka source, and the topic's number as `source`)."""
    try:
        rules, by_spark = arrow_rules(contract), False
    except (Untranslatable, RuleRaises):
        rules, by_spark = (), bool(contract.rules)
    plan = event_plan(contract, source, rules)
    found = for_workers(records).mapInArrow(_worker(plan, keep_raw=by_spark), from_arrow_schema(plan.output))
    found = found.withColumn("__headers", F.from_json("__headers", HEADERS))
    return _ruled(found, contract) if by_spark else found


def refused(session: SparkSession, contract: Contract, source: BatchSource, records: pa.RecordBatch) -> DataFrame:
    """Records that no worker may see (`Events.unwritable`), as `decode` would refuse them."""
    found = Events(plan := event_plan(contract, source, ())).unwritable(records)
    frame = session.createDataFrame(pa.Table.from_batches([found]), from_arrow_schema(plan.output))
    return frame.withColumn("__headers", F.from_json("__headers", HEADERS))


def for_workers(records: DataFrame) -> DataFrame:
    """Records, as `decode` takes them, with the columns that `Events` reads."""
    return records.select(
        F.col("key").alias("__key"),
        F.col("value").alias("__value"),
        F.to_json("headers").alias("__headers"),
        F.col("source").cast("smallint").alias("_source"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_kafka_timestamp"),
    )


def with_source(records: DataFrame, topics: Mapping[int, str]) -> DataFrame:
    """The records of Spark's Kafka source with their topic's number as `source`. `topics` are the names by number."""
    if len(topics) == 1:
        return records.withColumn("source", F.lit(*topics))
    # A map: Spark compiles a chain of hundreds of CASEs for seconds, and one of thousands not at all.
    numbers = F.create_map(*(F.lit(each) for number, name in topics.items() for each in (name, number)))
    return records.withColumn("source", F.element_at(numbers, F.col("topic")))


def with_payload(found: DataFrame, contract: Contract) -> DataFrame:
    """Decoded events with a hash of the payload as `__payload`, which workers compute. Only the target's columns stay."""
    if contract.conflicts == "table":
        return found.withColumn(PAYLOAD, F.col(events.PAYLOAD_HASH))
    names, schema = payload_columns(contract), target_schema(contract)
    output = pa.schema([*(field.with_nullable(True) for field in schema), pa.field(PAYLOAD, pa.int64())])

    def worker(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            hashes = pa.array(payload.payload_hashes(((name, batch.column(name)) for name in names), batch.num_rows).view("int64"))
            yield pa.RecordBatch.from_arrays([*batch.columns, hashes], schema=output)

    return found.select(*(F.col(f"`{name}`") for name in schema.names)).mapInArrow(worker, from_arrow_schema(output))


def _worker(plan: EventPlan, *, keep_raw: bool) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return lambda batches: Events(plan).decode(batches, keep_raw=keep_raw)


def _ruled(found: DataFrame, contract: Contract) -> DataFrame:
    """The first broken rule becomes the reason of each event that breaks one. Other events lose their raw record."""
    for rule in contract.rules:
        broken = F.col(REASON).isNull() & ~holds(rule.check)
        fault = {REASON: F.lit(BROKEN_RULE), DETAIL: F.lit(rule.name)}
        found = found.withColumn("__broken", broken)
        found = found.withColumns({name: F.when(F.col("__broken"), value).otherwise(F.col(name)) for name, value in fault.items()})
    failed = F.col(REASON).isNotNull()
    raw = {name: F.when(failed, F.col(name)) for name in ("__key", "__value", "__headers")}
    if events.PAYLOAD_HASH in found.columns:
        raw[events.PAYLOAD_HASH] = F.when(~failed, F.col(events.PAYLOAD_HASH))
    return found.withColumns(raw).drop("__broken")


def holds(check: str) -> Column:
    """Whether a row meets a rule. The rule must be TRUE; NULL breaks it, as in Delta's CHECK."""
    return F.coalesce(F.expr(f"({check})"), F.lit(False))


def as_text(value: Column) -> Column:
    """The value as a STRING, NULL if it is BINARY that is not UTF-8: Spark would write its bytes, and other engines could not read them."""
    text = value.cast("string")
    return F.when(F.is_valid_utf8(text), text)
