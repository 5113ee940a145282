"""Postings: what a statement read, added and removed, as JSON and back; and sums that tell rows apart whose number is equal (I4)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.delta.posting import MODULUS, NOTHING, WHYS, Key, Posting, Sums, by_why, of_json, removals
from ingest.kafka.offsets import OffsetRange

natural = st.integers(0, 2**40)
all_sums = st.builds(Sums, st.integers(-(2**40), 2**40), st.integers(-(2**100), 2**100), st.integers(0, MODULUS - 1))
keys = st.builds(Key, natural, natural, st.integers(0, 99), st.integers(0, 2**31 - 1))


@st.composite
def _postings(draw: st.DrawFn) -> Posting:
    key, start, length, read = draw(keys), draw(st.integers(0, 2**62)), draw(natural), draw(natural)
    at = draw(st.sampled_from([None, OffsetRange(key.partition, start, start + length, draw(st.sampled_from([None, 0, 7])), key.source)]))
    target, present = draw(st.sampled_from([(None, None), (draw(all_sums), draw(natural))]))
    return Posting(key, draw(st.sampled_from(WHYS)), at, read, target, draw(all_sums), present, draw(natural))


postings = _postings()


@given(st.lists(postings, max_size=5))
def test_postings_are_json_and_come_back(found: list[Posting]) -> None:
    back = of_json(json.loads(json.dumps(by_why(found))))
    assert sorted(back, key=repr) == sorted(found, key=repr)
    epochs = [[each.range and each.range.leader_epoch for each in some if each.why == "batch"] for some in (back, found)]
    assert epochs[0] == epochs[1], "which no comparison of ranges sees"
    assert [each for each in back if each.why == "batch"] == [each for each in found if each.why == "batch"], "in their order"


BATCH = Posting(Key(1, 2, 0, 3), "batch", OffsetRange(3, 4, 14, 6), 9, Sums(5, 40, 7), Sums(1, 9, 8), 2, 1)


def test_the_fields_of_a_posting_are_as_documented() -> None:
    """docs/reference/commit.md."""
    assert by_why([BATCH]) == {"batch": [[1, 2, 0, 3, 4, 14, 6, 9, 2, 1, 5, 40, 7, 1, 9, 8]]}
    opened = replace(BATCH, target=None, present=None)
    assert replace(opened, range=None).fields() == [1, 2, 0, 3, None, None, None, 9, None, 1, None, None, None, 1, 9, 8]
    assert (BATCH.inserted, BATCH.repeated, BATCH.gap, BATCH.is_open) == (5, 3, 1, False)
    assert (opened.inserted, opened.repeated, opened.gap, opened.is_open) == (0, 1, 1, True)
    of_another = Posting(Key(1, 2, 5, 3), "batch", OffsetRange(3, 4, 14, None, 5), 9)
    assert of_another.fields()[:6] == [1, 2, 5, 3, 4, 14] and Posting.of_fields("batch", of_another.fields()) == of_another


def changed(**fields: Any) -> dict[str, Any]:
    names = ("epoch", "batch", "source", "partition", "start", "end", "leader_epoch", "read", "present", "duplicate")
    at = {name: number for number, name in enumerate(names)}
    values = BATCH.fields()
    for name, value in fields.items():
        values[at[name]] = value
    return {"batch": [values]}


REFUSED: list[Any] = [
    {"batches": [BATCH.fields()]},
    {"batch": [BATCH.fields()[:-1]]},
    {"batch": [[*BATCH.fields(), 0]]},
    {"batch": BATCH.fields()},
    {"batch": None},
    [],
    changed(epoch="1"),
    changed(epoch=1.0),
    changed(source=None),
    changed(source=-1),
    changed(partition=None),
    changed(start=15),
    changed(end=None),
    changed(leader_epoch="6"),
    changed(read=None),
    changed(duplicate=None),
]


@pytest.mark.parametrize("value", REFUSED, ids=str)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        of_json(value)


@pytest.mark.parametrize("other", [OffsetRange(4, 4, 14), OffsetRange(3, 4, 14, source=1)], ids=str)
def test_a_posting_refuses_the_range_of_another_partition_or_topic(other: OffsetRange) -> None:
    with pytest.raises(ValueError, match="another partition"):
        replace(BATCH, range=other)


@given(all_sums, all_sums)
def test_sums_add_up_and_cancel(one: Sums, other: Sums) -> None:
    assert (one + other) - other == one and one + NOTHING == one and not one - one
    assert 0 <= (one + other).hash < MODULUS and bool(one) == (one != Sums(0, 0, 0))


def test_what_was_removed_is_posted_negative_and_what_was_not_is_not_posted() -> None:
    keys = Key(1, 2, 0, 0), Key(1, 3, 0, 0), Key(1, 2, 1, 0)
    gone = dict(zip(keys, (Sums(2, 9, 5), NOTHING, Sums(1, 1, 1)), strict=True))
    assert removals(gone, "erasure", target=True) == (
        Posting(keys[0], "erasure", target=-gone[keys[0]]),
        Posting(keys[2], "erasure", target=-gone[keys[2]]),
    )
    (of_quarantine,) = removals({keys[0]: Sums(2, 9, 5)}, "retention", target=False)
    assert (of_quarantine.quarantine, of_quarantine.target) == (Sums(-2, -9, MODULUS - 5), NOTHING)
