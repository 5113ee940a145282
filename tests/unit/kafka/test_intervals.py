"""Intervals are sets of offsets and behave like Python's own sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.kafka.intervals import EMPTY, Intervals

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def members(given_pairs: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in given_pairs for offset in range(start, end)}


@given(pairs, st.integers(-2, 62), st.integers(-2, 62))
def test_intervals_contain_exactly_the_offsets_they_were_made_from(some: list[tuple[int, int]], start: int, end: int) -> None:
    held, wanted = Intervals.of(some), members(some)
    assert held.offsets().tolist() == sorted(wanted)
    assert (len(held), bool(held)) == (len(wanted), bool(wanted))
    assert Intervals.of_offsets(list(wanted)) == held == Intervals.of(list(held))
    assert held.below(np.arange(-2, 63)).tolist() == [sum(one < offset for one in wanted) for offset in range(-2, 63)]
    inside = {offset for offset in wanted if start <= offset < end}
    assert held.count(start, end) == len(inside)
    assert set(held.clip(start, end).offsets().tolist()) == inside


@given(pairs, pairs)
def test_union_intersection_and_difference_match_those_of_python_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    this, that = Intervals.of(one), Intervals.of(other)
    assert set(Intervals.union([this, that]).offsets().tolist()) == members(one) | members(other)
    assert set(this.common(that).offsets().tolist()) == members(one) & members(other)
    assert set(this.minus(that).offsets().tolist()) == members(one) - members(other)


def test_an_empty_set_of_offsets_is_valid() -> None:
    assert Intervals.of() == EMPTY == Intervals.union([]) == Intervals.of_offsets([])
    assert (len(EMPTY), EMPTY.count(0, 9), list(EMPTY), EMPTY.offsets().tolist()) == (0, 0, [], [])


@pytest.mark.parametrize(("starts", "ends"), [([1], [1]), ([5, 1], [6, 2]), ([1, 3], [3, 4]), ([1, 2], [3])])
def test_invalid_intervals_are_refused(starts: list[int], ends: list[int]) -> None:
    with pytest.raises(ValueError, match=r"intervals|shape"):
        Intervals(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))
