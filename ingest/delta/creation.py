"""The first commit of a table that the direct writer creates: protocol and metadata as Delta in Spark writes them."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from pyspark.sql import types as T

from ingest.delta.put import Operation
from ingest.delta.table_definitions import TableDefinition


def creation(table: TableDefinition) -> list[dict[str, Any]]:
    """Protocol and metadata of a new table, as actions."""
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}  # appendOnly and invariants, which NOT NULL needs
    if "timestamp_ntz" in T.StructType(list(table.fields)).simpleString():  # also inside of a column
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"]}
        protocol["writerFeatures"] = ["appendOnly", "invariants", "timestampNtz"]
    metadata: dict[str, Any] = {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}}
    metadata |= {"schemaString": T.StructType(list(table.fields)).json(), "partitionColumns": list(table.partition_by)}
    metadata |= {"configuration": table.properties, "createdTime": round(time.time() * 1000)}
    if table.comment:
        metadata["description"] = table.comment
    return [{"protocol": protocol}, {"metaData": metadata}]


def create_operation(table: TableDefinition) -> Operation:
    """What DESCRIBE HISTORY shows of the creation."""
    parameters = {"partitionBy": json.dumps(list(table.partition_by)), "properties": json.dumps(table.properties), "isManaged": "false"}
    return Operation("CREATE TABLE", {"description": table.comment, **parameters} if table.comment else parameters, {})
