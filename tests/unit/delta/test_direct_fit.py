"""Which tables the direct writer may write. What nobody has heard of makes a table unfit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ingest.delta.direct_fit import unfit_because
from ingest.delta.table_state import TableState

pytestmark = pytest.mark.unit


def schema(kind: Any = "string", **metadata: Any) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": metadata}]})


PLAIN = TableState(3, "id", schema(comment="a column"), {"delta.isolationLevel": "Serializable", "delta.enableDeletionVectors": "false"})
VARIANT = {"type": "array", "elementType": "variant", "containsNull": True}


def test_a_table_as_a_start_creates_it_is_fit() -> None:
    supported = frozenset({"appendOnly", "invariants", "timestampNtz", "columnMapping", "changeDataFeed"})
    assert unfit_because(PLAIN) is None and unfit_because(replace(PLAIN, features=supported)) is None
    assert unfit_because(replace(PLAIN, reader_version=3, writer_version=7)) is None


def test_the_protocols_versions_come_from_the_log_also_without_features() -> None:
    later = PLAIN.after([{"protocol": {"minReaderVersion": 4, "minWriterVersion": 8}}])
    assert (later.reader_version, later.writer_version) == (4, 8)
    assert later.after([{"txn": {"appId": "a", "version": 1}}]).reader_version == 4, "a commit without a protocol changes nothing"
    found = unfit_because(later)
    assert found is not None and "version" in found


def listed(columns: str) -> dict[str, Any]:
    return {"properties": {"delta.dataSkippingStatsColumns": columns}}


def test_a_clustered_table_is_fit_if_its_files_get_statistics_of_its_clustering_columns() -> None:
    clustered = replace(PLAIN, cluster_by=("c",), features=frozenset({"clustering", "domainMetadata", "invariants"}))
    assert unfit_because(replace(clustered, **listed("b, c"))) is None
    found = unfit_because(replace(clustered, **listed("b")))
    assert found is not None and "statistics" in found


def test_a_change_data_feed_is_fit_because_statements_are_refused_one_by_one() -> None:
    assert unfit_because(replace(PLAIN, properties={"delta.enableChangeDataFeed": "true"})) is None


@pytest.mark.parametrize("kind", ["string", "boolean", "long", "decimal(20,3)", "date", "timestamp", "timestamp_ntz"])
def test_a_partitioned_table_is_fit(kind: str) -> None:
    assert unfit_because(replace(PLAIN, schema=schema(kind), partition_by=("c",))) is None


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"features": frozenset({"invariants", "somethingNew"})}, "somethingNew"),
        ({"properties": {"delta.enableDeletionVectors": "true"}}, "enableDeletionVectors"),
        ({"properties": {"delta.columnMapping.mode": "name"}}, "columnMapping"),
        ({"properties": {"delta.enableRowTracking": "TRUE"}}, "enableRowTracking"),
        ({"properties": {"delta.constraints.positive": "n > 0"}}, "constraint positive"),
        ({"reader_version": 4}, "reader version 4"),
        ({"writer_version": 8}, "writer version 8"),
        ({"partition_by": ("c",), "schema": schema({"type": "array", "elementType": "string", "containsNull": True})}, "partitioned by c"),
        ({"cluster_by": ("c",)}, "clustered by c"),
        ({"cluster_by": ("s.c",), **listed("s.c"), "schema": schema({"type": "struct", "fields": []})}, "clustered by s.c"),
        ({"cluster_by": ("c",), **listed("c"), "schema": schema("binary")}, "clustered by c"),
        ({"schema": schema(**{"delta.generationExpression": "1"})}, "generationExpression"),
        ({"schema": schema(**{"CURRENT_DEFAULT": "1"})}, "CURRENT_DEFAULT"),
        ({"schema": schema(**{"unheard of": 1})}, "unheard of"),
        ({"schema": schema("variant")}, "VARIANT"),
        ({"schema": schema(VARIANT)}, "VARIANT"),
    ],
)
def test_a_feature_in_use_that_needs_another_writer_is_named(change: dict[str, Any], because: str) -> None:
    found = unfit_because(replace(PLAIN, **change))
    assert found is not None and because in found
