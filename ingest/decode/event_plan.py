"""What decoding the records of a contract needs (`events.EventPlan`), made from the contract. Needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from ingest.contract.columns import target_columns
from ingest.contract.definition import RAW_COLUMNS, Contract
from ingest.contract.sql_type import to_arrow
from ingest.decode.arrow_json import Plan
from ingest.decode.events import EventPlan
from ingest.decode.rule_expression import ArrowRule


@dataclass(frozen=True)
class BatchSource:
    """The origin of a batch: the topic ids by their numbers, its epoch and number, and its ingestion time."""

    topic_ids: tuple[str, ...]
    epoch: int
    batch: int
    ingested_at: datetime


def event_plan(contract: Contract, source: BatchSource, rules: tuple[tuple[str, ArrowRule], ...]) -> EventPlan:
    """What workers need to decode the contract's records."""
    json = None
    if contract.source.format == "json":
        fields = [pa.field(column.name, to_arrow(column.sql_type), column.nullable) for column in contract.columns]
        json = Plan(pa.schema(fields), tuple(contract.event_id.columns), contract.unknown_fields)
    ingested_at = round(source.ingested_at.timestamp() * 1_000_000)
    constants = {"_ingested_at": ingested_at, "_epoch": source.epoch, "_batch": source.batch}
    return EventPlan(
        target_schema(contract),
        json,
        payload_columns(contract),
        key=contract.event_id.kind == "key",
        header=contract.event_id.header,
        topic_ids=source.topic_ids if contract.event_id.kind == "position" else (),
        constants=tuple(constants.items()),
        rules=rules,
        partition_by=tuple(contract.layout.partition_by),
    )


def target_schema(contract: Contract) -> pa.Schema:
    """The target's columns as Arrow's."""
    return pa.schema([pa.field(field.name, to_arrow(field.type), field.nullable) for field in target_columns(contract)])


def payload_columns(contract: Contract) -> tuple[str, ...]:
    """The columns of the event itself: two copies that differ in one of them are in conflict."""
    return tuple(column.name for column in (RAW_COLUMNS if contract.source.format == "raw" else contract.columns))
