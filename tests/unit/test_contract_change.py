"""What a changed contract asks of its table, by the schema alone; the doing is in tests/integration/test_contract_change.py."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from ingest.contract import Contract
from ingest.errors import Refused
from ingest.sql_type import field_to_delta
from ingest.stream.columns import target_columns
from ingest.stream.contract_change import changes, refuse
from ingest.stream.delta_log import State


def contract(columns: list[dict[str, Any]], **more: Any) -> Contract:
    document = {"pipeline": "shop", "table": "orders", "source": {"topic": "orders", "format": "json"}, "columns": columns}
    return Contract.model_validate({**document, "event_id": ["id"], **more})


def table(of: Contract) -> State:
    """A table as a contract made it."""
    fields = [field_to_delta(column) for column in target_columns(of)]
    return State(1, "id", json.dumps({"type": "struct", "fields": fields}), {}, tuple(of.layout.partition_by), of.description or "", {})


ID = {"name": "id", "type": "STRING", "nullable": False}


def test_nothing_changed_asks_for_nothing() -> None:
    one = contract([ID, {"name": "order_no", "type": "INT"}])
    assert changes(one, one, table(one)) == []


def test_another_case_is_another_name_also_inside_a_struct() -> None:
    """Delta takes `orderNo` and `orderno` for one column; a record has them as two fields, so one of them would be NULL from now on."""
    before = contract([ID, {"name": "orderNo", "type": "INT"}, {"name": "at", "type": "STRUCT<zipCode: STRING>"}])
    now = contract([ID, {"name": "orderno", "type": "INT"}, {"name": "at", "type": "STRUCT<zipcode: STRING>"}])
    found = {change.what.partition(":")[0]: change.effect for change in changes(now, before, table(before))}
    assert found == {
        "the column orderno is orderNo in the table": "new table",
        "the column at.zipcode is zipCode in the table": "new table",
    }


@pytest.mark.parametrize(
    ("column", "metadata", "told"),
    [
        (0, {"__COLLATIONS": {"id": "spark.UTF8_LCASE"}}, "the column id has the collation spark.UTF8_LCASE in the table"),
        (
            1,
            {"__COLLATIONS": {"tags.element": "icu.UNICODE_CI"}},
            "the column tags (tags.element) has the collation icu.UNICODE_CI in the table",
        ),
        (0, {"__CHAR_VARCHAR_TYPE_STRING": "char(36)"}, "the column id is char(36) in the table"),
    ],
)
def test_a_string_that_somebody_has_collated_or_padded_is_another_type(column: int, metadata: dict[str, Any], told: str) -> None:
    """Delta's schema says `string` of it all the same, and the contract refuses both: different event ids could be equal."""
    one = contract([ID, {"name": "tags", "type": "ARRAY<STRING>"}])
    state = table(one)
    schema = json.loads(state.schema)
    schema["fields"][column]["metadata"] |= metadata
    (change,) = changes(one, one, replace(state, schema=json.dumps(schema)))
    assert change.what.startswith(told) and change.effect == "new table"
    with pytest.raises(Refused, match="CONTRACT_CHANGED"):
        refuse(one, "lake/target", [change])
    plain = StructType([StructField("id", StringType("UTF8_BINARY"))]).jsonValue()["fields"][0]["metadata"]
    schema["fields"][column]["metadata"] = plain
    assert [each.what for each in changes(one, one, replace(state, schema=json.dumps(schema))) if each.effect == "new table"] == []


def test_another_format_is_another_table() -> None:
    before = Contract.model_validate(
        {"pipeline": "shop", "table": "orders", "source": {"topic": "orders", "format": "raw"}, "event_id": "key"}
    )
    columns = [{"name": "key", "type": "BINARY"}, {"name": "value", "type": "BINARY"}]
    now = contract([*columns, {"name": "headers", "type": "ARRAY<STRUCT<key: STRING, value: BINARY>>"}], event_id="key")
    assert "the format was raw, the contract says json" in [change.what for change in changes(now, before, table(before))]
