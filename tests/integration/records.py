"""Kafka records as Spark's source delivers them, and contracts, made in a line each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract.definition import Contract
from ingest.decode.decoder import BatchSource, decode
from ingest.delta.batch_commit import BatchId

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
SCHEMA += "headers array<struct<key:string,value:binary>>"
KAFKA_TIME = datetime(2025, 1, 2, 3, 4, 5, 678000, UTC)
SOURCE = BatchSource("topic-id", BatchId(3, 2), datetime(2025, 1, 2, 3, 5, 0, 123456, UTC))
Headers = Sequence[tuple[str, bytes | None]]


def contract(columns: Mapping[str, str] | None = None, *, event_id: Any = ("id",), topic: str = "events", **more: Any) -> Contract:
    """A contract of the pipeline `t`: `columns` maps names to types, `T!` meaning NOT NULL; the id column `id STRING` comes by itself."""
    described = dict(columns or {})
    if event_id == ("id",):
        described = {"id": "STRING!", **described}
    source = {"topic": topic, "format": "json" if described else "raw", **more.pop("source", {})}
    listed = [{"name": n, "type": t.removesuffix("!"), "nullable": not t.endswith("!")} for n, t in described.items()]
    identity = list(event_id) if isinstance(event_id, tuple) else event_id
    return Contract.model_validate({"pipeline": "t", "table": "events", "source": source, "columns": listed, "event_id": identity, **more})


def kafka_frame(
    spark: SparkSession, values: Sequence[bytes | str | None], *, keys: Sequence[bytes | None] = (), headers: Sequence[Headers | None] = ()
) -> DataFrame:
    """Records of partition 0 with these values, from offset 0."""
    rows = []
    for offset, value in enumerate(values):
        raw = value.encode() if isinstance(value, str) else value
        key = keys[offset] if keys else None
        with_headers = headers[offset] if headers else None
        rows.append((key, raw, "events", 0, offset, KAFKA_TIME, with_headers))
    return spark.createDataFrame(rows, SCHEMA)


def decoded(spark: SparkSession, rules: Contract, values: Sequence[bytes | str | None], **more: Any) -> list[Row]:
    """What decode() makes of the values, in their order."""
    return decode(kafka_frame(spark, values, **more), rules, SOURCE).orderBy("_offset").collect()


def plain(spark: SparkSession, rules: Contract, values: Sequence[bytes | str | None], **more: Any) -> list[Row]:
    """As decoded(), with top-level dates and times as Spark prints them in UTC: Python's own would depend on the machine's zone."""
    frame = decode(kafka_frame(spark, values, **more), rules, SOURCE).orderBy("_offset")
    timed = (T.DateType, T.TimestampType, T.TimestampNTZType)
    columns = [F.col(f.name).cast("string").alias(f.name) if isinstance(f.dataType, timed) else F.col(f.name) for f in frame.schema]
    return frame.select(*columns).collect()


def event(**fields: Any) -> str:
    """A JSON object with an id of its own; text in `fields` is put in as JSON text."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in {"id": '"e"', **fields}.items()) + "}"


def reason(row: Row) -> tuple[str, str] | None:
    """Reason code and detail of a record that went to quarantine, None for a good one."""
    return None if row["__reason"] is None else (row["__reason"], row["__detail"])
