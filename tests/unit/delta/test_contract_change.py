"""The changes that a contract requires of its table, from the schema alone. tests/integration/test_contract_change.py applies them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from ingest.contract.definition import Contract
from ingest.delta.contract_change import between, changes, created_by, refuse
from ingest.delta.table_state import TableState
from ingest.runtime.errors import Refused
from tests.command import exit_code


def contract(columns: list[dict[str, Any]], **more: Any) -> Contract:
    document = {"pipeline": "shop", "table": "orders", "source": {"topic": "orders", "format": "json"}, "columns": columns}
    return Contract.model_validate({**document, "event_id": ["id"], **more})


def table(of: Contract) -> TableState:
    """A table as the contract creates it."""
    return replace(created_by(of), version=1, id="id")


ID = {"name": "id", "type": "STRING", "nullable": False}
N = {"name": "n", "type": "INT"}


def test_an_unchanged_contract_requires_no_change() -> None:
    one = contract([ID, {"name": "order_no", "type": "INT"}])
    assert changes(one, table(one)) == []


def test_a_column_name_in_another_case_is_another_column_also_inside_a_struct() -> None:
    """To Delta `orderNo` and `orderno` are one column, but a record has two fields. One of them would be NULL from now on."""
    before = contract([ID, {"name": "orderNo", "type": "INT"}, {"name": "at", "type": "STRUCT<zipCode: STRING>"}])
    now = contract([ID, {"name": "orderno", "type": "INT"}, {"name": "at", "type": "STRUCT<zipcode: STRING>"}])
    found = {change.what.partition(":")[0]: change.effect for change in changes(now, table(before))}
    assert found == {
        "the column orderno is orderNo in the table": "new table",
        "the column at.zipcode is zipCode in the table": "new table",
    }


@pytest.mark.parametrize(
    ("column", "metadata", "message"),
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
def test_a_string_with_a_collation_or_a_fixed_length_is_another_type(column: int, metadata: dict[str, Any], message: str) -> None:
    """Delta's schema still says `string`. The contract refuses both, because different event ids could compare as equal."""
    one = contract([ID, {"name": "tags", "type": "ARRAY<STRING>"}])
    state = table(one)
    schema = json.loads(state.schema)
    schema["fields"][column]["metadata"] |= metadata
    (change,) = changes(one, replace(state, schema=json.dumps(schema)))
    assert change.what.startswith(message) and change.effect == "new table"
    with pytest.raises(Refused, match="CONTRACT_CHANGED"):
        refuse(one, "lake/target", [change])
    plain = StructType([StructField("id", StringType("UTF8_BINARY"))]).jsonValue()["fields"][0]["metadata"]
    schema["fields"][column]["metadata"] = plain
    assert [each.what for each in changes(one, replace(state, schema=json.dumps(schema))) if each.effect == "new table"] == []


def test_changed_rules_limits_and_read_options_apply_from_the_next_batch() -> None:
    one = contract([ID, N])
    now = contract([ID, N], rules=[{"name": "large", "check": "n > 5"}])
    (change,) = changes(now, table(one), one.hash)
    assert (change.what, change.effect, change.required) == ("rules, limits or read options", "next batch", False)
    assert changes(one, table(one), one.hash) == changes(one, table(one)) == []


def test_another_event_id_or_format_requires_a_new_table() -> None:
    raw = Contract.model_validate(
        {"pipeline": "shop", "table": "orders", "source": {"topic": "orders", "format": "raw"}, "event_id": "key"}
    )
    now = contract([ID])
    assert [change.effect for change in changes(now, table(raw))] == ["new table"] * 6
    found = [change.what for change in changes(now, table(raw))]
    assert found[0] == 'the event id is "key" in the table, ["id"] in the contract'
    assert "the column value is in the table, not in the contract" in found


