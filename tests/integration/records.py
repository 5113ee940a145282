"""Kafka records as Spark's source delivers them, and contracts, each made in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract.definition import Contract
from ingest.decode.decoder import decode
from ingest.decode.event_plan import BatchSource

SCHEMA = "key binary, value binary, topic string, source int, partition int, offset bigint, timestamp timestamp, "
SCHEMA += "headers array<struct<key:string,value:binary>>"
KAFKA_TIME = datetime(2025, 1, 2, 3, 4, 5, 678000, UTC)
SOURCE = BatchSource(("topic-id",), 3, 2, datetime(2025, 1, 2, 3, 5, 0, 123456, UTC))
Headers = Sequence[tuple[str, bytes | None]]


def contract(columns: Mapping[str, str] | None = None, *, event_id: Any = ("id",), topic: str = "events", **more: Any) -> Contract:
    """A contract of pipeline `t`. `columns` maps names to types, with `T!` for NOT NULL. The event id `id STRING!` is the default."""
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
    """Records of partition 0 with these values, starting at offset 0."""
    rows = []
    for offset, value in enumerate(values):
        raw = value.encode() if isinstance(value, str) else value
        key = keys[offset] if keys else None
        with_headers = headers[offset] if headers else None
        rows.append((key, raw, "events", 0, 0, offset, KAFKA_TIME, with_headers))
    return spark.createDataFrame(rows, SCHEMA)


def decoded(spark: SparkSession, rules: Contract, values: Sequence[bytes | str | None], **more: Any) -> list[Row]:
    """The rows that decode() returns for the values, in their order."""
    return decode(kafka_frame(spark, values, **more), rules, SOURCE).orderBy("_offset").collect()


def plain(spark: SparkSession, rules: Contract, values: Sequence[bytes | str | None], **more: Any) -> list[Row]:
    """Like decoded(), but top-level dates and times are text as Spark prints them in UTC: Python's would depend on the local zone."""
    frame = decode(kafka_frame(spark, values, **more), rules, SOURCE).orderBy("_offset")
    timed = (T.DateType, T.TimestampType, T.TimestampNTZType)
    columns = [F.col(f.name).cast("string").alias(f.name) if isinstance(f.dataType, timed) else F.col(f.name) for f in frame.schema]
    return frame.select(*columns).collect()


def event(**fields: Any) -> str:
    """A JSON object with a default id. The values of `fields` are inserted as JSON text."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in {"id": '"e"', **fields}.items()) + "}"


def reason(row: Row) -> tuple[str, str] | None:
    """Reason code and detail of a quarantined record, None for a good one."""
    return None if row["__reason"] is None else (row["__reason"], row["__detail"])
