"""Contracts as values: the two sample contracts, the hash, freezing, and the round trip through JSON."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark.sql import types as spark

from ingest.contract.columns import PAYLOAD_HASH, target_columns
from ingest.contract.definition import Contract, EventId, Properties, QuarantineLimit, check_suites, load_contracts
from ingest.runtime.errors import InvalidInput
from scripts.contract_schema import PATH, contract_schema, schema_text

PROJECT = Path(__file__).parents[3]

DOCUMENT: dict[str, Any] = {
    "pipeline": "shop",
    "table": "orders",
    "source": {"topic": "orders", "format": "json"},
    "columns": [
        {"name": "order_id", "type": "string", "nullable": False},
        {"name": "amount", "type": "decimal(18, 2)"},
        {"name": "address", "type": "struct<city: string comment 'of delivery'>"},
        {"name": "ordered_at", "type": "timestamp"},
    ],
    "event_id": ["order_id"],
    "rules": [{"name": "amount_not_negative", "check": "amount >= 0"}],
}


def contract(**changes: Any) -> Contract:
    return Contract.model_validate({**DOCUMENT, **changes})


def test_the_sample_contracts_are_valid_and_sorted_by_name() -> None:
    orders, payments = load_contracts(PROJECT)
    assert (orders.name, payments.name) == ("shop.orders", "shop.payments")
    assert orders.path == PROJECT / "tables/orders.yml"
    assert orders.event_id == EventId(kind="columns", columns=("order_id",))
    assert (orders.source.isolation_level, orders.source.starting_offsets, orders.mode) == ("read_committed", "earliest", "insert")
    assert payments.unknown_fields == "keep"
    assert orders.source.max_records_per_batch == payments.source.max_records_per_batch == 100_000


def test_a_column_has_the_type_that_spark_parses() -> None:
    lines = next(column for column in load_contracts(PROJECT, ["orders"])[0].columns if column.name == "lines")
    fields = [("sku", spark.StringType()), ("quantity", spark.IntegerType()), ("unit_price", spark.DecimalType(12, 2))]
    assert lines.data_type == spark.ArrayType(spark.StructType([spark.StructField(name, kind) for name, kind in fields]))


def test_types_are_normalized_to_one_spelling() -> None:
    assert [column.type for column in contract().columns[:2]] == ["STRING", "DECIMAL(18,2)"]


def test_every_default_matches_the_reference_page() -> None:
    made = contract()
    assert made.quarantine == QuarantineLimit(max_share=0.05, min_records=1000)
    assert (made.layout.partition_by, made.layout.cluster_by, dict(made.properties), made.suite) == ((), (), {}, None)
    assert (made.unknown_fields, made.event_time, made.description, made.source.max_records_per_batch) == ("ignore", None, "", 5_000_000)
    assert all(column.nullable for column in made.columns[1:])


def test_a_raw_contract_needs_no_columns() -> None:
    raw = contract(source={"topic": "t", "format": "raw"}, columns=[], event_id="position", rules=[])
    assert (raw.event_id.kind, raw.columns) == ("position", ())


@pytest.mark.parametrize("written, kind, header", [("key", "key", None), ("header:event-id", "header", "event-id")])
def test_the_event_id_may_be_the_records_key_or_a_header(written: str, kind: str, header: str | None) -> None:
    made = contract(event_id=written)
    assert (made.event_id.kind, made.event_id.header, made.event_id.document()) == (kind, header, written)


def test_the_hash_of_this_contract_never_changes() -> None:
    # Pinned: with another hash, the contract of every table in production would appear to have changed.
    assert contract().hash == "7fb95a2d4558e84a"


TWO, LIKE = {"topics": ["orders", "returns"], "format": "json"}, {"topic_pattern": r"orders\..*", "format": "json"}


def test_a_source_is_one_topic_or_several_or_all_that_are_like_a_pattern() -> None:
    one, two, like = (contract(**({"source": source} if source else {})).source for source in (None, TWO, LIKE))
    assert [each.names for each in (one, two, like)] == [("orders",), ("orders", "returns"), ()]
    assert [each.shown for each in (one, two, like)] == ["orders", "orders, returns", r"topics like orders\..*"]
    assert (one.topic, two.topic, like.topic) == ("orders", "", "")


def test_the_hash_tells_topics_apart_and_their_order_does_not_matter() -> None:
    sources: list[dict[str, Any]] = [TWO, LIKE, {**LIKE, "topic_pattern": "orders"}, {**TWO, "topics": ["orders", "refunds"]}]
    assert len({contract().hash, *(contract(source=each).hash for each in sources)}) == 5
    assert contract(source={**TWO, "topics": ["returns", "orders"]}).hash == contract(source=TWO).hash


@pytest.mark.parametrize(
    "change",
    [
        {"description": "other words"},
        {"quarantine": {"max_share": 1, "min_records": 1}},
        {"source": {"topic": "orders", "format": "json", "max_records_per_batch": 7, "starting_offsets": "latest"}},
        {"layout": {"cluster_by": ["order_id"]}},
        {"properties": {"delta.enableChangeDataFeed": True}},
        {"suite": "expectations/orders.json"},
        {"columns": [{**c, "comment": "x", "type": c["type"].replace("'of delivery'", "'x'")} for c in DOCUMENT["columns"]]},
    ],
)
def test_the_hash_stays_the_same_if_a_change_cannot_affect_rows(change: dict[str, Any]) -> None:
    assert contract(**change) != contract()
    assert contract(**change).hash == contract().hash


@pytest.mark.parametrize(
    "change",
    [
        {"table": "others"},
        {"source": {"topic": "others", "format": "json"}},
        {"source": {"topic": "orders", "format": "json", "isolation_level": "read_uncommitted"}},
        {"columns": [*DOCUMENT["columns"], {"name": "more", "type": "INT"}]},
        {"columns": [{**c, "nullable": False} for c in DOCUMENT["columns"]]},
        {"event_id": "key"},
        {"event_time": "ordered_at"},
        {"rules": []},
        {"rules": [{"name": "amount_not_negative", "check": "amount > 0"}]},
        {"unknown_fields": "keep"},
    ],
)
def test_the_hash_changes_if_a_change_can_affect_rows(change: dict[str, Any]) -> None:
    assert contract(**change).hash != contract().hash


def test_a_contract_and_its_parts_are_frozen() -> None:
    made = contract(properties={"team": "finance"})
    with pytest.raises(ValidationError, match="frozen"):
        made.table = "other"
    with pytest.raises(ValidationError, match="frozen"):
        made.columns[0].nullable = True
    with pytest.raises(TypeError):
        made.properties["team"] = "other"  # type: ignore[index]


def test_the_json_round_trip_gives_an_equal_contract_and_the_same_text() -> None:
    for made in (
        *load_contracts(PROJECT),
        contract(event_id="header:id", properties={"delta.checkpointInterval": 20}),
        contract(source=TWO),
        contract(source=LIKE),
    ):
        again = Contract.model_validate_json(made.to_json())
        assert again == made and hash(again) == hash(made) and again.hash == made.hash
        assert again.to_json() == made.to_json()
        assert again.path is None


def test_a_contract_survives_pickling() -> None:
    made = contract(properties={"team": "finance"})
    assert pickle.loads(pickle.dumps(made)) == made


def test_the_path_of_a_contract_is_not_part_of_its_value(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "tables", tmp_path / "tables")
    here, there = load_contracts(PROJECT, ["orders"])[0], load_contracts(tmp_path, ["orders"])[0]
    assert here == there and here.path != there.path


def test_a_contract_made_in_python_is_validated_like_one_from_a_file() -> None:
    with pytest.raises(ValidationError, match="there is no column 'nope'"):
        contract(event_id=["nope"])


def test_property_values_become_text_as_delta_stores_them() -> None:
    made = contract(properties={"delta.enableChangeDataFeed": True, "delta.checkpointInterval": 20})
    assert made.properties == Properties({"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "20"})


def test_a_missing_suite_is_found_by_check_suites_only(tmp_path: Path) -> None:
    made = contract(suite="expectations/orders.json")
    with pytest.raises(InvalidInput) as caught:
        check_suites(tmp_path, [made])
    assert caught.value.code == "SUITE_NOT_FOUND" and "shop.orders: expectations/orders.json" in caught.value.found
    (tmp_path / "expectations").mkdir()
    (tmp_path / "expectations/orders.json").write_text("{}")
    check_suites(tmp_path, [made])


def test_the_schema_file_matches_the_models() -> None:
    assert PATH.read_text() == schema_text(), "run: PYTHONPATH=. python scripts/contract_schema.py"


def test_the_schema_contains_every_key_of_the_sample_contracts() -> None:
    schema = contract_schema()
    for made in load_contracts(PROJECT):
        document = json.loads(made.to_json())
        assert set(document) <= set(schema["properties"]) and set(schema["required"]) <= set(document)
        for part, name in (("TopicSource", "source"), ("QuarantineLimit", "quarantine"), ("Layout", "layout")):
            assert set(document[name]) <= set(schema["$defs"][part]["properties"])
        assert all(set(column) <= set(schema["$defs"]["Column"]["properties"]) for column in document["columns"])
        assert document["mode"] == schema["properties"]["mode"]["const"]
    source = schema["$defs"]["TopicSource"]
    assert source["oneOf"] == [{"required": [name]} for name in ("topic", "topics", "topic_pattern")]
    assert source["properties"]["topics"]["anyOf"][0]["minItems"] == 1
    assert all(part["additionalProperties"] is False for part in (schema, *schema["$defs"].values()))


def test_the_comment_of_the_hash_does_not_promise_that_different_values_have_different_hashes() -> None:
    """0.0 and -0.0 have the same one (ingest/decode/row_hash.py), and 64 bits are not enough for all values."""
    comment = next(field.comment or "" for field in target_columns(contract(conflicts="table")) if field.name == PAYLOAD_HASH)
    assert "the reverse does not always hold" in comment and "between copies with different values" not in comment
