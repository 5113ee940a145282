"""The Delta tables of a contract: columns, layout and properties (docs/reference/guarantees.md, Columns)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import types as T

from ingest.contract.columns import event_id_columns, target_fields
from ingest.contract.definition import RAW_COLUMNS, Contract
from ingest.delta.contract_change import EVENT_ID_PROPERTY, event_id_text
from ingest.runtime.places import Places

_RAW = {column.name: column.data_type for column in RAW_COLUMNS}

QUARANTINE_FIELDS = (
    T.StructField("topic", T.StringType(), False),
    T.StructField("topic_id", T.StringType(), False),
    T.StructField("source", T.ShortType(), False),
    T.StructField("partition", T.IntegerType(), False),
    T.StructField("offset", T.LongType(), False),
    T.StructField("kafka_timestamp", T.TimestampType()),
    T.StructField("key", _RAW["key"]),
    T.StructField("value", _RAW["value"]),
    T.StructField("headers", _RAW["headers"]),
    T.StructField("reason_code", T.StringType(), False),
    T.StructField("reason_detail", T.StringType()),
    T.StructField("event_id", T.StringType()),
    T.StructField("contract_hash", T.StringType(), False),
    T.StructField("epoch", T.IntegerType(), False),
    T.StructField("batch", T.LongType(), False),
    T.StructField("state", T.StringType(), False),
    T.StructField("state_changed_at", T.TimestampType(), False),
    T.StructField("state_by", T.StringType(), False),
)

_SUM, _HASH = T.DecimalType(38, 0), T.DecimalType(20, 0)
# Described in ingest/ledger/ledger_line.py.
LEDGER_FIELDS = (
    T.StructField("schema_version", T.IntegerType(), False),
    T.StructField("pipeline", T.StringType(), False),
    T.StructField("table", T.StringType(), False),
    T.StructField("why", T.StringType(), False),
    T.StructField("epoch", T.IntegerType(), False),
    T.StructField("batch", T.LongType(), False),
    T.StructField("topic", T.StringType(), False),
    T.StructField("topic_id", T.StringType(), False),
    T.StructField("source", T.ShortType(), False),
    T.StructField("partition", T.IntegerType(), False),
    T.StructField("start_offset", T.LongType()),
    T.StructField("end_offset", T.LongType()),
    T.StructField("leader_epoch", T.IntegerType()),
    T.StructField("records_read", T.LongType(), False),
    T.StructField("target_rows", T.LongType()),
    T.StructField("target_offsets", _SUM),
    T.StructField("target_hash", _HASH),
    T.StructField("present", T.LongType()),
    T.StructField("duplicate", T.LongType(), False),
    T.StructField("quarantine_rows", T.LongType(), False),
    T.StructField("quarantine_offsets", _SUM, False),
    T.StructField("quarantine_hash", _HASH, False),
    T.StructField("statement_epoch", T.IntegerType(), False),
    T.StructField("statement_batch", T.LongType(), False),
    T.StructField("writer", T.StringType(), False),
    T.StructField("of_table", T.StringType(), False),
    T.StructField("version", T.LongType(), False),
    T.StructField("contract_hash", T.StringType(), False),
    T.StructField("committed_at", T.TimestampType(), False),
)

# Described in ingest/quality/validation_result.py and docs/how-to/quality.md.
QUALITY_FIELDS = (
    T.StructField("schema_version", T.IntegerType(), False),
    T.StructField("run_id", T.StringType(), False),
    T.StructField("run_at", T.TimestampType(), False),
    T.StructField("pipeline", T.StringType(), False),
    T.StructField("table", T.StringType(), False),
    T.StructField("suite", T.StringType(), False),
    T.StructField("suite_hash", T.StringType(), False),
    T.StructField("contract_hash", T.StringType(), False),
    T.StructField("target_id", T.StringType(), False),
    T.StructField("version_from", T.LongType()),
    T.StructField("version_to", T.LongType(), False),
    T.StructField("run_scope", T.StringType(), False),
    T.StructField("scope", T.StringType(), False),
    T.StructField("number", T.IntegerType(), False),
    T.StructField("expectation", T.StringType(), False),
    T.StructField("column", T.StringType()),
    T.StructField("arguments", T.StringType(), False),
    T.StructField("severity", T.StringType(), False),
    T.StructField("success", T.BooleanType(), False),
    T.StructField("sensitive", T.BooleanType(), False),
    T.StructField("observed", T.StringType()),
    T.StructField("element_count", T.LongType()),
    T.StructField("unexpected_count", T.LongType()),
    T.StructField("unexpected_percent", T.DoubleType()),
    T.StructField("unexpected_values", T.StringType()),
    T.StructField("samples", T.StringType(), False),
    T.StructField("exception", T.StringType()),
    T.StructField("page", T.StringType()),
    T.StructField("gx_version", T.StringType(), False),
    T.StructField("engine", T.StringType()),  # NULL: Spark, before there was another
)


# A platform may turn deletion vectors on for new tables. What is erased would then stay in files that VACUUM keeps, and not every reader
# of the table could read it.
NO_VECTORS = {"delta.enableDeletionVectors": "false"}


@dataclass(frozen=True)
class TableDefinition:
    """The location, columns and settings with which a table is created."""

    path: str
    fields: tuple[T.StructField, ...]
    properties: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    comment: str = ""


def definitions(contract: Contract, places: Places) -> tuple[TableDefinition, TableDefinition, TableDefinition]:
    """Target, quarantine and ledger of a contract."""
    layout = contract.layout
    # Statistics cost a fifth of a write. Batches, verify and readers prune by these columns.
    pruned = [
        *event_id_columns(contract),
        contract.event_time,
        "_partition",
        "_offset",
        "_ingested_at",
        "_epoch",
        "_batch",
        *layout.cluster_by,
    ]
    # Delta keeps no statistics for BINARY columns and partition columns.
    without = {*layout.partition_by, *(each.name for each in target_fields(contract) if isinstance(each.dataType, T.BinaryType))}
    kept = dict.fromkeys(name for name in pruned if name and name not in without)
    # Serializable, so that a concurrent blind append by another writer conflicts with a MERGE.
    common = {"delta.isolationLevel": "Serializable", **NO_VECTORS}
    return (
        TableDefinition(
            places.target,
            tuple(target_fields(contract)),
            {
                **common,
                EVENT_ID_PROPERTY: event_id_text(contract),
                "delta.dataSkippingStatsColumns": ",".join(kept),
                **dict(contract.properties),
            },
            layout.partition_by,
            layout.cluster_by,
            contract.description,
        ),
        TableDefinition(places.quarantine, QUARANTINE_FIELDS, {**common, "delta.dataSkippingStatsColumns": "partition,offset,epoch,batch"}),
        TableDefinition(places.ledger, LEDGER_FIELDS, common),
    )


def quality_definition(places: Places) -> TableDefinition:
    """The table of validation results. The first validation creates it."""
    # Statistics of other columns would put sampled values into the log, where an erasure cannot reach them.
    properties = {"delta.dataSkippingStatsColumns": "run_at", **NO_VECTORS}
    return TableDefinition(places.quality, QUALITY_FIELDS, properties, comment="Validation results: one row per expectation and run.")
