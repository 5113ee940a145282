"""What a changed contract asks of its table, by the schema alone; the doing is in tests/integration/test_contract_change.py."""

from __future__ import annotations

import json
from typing import Any

from ingest.contract import Contract
from ingest.sql_type import field_to_delta
from ingest.stream.columns import target_columns
from ingest.stream.contract_change import changes
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


def test_another_format_is_another_table() -> None:
    before = Contract.model_validate(
        {"pipeline": "shop", "table": "orders", "source": {"topic": "orders", "format": "raw"}, "event_id": "key"}
    )
    columns = [{"name": "key", "type": "BINARY"}, {"name": "value", "type": "BINARY"}]
    now = contract([*columns, {"name": "headers", "type": "ARRAY<STRUCT<key: STRING, value: BINARY>>"}], event_id="key")
    assert "the format was raw, the contract says json" in [change.what for change in changes(now, before, table(before))]
