"""Later copies of an event id in a batch (I3): which rows lose, and which of them differ from the winner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.batch.dedup import later_copies, twice
from ingest.delta.held_rows import held
from ingest.kafka.offsets import shown

pytestmark = pytest.mark.unit

COPIES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1, 2]), st.integers(0, 3), st.sampled_from("xy")), max_size=30)


@given(COPIES)
def test_the_copy_with_the_least_position_wins_and_others_are_later_copies(given_copies: list[tuple[str, int, int, str]]) -> None:
    """Positions of two topics with two partitions each."""
    rows = [(a, b, p, offset, payload) for offset, (a, b, p, payload) in enumerate(given_copies)]
    names = ("a", "b", "_source", "_partition", "_offset", "__payload")
    split = [(a, b, *divmod(p, 2), offset, payload) for a, b, p, offset, payload in rows]
    table = pa.table({name: [row[at] for row in split] for at, name in enumerate(names)} | {"__row": range(len(rows))})
    if not rows:
        return
    later = later_copies(table)
    first: dict[Any, tuple[int, int, str]] = {}
    for a, b, p, offset, payload in rows:
        first[a, b] = min(first.get((a, b), (p, offset, payload)), (p, offset, payload))
    expected = {}
    for number, (a, b, p, offset, payload) in enumerate(rows):
        winner = first[a, b]
        if (p, offset) != winner[:2]:
            expected[number] = None if payload == winner[2] else f"differs from partition {shown(divmod(winner[0], 2))} offset {winner[1]}"
    assert dict(zip(later["__row"].to_pylist(), later["__differs"].to_pylist(), strict=True)) == expected


@given(st.lists(st.integers(0, 9)))
def test_only_rows_whose_hash_occurs_again_are_compared(hashes: list[int]) -> None:
    expected = [at for at, each in enumerate(hashes) if hashes.count(each) > 1]
    assert twice(np.array(hashes, np.uint64)).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.text("ab", max_size=2))), st.lists(st.tuples(st.integers(0, 5), st.text("ab", max_size=2))))
def test_rows_that_another_table_holds_by_all_key_columns(mine: list[tuple[int, str]], theirs: list[tuple[int, str]]) -> None:
    def table(rows: list[tuple[int, str]]) -> pa.Table:
        return pa.table({"n": pa.array([n for n, _ in rows], pa.int64()), "t": pa.array([t for _, t in rows], pa.string())})

    assert held(table(mine), table(theirs)).tolist() == [each in theirs for each in mine]
    assert held(table(mine).select(["n"]), table(theirs).select(["n"])).tolist() == [n in {n for n, _ in theirs} for n, _ in mine]
