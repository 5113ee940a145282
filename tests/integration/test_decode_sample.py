"""The two contracts of this repository on the sample's events: good ones become exact rows, each kind of poison its own reason."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract import Contract, load_contracts
from ingest.local.poison import POISON_KINDS, poison
from ingest.local.sample import ORDERS, PAYMENTS, Shop
from ingest.stream.decode import Decoder
from tests.integration.records import SOURCE, decoded, kafka_frame

pytestmark = pytest.mark.integration

MALFORMED = ("malformed_json", "not one complete JSON object")
NO_OBJECT = ("not_an_object", "no JSON object")
REASONS: dict[str, tuple[str, str] | None] = {
    "empty_value": ("empty", "the value has no bytes"),
    "tombstone": ("tombstone", "the value is null"),
    "blank_value": ("malformed_json", "no JSON object"),
    "not_utf8": ("not_utf8", "the value"),
    "truncated_json": MALFORMED,
    "json_number": NO_OBJECT,
    "json_string": NO_OBJECT,
    "json_null": NO_OBJECT,
    "json_array": NO_OBJECT,
    "json_array_of_objects": NO_OBJECT,
    "two_objects": MALFORMED,
    "trailing_garbage": MALFORMED,
    "id_missing": ("missing_event_id", "order_id is missing or null"),
    "id_null": ("missing_event_id", "order_id is missing or null"),
    "duplicate_keys": ("duplicate_key", "a field is given twice"),
    "not_null_missing": ("missing_value", "customer_id"),
    "not_null_null": ("missing_value", "currency"),
    "number_for_string": ("wrong_type", "customer_id"),
    "object_for_string": ("wrong_type", "customer_id"),
    "object_for_decimal": ("wrong_type", "amount"),
    "text_for_decimal": ("wrong_type", "amount"),
    "number_as_text": None,  # the contract takes a DECIMAL as a string that holds a number
    "not_a_number": MALFORMED,
    "decimal_overflow": ("number_out_of_range", "amount"),
    "huge_exponent": ("number_not_plain", "amount"),
    "decimal_scale": ("number_too_precise", "amount"),
    "timestamp_garbage": ("bad_timestamp", "ordered_at"),
    "timestamp_without_zone": ("bad_timestamp", "ordered_at"),
    "timestamp_impossible_date": ("bad_timestamp", "ordered_at"),
    "timestamp_time_only": ("bad_timestamp", "ordered_at"),
    "rule_negative_amount": ("broken_rule", "amount_not_negative"),
    "rule_unknown_status": ("broken_rule", "status_known"),
    "nested_text_for_int": ("wrong_type", "lines"),
    "nested_decimal_scale": ("number_too_precise", "lines"),
    "text_for_int": ("wrong_type", "attempts"),
    "fraction_for_int": ("wrong_type", "attempts"),
    "int_overflow": ("number_out_of_range", "attempts"),
    "text_for_boolean": ("wrong_type", "captured"),
    "text_for_double": ("wrong_type", "risk_score"),
    "array_for_map": ("wrong_type", "metadata"),
}
CONTRACTS = {c.source.topic: c for c in load_contracts(Path(__file__).parents[2])}


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> dict[str, tuple[bytes | None, Row]]:
    """One poison record of each kind: its value and what decode() makes of it."""
    found: dict[str, tuple[bytes | None, Row]] = {}
    for topic in (ORDERS, PAYMENTS):
        shop = Shop(7)
        records = [poison(kind, shop) for kind in POISON_KINDS if kind.topic == topic]
        rows = decoded(spark, CONTRACTS[topic], [record.value for record in records])
        found |= {record.kind: (record.value, row) for record, row in zip(records, rows, strict=True)}
    return found


@pytest.mark.parametrize("kind", [kind.name for kind in POISON_KINDS])
def test_each_kind_of_poison_has_its_reason_names_its_column_and_keeps_its_bytes(
    outcomes: dict[str, tuple[bytes | None, Row]], kind: str
) -> None:
    """I5"""
    value, row = outcomes[kind]
    expected = REASONS[kind]
    assert (row["__reason"], row["__detail"]) == (expected or (None, None))
    assert row["__value"] == (value if expected else None)


def test_every_kind_of_poison_is_expected_here() -> None:
    assert REASONS.keys() == {kind.name for kind in POISON_KINDS}


@pytest.mark.parametrize("topic", [ORDERS, PAYMENTS])
def test_the_samples_events_become_what_pythons_json_reads_in_them(spark: SparkSession, topic: str) -> None:
    """I5: no value is changed on its way: decimals, times, text beyond ASCII, nested rows and arrays."""
    rules = CONTRACTS[topic]
    shop = Shop(11)
    events = list(shop.orders(200)) if topic == ORDERS else [shop.payment() for _ in range(200)]
    found = Decoder(rules).decode(kafka_frame(spark, [each.value for each in events]), SOURCE).persist()
    assert [row["__detail"] for row in found.collect() if row["__reason"]] == []
    schema = T.StructType([T.StructField(c.name, c.data_type, True) for c in rules.columns])
    expected = spark.createDataFrame([_row(rules, json.loads(each.value, parse_float=Decimal)) for each in events], schema)
    # A map has no order by which chispa could sort rows; its sorted entries have.
    maps = {c.name for c in rules.columns if isinstance(c.data_type, T.MapType)}
    columns = [F.array_sort(F.map_entries(c.name)).alias(c.name) if c.name in maps else F.col(c.name) for c in rules.columns]
    frames = found.select(*columns), expected.select(*columns)
    assert_df_equality(*frames, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True, transforms=[])
    found.unpersist()


def _row(rules: Contract, value: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(_value(column.data_type, value.get(column.name)) for column in rules.columns)


def _value(kind: T.DataType, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, T.TimestampType):
        return datetime.fromisoformat(value)
    if isinstance(kind, T.DecimalType):
        return Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
    if isinstance(kind, T.DoubleType):
        return float(value)
    if isinstance(kind, T.StructType):
        return tuple(_value(f.dataType, value.get(f.name)) for f in kind.fields)
    if isinstance(kind, T.ArrayType):
        return [_value(kind.elementType, item) for item in value]
    return value
