"""What a commit carries: identity, ranges and counts there and back; nobody else's metadata is taken for ours (I1)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.stream.mark import Counts, Mark, app_id
from ingest.stream.offsets import BatchId, OffsetRange

MARK = Mark(
    "shop",
    "orders",
    BatchId("q-1", 7),
    2,
    "0123456789abcdef",
    "orders",
    "topic-id",
    (OffsetRange(0, 5, 9), OffsetRange(10, 0, 2**62)),
    ((0, Counts(4, 1, 1, 1)), (10, Counts())),
)

natural = st.integers(0, 2**40)
counts = st.builds(lambda winners, *others: Counts(winners + sum(others), *others), natural, natural, natural, natural)
ranges = st.dictionaries(st.integers(0, 1000), st.tuples(natural, natural).map(sorted), max_size=5)


@given(st.text(), st.integers(0, 2**31), ranges, st.dictionaries(st.integers(0, 1000), counts, max_size=5))
def test_a_mark_survives_its_json(topic: str, number: int, parts: dict[int, list[int]], known: dict[int, Counts]) -> None:
    """I1"""
    of_parts = tuple(OffsetRange(p, start, end) for p, (start, end) in parts.items())
    mark = Mark("shop", "orders", BatchId("q", number), 0, "hash", topic, "id", of_parts, tuple(known.items()))
    assert Mark.from_json(mark.to_json()) == mark


def test_its_json_is_the_documented_one() -> None:
    assert json.loads(MARK.to_json()) == {
        "oncelake": 1,
        "pipeline": "shop",
        "table": "orders",
        "query_id": "q-1",
        "batch_id": 7,
        "epoch": 2,
        "contract_hash": "0123456789abcdef",
        "topic": "orders",
        "topic_id": "topic-id",
        "ranges": {"0": [5, 9], "10": [0, 2**62]},
        "counts": {
            "0": {"read": 4, "quarantined": 1, "losers": 1, "replayed": 1},
            "10": {"read": 0, "quarantined": 0, "losers": 0, "replayed": 0},
        },
    }


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(MARK.to_json()), **fields})


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "somebody's own note",
        "{}",
        "[]",
        "1",
        "null",
        '"oncelake"',
        '{"oncelake":1}',
        '{"oncelake":1,"kind":"created","pipeline":"shop","table":"orders","contract_hash":"x"}',
        changed(oncelake=2),
        changed(batch_id=-1),
        changed(batch_id=None),
        changed(ranges={"0": [9, 5]}),
        changed(ranges={"x": [0, 1]}),
        changed(ranges={"0": [1]}),
        changed(ranges=[]),
        changed(counts={"0": {"read": 1, "quarantined": 2, "losers": 0, "replayed": 0}}),
        changed(counts={"0": {"unknown": 1}}),
        MARK.to_json()[:-1],
    ],
)
def test_other_metadata_is_no_mark(text: str | None) -> None:
    """I1: a commit is ours only if it says so completely."""
    assert Mark.from_json(text) is None


@pytest.mark.parametrize("nonsense", [(1, 2, 0, 0), (1, 0, 2, 0), (1, 0, 0, 2), (3, 1, 1, 2), (-1, 0, 0, 0), (1, -1, 0, 0), (0, 0, 1, -1)])
def test_counts_refuse_what_does_not_add_up(nonsense: tuple[int, int, int, int]) -> None:
    """I4"""
    with pytest.raises(ValueError, match="not counts"):
        Counts(*nonsense)


def test_each_statement_has_an_app_id_of_its_own() -> None:
    """A second statement with the same pair would be skipped by Delta."""
    ids = {MARK.app_id("target"), MARK.app_id("quarantine"), MARK.app_id("ledger")}
    assert ids == {f"oncelake/shop/orders/q-1/{statement}" for statement in ("target", "quarantine", "ledger")}
    assert app_id("shop", "orders", "q-2", "target") not in ids
