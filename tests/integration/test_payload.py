"""The payload hash: equal for equal payloads, different for different ones, and stable for hashes already stored (I3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.records import contract, decoded

pytestmark = pytest.mark.integration

COLUMNS = {
    "n": "INT",
    "list": "ARRAY<STRING>",
    "map": "MAP<STRING, STRING>",
    "items": "ARRAY<STRUCT<a: STRING, b: STRING, c: INT>>",
    "box": "STRUCT<list: ARRAY<INT>, map: MAP<STRING, INT>, inner: STRUCT<x: INT, y: ARRAY<STRING>>>",
    "lists": "ARRAY<ARRAY<INT>>",
    "maps": "MAP<STRING, ARRAY<STRING>>",
}
PAYLOADS = 3000


def hashes(spark: SparkSession, payloads: list[dict[str, Any]]) -> list[int]:
    texts = [json.dumps({"id": "e", **payload}) for payload in payloads]
    rows = decoded(spark, contract(COLUMNS, conflicts="table"), texts)
    assert [row["__reason"] for row in rows] == [None] * len(rows)
    return [row["_payload_hash"] for row in rows]


class Payloads:
    """Random small payloads with many NULLs, so that payloads which a bad hash would confuse occur often."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)

    def text(self) -> str | None:
        return self.chance.choice([None, "", "p", "q", "null"])

    def number(self) -> int | None:
        return self.chance.choice([None, 0, 1])

    def some(self, one: Any, most: int = 3) -> list[Any] | None:
        return self.chance.choice([None, [], [one() for _ in range(self.chance.randint(1, most))]])

    def by_name(self, one: Any) -> dict[str, Any] | None:
        return None if self.chance.random() < 0.2 else {k: one() for k in self.chance.sample("pqr", self.chance.randint(0, 3))}

    def item(self) -> dict[str, Any] | None:
        return None if self.chance.random() < 0.2 else {"a": self.text(), "b": self.text(), "c": self.number()}

    def box(self) -> dict[str, Any] | None:
        inner = self.chance.choice([None, {"x": self.number(), "y": self.some(self.text, 2)}])
        return None if self.chance.random() < 0.2 else {"list": self.some(self.number), "map": self.by_name(self.number), "inner": inner}

    def payload(self) -> dict[str, Any]:
        values: dict[str, Callable[[], Any]] = {
            "n": self.number,
            "list": lambda: self.some(self.text),
            "map": lambda: self.by_name(self.text),
            "items": lambda: self.some(self.item, 2),
            "box": self.box,
            "lists": lambda: self.some(lambda: self.some(self.number, 2)),
            "maps": lambda: self.by_name(lambda: self.some(self.text, 2)),
        }
        name = self.chance.choice(list(values))
        return {name: values[name]()}


def canonical(value: dict[str, Any]) -> str:
    """One text per distinct payload: a NULL column equals a missing one, and the order of a map is ignored."""
    return json.dumps({k: v for k, v in value.items() if v is not None}, sort_keys=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_different_payloads_have_different_hashes_and_equal_ones_the_same(spark: SparkSession, seed: int) -> None:
    make = Payloads(seed)
    payloads = [make.payload() for _ in range(PAYLOADS)]
    by_hash: dict[int, set[str]] = {}
    for payload, hashed in zip(payloads, hashes(spark, payloads), strict=True):
        by_hash.setdefault(hashed, set()).add(canonical(payload))
    assert [same for same in by_hash.values() if len(same) > 1] == []
    different = {canonical(payload) for payload in payloads}
    assert len(by_hash) == len(different) > 400


def test_nulls_in_collections_change_the_hash(spark: SparkSession) -> None:
    groups: list[list[dict[str, Any]]] = [
        [{"list": each} for each in ([], [None], [None, None])],
        [{"list": each} for each in (["p"], [None, "p"], ["p", None])],
        [{"map": each} for each in ({"p": None, "q": "r"}, {"p": "q", "r": None})],
        [{"items": each} for each in ([{"a": "p"}], [{"b": "p"}], [{"a": "p"}, None], [None, {"a": "p"}], [{"a": "p"}, {}])],
        [{"box": {"list": each}} for each in ([1], [None, 1], [1, None])],
        [{"lists": each} for each in ([[1], None], [None, [1]], [[1, None]], [[None, 1]], [[1], [None]], [[1]])],
    ]
    payloads = [payload for group in groups for payload in group]
    found = hashes(spark, payloads)
    assert len(set(found)) == len(payloads)


# Tables contain these hashes. If they changed, every later copy of a stored row would be a conflict.
STORED: list[tuple[dict[str, Any], int]] = [
    ({}, -1209152927608204503),
    ({"n": 1}, -2556581074995938039),
    ({"list": []}, 8585093612091629296),
    ({"list": ["p", ""]}, -1557024895206183906),
    ({"map": {"q": "r", "p": "q"}}, -2636278413080393397),
    ({"items": [{"a": "p", "b": "q", "c": 1}, {"a": "", "b": "null", "c": 0}]}, -7420127010635866158),
    ({"box": {"list": [0, 1], "map": {"p": 1}, "inner": {"x": None, "y": ["p"]}}}, -7114122637506827536),
    ({"box": {"inner": {}}}, 568941666982423053),
    ({"lists": [[1, 0], [], [1]]}, 421657112834090097),
    ({"maps": {"p": ["q"], "q": []}}, 3532591767634465750),
    ({"n": 0, "list": ["é"], "map": {}, "items": [], "box": {}, "lists": [], "maps": {}}, 2944298764552513067),
]


def test_stored_hashes_do_not_change(spark: SparkSession) -> None:
    assert hashes(spark, [payload for payload, _ in STORED]) == [stored for _, stored in STORED]
