"""This repository's two contracts on sample events: good events become exact rows, each kind of poison gets its own reason."""

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

from ingest.contract.definition import Contract, load_contracts
from ingest.decode.decoder import decode
from ingest.lab.samples.poison_records import POISON_KINDS, PoisonKind, poison
from ingest.lab.samples.shop import ORDERS, PAYMENTS, Shop
from tests.integration.records import SOURCE, decoded, kafka_frame

pytestmark = pytest.mark.integration

# Kinds that become rows: a contract accepts a DECIMAL as a string that contains a number.
ROWS = {"number_as_text"}
# Reasons that concern the whole record. For all others, the detail names the column or the rule.
WHOLE = {"malformed_json", "duplicate_key"}
INSIDE = {"quantity": "lines", "unit_price": "lines"}
CONTRACTS = {c.source.topic: c for c in load_contracts(Path(__file__).parents[2])}


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> dict[str, tuple[bytes | None, Row]]:
    """One poison record of each kind: its value and the row that decode() returns."""
    found: dict[str, tuple[bytes | None, Row]] = {}
    for topic in (ORDERS, PAYMENTS):
        shop = Shop(7)
        records = [poison(kind, shop) for kind in POISON_KINDS if kind.topic == topic]
        rows = decoded(spark, CONTRACTS[topic], [record.value for record in records])
        found |= {record.kind: (record.value, row) for record, row in zip(records, rows, strict=True)}
    return found


@pytest.mark.parametrize("kind", POISON_KINDS, ids=lambda kind: kind.name)
def test_each_kind_of_poison_has_its_reason_names_its_column_and_keeps_its_bytes(
    outcomes: dict[str, tuple[bytes | None, Row]], kind: PoisonKind
) -> None:
    """I5. The reason for each kind of fault is tested in test_decode_records.py and test_decode_values.py."""
    value, row = outcomes[kind.name]
    if kind.name in ROWS:
        assert (row["__reason"], row["__detail"], row["__value"]) == (None, None, None)
        return
    assert row["__reason"] and row["__value"] == value
    named = INSIDE.get(kind.breaks, kind.breaks).partition("_")[0] in row["__detail"]
    assert named or kind.breaks == "record" or row["__reason"] in WHOLE, row["__detail"]


@pytest.mark.parametrize("topic", [ORDERS, PAYMENTS])
def test_sample_events_become_exactly_the_values_that_pythons_json_reads(spark: SparkSession, topic: str) -> None:
    """I5: no value changes, be it a decimal, a time, non-ASCII text, a nested row or an array."""
    rules = CONTRACTS[topic]
    shop = Shop(11)
    events = list(shop.orders(200)) if topic == ORDERS else [shop.payment() for _ in range(200)]
    found = decode(kafka_frame(spark, [each.value for each in events]), rules, SOURCE).persist()
    assert [row["__detail"] for row in found.collect() if row["__reason"]] == []
    schema = T.StructType([T.StructField(c.name, c.data_type, True) for c in rules.columns])
    expected = spark.createDataFrame([_row(rules, json.loads(each.value, parse_float=Decimal)) for each in events], schema)
    # chispa cannot sort rows by a map, but it can by the map's sorted entries.
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
