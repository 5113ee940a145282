"""The changes of `ingest apply` as one commit of the direct writer: the table's metadata as Spark's ALTER statements would leave it (I9).

Pure functions. What needs another protocol, or values that only Delta in Spark checks, is refused: Spark then makes the changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ingest.contract.columns import target_columns
from ingest.contract.definition import Contract
from ingest.contract.sql_type import DeltaType, field_to_delta
from ingest.delta import contract_change
from ingest.delta.direct_fit import refuse_unfit, unfit
from ingest.delta.live_table import LiveTable
from ingest.delta.put import Operation
from ingest.delta.table_state import TableState
from ingest.runtime.canonical_json import read_json

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

Field = dict[str, Any]
INTERVAL = r"interval [1-9]\d* (day|days|hour|hours|week|weeks)"
# Delta's properties whose values need no feature, with the values that Delta accepts for sure.
PLAIN_PROPERTIES: Mapping[str, str] = {
    "delta.checkpointInterval": r"[1-9]\d*",
    "delta.deletedFileRetentionDuration": INTERVAL,
    "delta.logRetentionDuration": INTERVAL,
}
# The type that needs a feature of its own.
NTZ, NTZ_FEATURE = "timestamp_ntz", "timestampNtz"


def altered(contract: Contract, state: TableState, path: str) -> tuple[Operation, Sequence[Mapping[str, Any]]] | None:
    """The commit that makes the table at `path` match its contract; None if nothing is to be changed in place.

    The caller has refused a contract that needs a new table. Raises InvalidInput DIRECT_UNFIT for changes that Spark has to make.
    """
    if not any(change.effect == "apply" for change in contract_change.changes(contract, state)):
        return None
    for key, value in dict(contract.properties).items():
        known = PLAIN_PROPERTIES.get(key, "" if key.startswith("delta.") else r"(?s:.*)")
        if state.properties.get(key) != value and re.fullmatch(known, value) is None:
            raise unfit(path, f"gets the property {key} = {value}, which only Delta in Spark checks")
    has = read_json(state.schema)["fields"]
    fields = _columns(has, [field_to_delta(column) for column in target_columns(contract)], top=True)
    schema = json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False, separators=(",", ":"))
    after = replace(state, schema=schema, properties={**state.properties, **contract.properties}, comment=contract.description or "")
    refuse_unfit(after, path)
    if f'"{NTZ}"' in schema and f'"{NTZ}"' not in state.schema and NTZ_FEATURE not in state.features:
        raise unfit(path, "gets a column of the type TIMESTAMP_NTZ, which needs another protocol")
    if left := [change.what for change in contract_change.changes(contract, after) if change.effect == "apply"]:
        raise unfit(path, f"needs a statement of Spark: {left[0]}")
    if fields == has:
        operation = Operation("SET TBLPROPERTIES", {"properties": json.dumps(dict(contract.properties))}, {})
    else:
        operation = Operation("UPDATE SCHEMA", {"schema": schema}, {})
    return operation, [{"metaData": _metadata(state, after)}]


def with_columns(table: LiveTable, wanted: Sequence[StructField]) -> tuple[Operation, Sequence[Mapping[str, Any]]] | None:
    """The commit that adds those of these columns that the table lacks; None if it has all. Its older rows have NULL there."""
    state = table.state
    assert state is not None, "the table exists"
    has = read_json(state.schema)["fields"]
    fields = _columns(has, [each.jsonValue() for each in wanted])
    if fields == has:
        return None
    after = replace(state, schema=json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False, separators=(",", ":")))
    return Operation("ADD COLUMNS", {}, {}), [{"metaData": _metadata(state, after)}]


def _metadata(before: TableState, after: TableState) -> dict[str, Any]:
    found: dict[str, Any] = {"id": before.id, "name": before.name or None, "format": {"provider": "parquet", "options": {}}}
    found |= {"schemaString": after.schema, "partitionColumns": list(before.partition_by), "configuration": after.properties}
    found |= {"createdTime": before.created_ms, "description": after.comment if after.comment or before.comment else None}
    return {name: value for name, value in found.items() if value is not None}


def _columns(has: Sequence[Field], wants: Sequence[Field], *, top: bool = False) -> list[Field]:
    """The table's fields with the contract's comments, without NOT NULL that the contract drops; then the new ones."""
    wanted = {field["name"].lower(): field for field in wants}
    names = {field["name"].lower() for field in has}
    new = [_added(field) for name, field in wanted.items() if name not in names]
    return [_field(field, wanted[field["name"].lower()], top=top) if field["name"].lower() in wanted else field for field in has] + new


def _field(has: Field, wants: Field, *, top: bool) -> Field:
    found = {**has, "type": _type(has["type"], wants["type"]), "nullable": has["nullable"] or wants["nullable"]}
    then, now = ((each.get("metadata") or {}).get("comment") or "" for each in (has, wants))
    if top and then != now:  # comments inside of a column are not compared
        found["metadata"] = {**(has.get("metadata") or {}), "comment": now}
    return found


def _type(has: DeltaType, wants: DeltaType) -> DeltaType:
    if isinstance(has, dict) and isinstance(wants, dict):
        if has["type"] == "struct":
            return {**has, "fields": _columns(has["fields"], wants["fields"])}
        if has["type"] == "array":
            return {**has, "elementType": _type(has["elementType"], wants["elementType"])}
    return has


def _added(field: Field) -> Field:
    comment = (field.get("metadata") or {}).get("comment")
    return {**field, "type": _plain(field["type"]), "metadata": {"comment": comment} if comment else {}}


def _plain(kind: DeltaType) -> DeltaType:
    """The type as the text of an ALTER statement has it: without comments and NOT NULL inside."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [{**field, "type": _plain(field["type"]), "nullable": True, "metadata": {}} for field in kind["fields"]]
        return {**kind, "fields": fields}
    if kind["type"] == "array":
        return {**kind, "elementType": _plain(kind["elementType"]), "containsNull": True}
    return {**kind, "keyType": _plain(kind["keyType"]), "valueType": _plain(kind["valueType"]), "valueContainsNull": True}