def test_layout_and_properties_are_compared_with_the_table() -> None:
    before = contract([ID], layout={"cluster_by": ["id"]}, properties={"delta.checkpointInterval": 20})
    assert changes(before, table(before)) == []
    (change,) = changes(contract([ID], properties={"delta.checkpointInterval": 20}), table(before))
    assert (change.what, change.statement) == ("clustered by nothing", "ALTER TABLE {table} CLUSTER BY NONE")
    (change,) = changes(contract([ID], layout={"cluster_by": ["id"]}, properties={"delta.checkpointInterval": 30}), table(before))
    assert (change.what, change.effect, change.required) == ("delta.checkpointInterval = 30", "apply", False)
    assert changes(contract([ID], layout={"cluster_by": ["id"]}), table(before)) == [], "a property that the contract no longer names stays"
    (change,) = changes(contract([ID, N], layout={"partition_by": ["n"]}), table(contract([ID, N])))
    assert (change.what, change.effect) == ("the table is partitioned by nothing, the contract says n", "new table")


ONLY_SEEK = "is read no more: runs are refused until `ingest seek shop.orders --to table` goes on without it"
NO_OTHER = "offsets of one topic mean nothing in another"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"topic": "a"}, {"topics": ["b", "a"]}, []),
        ({"topics": ["a", "b"]}, {"topics": ["b", "a"]}, []),
        ({"topics": ["a", "b"]}, {"topic_pattern": "[ab]"}, []),
        ({"topic_pattern": "[ab]"}, {"topics": ["a"]}, []),  # which topics it has found is not known here
        ({"topics": ["a", "b", "c"]}, {"topics": ["c", "d"]}, [(f"a, b {ONLY_SEEK}", "next batch")]),
        ({"topics": ["a", "b", "ab"]}, {"topic_pattern": "[ab]"}, [(f"ab {ONLY_SEEK}", "next batch")]),  # a pattern is for whole names
        ({"topics": ["a", "b"]}, {"topic": "c"}, [(f"the topic is a, b before, c now: {NO_OTHER}", "new table")]),
        ({"topic": "a"}, {"topic_pattern": "b.*"}, [(f"the topic is a before, topics like b.* now: {NO_OTHER}", "new table")]),
    ],
)
def test_topics_that_leave_a_contract_need_a_seek_and_all_of_them_a_new_table(
    before: dict[str, Any], after: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    old, new = (contract([ID], source={**source, "format": "json"}) for source in (before, after))
    ((_, found),) = between([old], [new])
    assert [(each.what, each.effect) for each in found if "rules, limits" not in each.what] == expected


def test_two_sets_of_contracts_are_compared_without_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a pull request: an added column breaks nothing, a changed type, another topic and a contract that is gone do."""
    wide = contract([ID, {"name": "n", "type": "BIGINT"}], table="wide")
    moved = contract([ID, N], source={"topic": "other", "format": "json"}, table="moved")
    old = [contract([ID, N]), contract([ID, N], table="wide"), contract([ID, N], table="moved"), contract([ID, N], table="gone")]
    new = [contract([ID, N, {"name": "more", "type": "DATE"}]), wide, moved, contract([ID], table="fresh")]
    found = {name: {(change.what, change.effect) for change in each} for name, each in between(old, new)}
    assert found == {
        "shop.orders": {("the column more date is new", "apply")},
        "shop.wide": {("the column n is int in the table, bigint in the contract", "new table")},
        "shop.moved": {
            ("the topic is orders before, other now: offsets of one topic mean nothing in another", "new table"),
            *((change.what, change.effect) for change in changes(moved, created_by(old[2]), old[2].hash)),
        },
        "shop.gone": {("the contract is gone", "new table")},
    }
    for folder, contracts in (("main", old), ("branch", new)):
        (tmp_path / folder / "tables").mkdir(parents=True)
        for each in contracts:
            (tmp_path / folder / f"tables/{each.table}.yml").write_text(each.to_json(), encoding="utf-8")

    def plan(*words: str) -> int:
        return exit_code("plan", "--against", str(tmp_path / "main"), "--project", str(tmp_path / "branch"), *words)

    assert plan("orders") == 0
    assert plan() == 3
    assert "shop.wide: the column n is int in the table, bigint in the contract  →  A NEW TABLE" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "main/tables")
    assert plan() == 0, "the base of the first pull request has no contracts"
    (tmp_path / "main").rmdir()
    assert plan() == 2, "a folder that does not exist is a mistake"
