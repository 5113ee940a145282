"""The first commit of a table that the direct writer creates: protocol and metadata as Delta in Spark writes them."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from pyspark.sql import types as T

from ingest.delta.direct_fit import FEED
from ingest.delta.put import Operation
from ingest.delta.table_definitions import TableDefinition

CLUSTERING = "delta.clustering"


def creation(table: TableDefinition) -> list[dict[str, Any]]:
    """Protocol and metadata of a new table, as actions; with its clustering columns, if it has some."""
    features = _features(table)
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}  # appendOnly and invariants, which NOT NULL needs
    if features:
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants", *features]}
    if "timestampNtz" in features:
        protocol |= {"minReaderVersion": 3, "readerFeatures": ["timestampNtz"]}
    metadata: dict[str, Any] = {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}}
    metadata |= {"schemaString": T.StructType(list(table.fields)).json(), "partitionColumns": list(table.partition_by)}
    metadata |= {"configuration": table.properties, "createdTime": round(time.time() * 1000)}
    if table.comment:
        metadata["description"] = table.comment
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    if table.cluster_by:
        domain = {"clusteringColumns": [[name] for name in table.cluster_by], "domainName": CLUSTERING}
        actions.append({"domainMetadata": {"domain": CLUSTERING, "configuration": json.dumps(domain), "removed": False}})
    return actions


def _features(table: TableDefinition) -> list[str]:
    """The features that the table uses, besides those that every table of ours has."""
    # Also inside of a column.
    found = ["timestampNtz"] if "timestamp_ntz" in T.StructType(list(table.fields)).simpleString() else []
    found += ["changeDataFeed"] if table.properties.get(FEED, "").lower() == "true" else []
    return found + (["clustering", "domainMetadata"] if table.cluster_by else [])


def create_operation(table: TableDefinition) -> Operation:
    """What DESCRIBE HISTORY shows of the creation."""
    parameters = {"partitionBy": json.dumps(list(table.partition_by)), "clusterBy": json.dumps(list(table.cluster_by))}
    parameters |= {"properties": json.dumps(table.properties), "isManaged": "false"}
    return Operation("CREATE TABLE", {"description": table.comment, **parameters} if table.comment else parameters, {})
