"""Columns inferred from a sample: types that lose nothing of it, the event id, and what a person must decide."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ingest.contract.sql_type_parser import parse_type
from ingest.runtime.errors import InvalidInput
from ingest.scaffold.draft import Draft
from ingest.scaffold.sampled_columns import draft_of

pytestmark = pytest.mark.unit


def draft(*values: dict[str, Any] | str, keys: list[bytes | None] | None = None) -> Draft:
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    return draft_of("shop.orders", zip(keys or [None] * len(texts), (text.encode() for text in texts), strict=True))


def types(of: Draft) -> dict[str, str]:
    return {column.name: column.type for column in of.columns}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "2147483648"], "BIGINT"),
        (["1", "9223372036854775808"], "DECIMAL(38,0)"),
        (["1", "12.5"], "DECIMAL(18,2)"),
        (["0.1234"], "DECIMAL(18,4)"),
        (["0.12345678"], "DOUBLE"),
        (["1e5", "2"], "DOUBLE"),
        (["true"], "BOOLEAN"),
        (['"2024-05-01T10:00:00Z"', '"2024-05-01 10:00:00.123+02:00"'], "TIMESTAMP"),
        (['"2024-05-01T10:00:00"'], "TIMESTAMP_NTZ"),
        (['"2024-05-01T10:00:00Z"', '"2024-05-01T10:00:00"'], "STRING"),
        (['"2024-13-01T10:00:00Z"'], "STRING"),
        (['"2024-05-01T10:00:00+05:75"'], "STRING"),
        (['"2024-05-01"'], "DATE"),
        (['"2024-W01-1"'], "STRING"),
        (["null"], "STRING"),
        (["1", '"one"'], "STRING"),
        (["[]"], "ARRAY<STRING>"),
        (["[1, null]", "[2.5]"], "ARRAY<DECIMAL(18,2)>"),
        (['{"a": 1}', '{"b": [{"c": "x"}]}'], "STRUCT<a: BIGINT, b: ARRAY<STRUCT<c: STRING>>>"),
        (['{"a-b": 1}', '{"c": 2}'], "MAP<STRING, BIGINT>"),
        (['{"a": 1, "A": 2}'], "MAP<STRING, BIGINT>"),
    ],
)
def test_the_type_holds_every_value_of_the_sample(values: list[str], expected: str) -> None:
    found = draft(*(f'{{"id": "{number}", "value": {value}}}' for number, value in enumerate(values)))
    assert types(found)["value"] == expected
    parse_type(expected)  # a contract accepts it


def test_a_column_that_was_ever_missing_or_null_is_nullable() -> None:
    found = draft({"id": "1", "a": 1, "b": 1}, {"id": "2", "a": None, "b": 1}, {"id": "3", "b": 1})
    assert {column.name: column.nullable for column in found.columns} == {"id": False, "a": True, "b": False}
    assert found.table == "orders" and found.topic == "shop.orders"


def test_the_event_id_is_the_column_that_never_stands_for_two_events() -> None:
    """A copy of the same event does not count against it."""
    one, two = {"customer_id": "c", "order_id": "1", "n": 1}, {"customer_id": "c", "order_id": "2", "n": 2}
    assert draft(one, two, one).event_id == ["order_id"]
    assert draft({**one, "id": "x"}, {**two, "id": "x"}).event_id == ["order_id"], "an id that two events share is none"


def test_without_such_a_column_the_event_id_is_the_key_and_without_a_key_the_table_keeps_raw_records() -> None:
    same: list[dict[str, Any]] = [{"kind": "a", "at": 1.5}, {"kind": "a", "at": 2.5}]
    assert draft(*same, keys=[b"1", b"2"]).event_id == "key"
    raw = draft(*same)
    assert (raw.format, raw.event_id, raw.columns) == ("raw", "position", ())
    assert draft("no json").format == "raw"


def test_the_notes_say_what_the_contract_leaves_out_and_personal_data_is_marked() -> None:
    found = draft({"id": "1", "_meta": 1, "Id": "2", "email": "x@y.z", "x": None}, "broken")
    notes = " ".join(found.notes)
    assert found.keep_unknown
    assert '"_meta"' in notes and '"Id"' in notes and "1 of them are not JSON objects" in notes and "x: the sample has only null" in notes
    assert {column.name for column in found.columns if column.sensitive} == {"email"}


def test_an_empty_topic_is_refused() -> None:
    with pytest.raises(InvalidInput, match="shop"):
        draft()
