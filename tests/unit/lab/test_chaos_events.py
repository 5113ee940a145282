"""Events of a chaos run: from the sample shop, the column types or a samples file, including broken events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.contract.definition import Contract, load_contracts
from ingest.lab.chaos.chaos_events import Events, bodies, compared_columns, refuse_unfit, refused_kinds
from ingest.lab.oracle.sources import decode
from ingest.runtime.errors import InvalidInput

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]
CONTRACT: dict[str, Any] = {
    "pipeline": "club",
    "table": "members",
    "source": {"topic": "members", "format": "json"},
    "columns": [
        {"name": "club", "type": "DATE", "nullable": False},
        {"name": "number", "type": "BIGINT", "nullable": False},
        {"name": "name", "type": "STRING"},
        {"name": "fee", "type": "DECIMAL(10,2)", "nullable": False},
        {"name": "tags", "type": "ARRAY<STRING>"},
        {"name": "at", "type": "TIMESTAMP"},
        {"name": "raw", "type": "BINARY"},
        {"name": "more", "type": "STRUCT<a: INT, b: MAP<STRING, DOUBLE>>"},
    ],
    "event_id": ["club", "number"],
}


def contract(**changes: object) -> Contract:
    return Contract.model_validate_json(json.dumps({**CONTRACT, **changes}))


def test_events_of_the_repositorys_contracts_come_from_the_shop_with_unique_ids() -> None:
    for each in load_contracts(PROJECT):
        pool = bodies(each, "1", None)
        assert pool.origin == f"the shop's {each.table}"
        source = Events([pool], "1", "0")
        events = list(source.events(500))
        assert len({event.event_id for event in events}) == 500
        for event in events:
            record = decode(event.value, each.event_id.columns, compared_columns(each))
            assert record.event_id == (event.event_id,)
            assert not [c.name for c in each.columns if not c.nullable and json.loads(event.value).get(c.name) is None]


def test_two_writers_never_share_an_id_and_a_restarted_writer_repeats_its_own() -> None:
    pool = bodies(contract(), "1", None)
    ids = {name: [e.event_id for e in Events([pool], "1", name).events(300)] for name in ("0", "1", "aborted/0", "aborted/1")}
    assert len(set().union(*ids.values())) == 1200
    again = [event.value for event in Events([pool], "1", "1").events(300)]
    assert again == [event.value for event in Events([pool], "1", "1").events(300)]


def test_each_topic_of_a_table_gets_events_and_some_get_into_two_of_them() -> None:
    pool = bodies(contract(), "1", None, ("a", "b", "c"))
    source = Events([pool], "1", "0")
    topics: dict[str, set[str]] = {}
    values: dict[str, set[bytes | None]] = {}
    for event in source.events(3000):
        assert event.topic not in topics.get(event.event_id, set())
        topics.setdefault(event.event_id, set()).add(event.topic)
        values.setdefault(event.event_id, set()).add(event.value)
    assert {len(each) for each in topics.values()} == {1, 2} and {len(each) for each in values.values()} == {1}
    assert min(sum(topic in each for each in topics.values()) for topic in "abc") > 800
    assert 50 < sum(len(each) == 2 for each in topics.values()) < 100
    assert {source.poison(number).topic for number in range(9)} == {"a", "b", "c"}
    assert bodies(contract(), "1", None).topics == ("members",)
    several = contract(source={"topic_pattern": "members-.*", "format": "json"})
    assert bodies(several, "1", None).topics == ("club.members",), "what a pattern finds is not known here"


def test_the_oracle_can_decode_events_that_are_generated_from_the_column_types() -> None:
    each = contract()
    pool = bodies(each, "1", None)
    assert pool.origin == "the column types"
    assert compared_columns(each) == ("name", "fee", "at")
    for event in Events([pool], "1", "3").events(200):
        record = decode(event.value, each.event_id.columns, ("fee",))
        assert record.event_id == tuple(event.event_id.split("\x1f"))
        assert json.loads(event.value).keys() == {column.name for column in each.columns}


def test_events_from_a_samples_file_keep_everything_but_their_ids(tmp_path: Path) -> None:
    (tmp_path / "members.jsonl").write_text('{"club": "2025-01-01", "number": 1, "name": "Ida", "fee": 12.50}\n', encoding="utf-8")
    pool = bodies(contract(), "1", tmp_path)
    values = [json.loads(event.value) for event in Events([pool], "1", "0").events(20)]
    assert {value["name"] for value in values} == {"Ida"}
    assert len({value["number"] for value in values}) == 20
    assert '"fee":12.50' in pool.texts[0]


@pytest.mark.parametrize("text", ['{"fee": 1', '{"name": "Ida"}', "[1]", ""])
def test_a_samples_file_that_does_not_fit_the_contract_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "members.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        bodies(contract(), "1", tmp_path)
    assert refused.value.code == "CHAOS_SAMPLE"
    assert "members.jsonl" in refused.value.found


@pytest.mark.parametrize("event_id", ["key", ["club"], ["raw", "number"]])
def test_a_contract_that_the_oracle_cannot_judge_is_refused(event_id: object) -> None:
    columns = [{**column, "nullable": False} for column in CONTRACT["columns"]]
    with pytest.raises(InvalidInput) as refused:
        refuse_unfit(contract(event_id=event_id, columns=columns))
    assert refused.value.code == "CHAOS_CONTRACT"


def test_poison_covers_all_kinds_and_the_oracle_agrees_which_events_have_an_id() -> None:
    each = contract()
    source = Events([bodies(each, "1", None)], "1", "0")
    kinds = set()
    for number in range(60):
        broken = source.poison(number)
        kinds.add(broken.kind)
        record = decode(broken.value, each.event_id.columns, ())
        assert (record.event_id is None) == (broken.event_id is None), broken
    assert {"tombstone", "not_utf8", "id_null", "object_for_fee"} <= kinds


def test_the_oracle_is_given_the_kinds_of_broken_events_that_are_always_refused() -> None:
    assert refused_kinds(contract()) == {"object_for_fee", "object_for_tags", "object_for_at"}
    source = Events([bodies(contract(), "7", None)], "7", "0")
    made = {broken.kind for broken in map(source.poison, range(20)) if broken.event_id is not None}
    assert made == refused_kinds(contract())
