"""The columns of a target table: the event's columns, then provenance; and the event id's columns. Only `target_fields` needs pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.contract.definition import RAW_COLUMNS, Contract
from ingest.contract.sql_type import Atomic, Field, Map, field_to_delta

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

PAYLOAD_HASH = "_payload_hash"

_STRING, _SMALLINT, _INT, _BIGINT, _TIMESTAMP = (Atomic(kind) for kind in ("STRING", "SMALLINT", "INT", "BIGINT", "TIMESTAMP"))


def event_id_columns(contract: Contract) -> tuple[str, ...]:
    """The target's columns that contain the event id."""
    kind = contract.event_id.kind
    if kind == "columns":
        return tuple(contract.event_id.columns)
    return ("_topic_id", "_partition", "_offset") if kind == "position" else ("_event_id",)


def target_columns(contract: Contract) -> list[Field]:
    """The columns of the target; each has a comment, which may be empty."""
    columns = RAW_COLUMNS if contract.source.format == "raw" else contract.columns
    found = [Field(column.name, column.sql_type, column.nullable, column.comment or "") for column in columns]
    if contract.event_id.kind in ("key", "header"):
        found.append(Field("_event_id", _STRING, False, "The event id, from the record's key or header."))
    if contract.event_id.kind == "position":
        found.append(Field("_topic_id", _STRING, False, "Kafka's id of the topic; a recreated topic has another id."))
    found += [
        Field("_source", _SMALLINT, False, "The number of the topic, from 0; the ledger has its name."),
        Field("_partition", _INT, False, "Kafka partition."),
        Field("_offset", _BIGINT, False, "Offset in the partition."),
        Field("_kafka_timestamp", _TIMESTAMP, True, "The record's timestamp in Kafka."),
        Field("_ingested_at", _TIMESTAMP, False, "Time at which the micro-batch was planned."),
        Field("_epoch", _INT, False, "The epoch that inserted the row."),
        Field("_batch", _BIGINT, False, "The batch of that epoch that inserted the row."),
    ]
    if contract.unknown_fields == "keep":
        found.append(Field("_unknown", Map(_STRING), True, "Fields that the contract does not name."))
    if contract.conflicts == "table":
        comment = "A hash of the event's columns. If it differs between copies, so do their values; the reverse does not always hold."
        found.append(Field(PAYLOAD_HASH, _BIGINT, True, comment))
    return found


def target_fields(contract: Contract) -> list[StructField]:
    """The columns of the target as pyspark fields."""
    from pyspark.sql.types import StructType

    return StructType.fromJson({"fields": [field_to_delta(each) for each in target_columns(contract)]}).fields
