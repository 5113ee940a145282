"""Sums of rows by key equal those that one adds up by hand, and tell apart what numbers alone do not (I4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from ingest.decode.row_hash import row_hashes
from ingest.delta.delta_sql import At, DataFusion, Unreadable
from ingest.delta.posting import MODULUS, NOTHING, Key, Sums, by_key
from ingest.delta.row_sums import MISSING, sums_of
from ingest.delta.stored_rows import QUARANTINE, TARGET, hashed_ids, sums_at
from ingest.delta.table_state import TableState

Row = tuple[int | None, int | None, int | None, int | None, int | None, str | None]
few = st.one_of(st.none(), st.integers(0, 2))
offsets = st.one_of(st.none(), st.integers(0, 5), st.integers(2**62 - 3, 2**62), st.integers(2**32 - 2, 2**32 + 2))
rows = st.lists(st.tuples(few, few, few, few, offsets, st.sampled_from([None, "a", "b", ""])), max_size=60)
NAMES = (*TARGET.position, "id")


def batch(rows: Sequence[Row], *, ids: bool = True) -> pa.RecordBatch:
    kinds = [pa.int32(), pa.int64(), pa.int16(), pa.int32(), pa.int64(), pa.string()]
    columns = [pa.array(list(values), kind) for values, kind in zip(zip(*rows, strict=True) if rows else [()] * 6, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns[: 6 if ids else 5], NAMES[: 6 if ids else 5])


def naive(rows: Sequence[Row], *, ids: bool = True) -> dict[Key, Sums]:
    """The sums, row by row in Python."""
    found: dict[Key, Sums] = {}
    for *position, id in rows:
        epoch, number, source, partition, offset = (MISSING if value is None else value for value in position)
        columns = [pa.array([each], pa.int64()) for each in (source, partition, offset)]
        (hash,) = row_hashes([*([pa.array([id], pa.string())] if ids else []), *columns])
        key = Key(epoch, number, source, partition)
        found[key] = found.get(key, NOTHING) + Sums(1, offset, int(hash))
    return found


@given(rows, st.booleans(), st.integers(1, 60))
def test_sums_are_those_added_up_row_by_row(rows: list[Row], ids: bool, size: int) -> None:
    """Keys in any order, offsets near 2^62 whose sum overflows, and NULL, which only other writers put there."""
    parts = [batch(rows[start : start + size], ids=ids) for start in range(0, len(rows), size)]
    assert by_key(sums_of(parts)) == naive(rows, ids=ids)


def test_the_sum_of_large_offsets_has_more_digits_than_a_bigint() -> None:
    top = 2**63 - 1
    found = by_key(sums_of([batch([(1, 2, 0, 0, top, "a")] * 40)]))[Key(1, 2, 0, 0)]
    assert (found.rows, found.offsets) == (40, 40 * top) and 0 <= found.hash < MODULUS


def total(rows: Sequence[Row]) -> Sums:
    return by_key(sums_of([batch(rows)]))[Key(1, 2, 0, 0)]


def test_equal_number_and_equal_sum_of_offsets_do_not_hide_other_rows() -> None:
    """I4: number and offsets are the same in all of them."""
    right = total([(1, 2, 0, 0, 4, "a"), (1, 2, 0, 0, 6, "b")])
    others = [
        total([(1, 2, 0, 0, 4, "a"), (1, 2, 0, 0, 6, "c")]),  # another event id
        total([(1, 2, 0, 0, 4, "b"), (1, 2, 0, 0, 6, "a")]),  # event ids one row off
        total([(1, 2, 0, 0, 5, "a"), (1, 2, 0, 0, 5, "b")]),  # other offsets
    ]
    assert all((each.rows, each.offsets) == (2, 10) and each.hash != right.hash for each in others)
    assert len({each.hash for each in others}) == 3


def test_a_row_in_another_partition_or_source_has_another_hash() -> None:
    found = by_key(sums_of([batch([(1, 2, 0, 0, 4, "a"), (1, 2, 0, 1, 4, "a"), (1, 2, 1, 0, 4, "a")])]))
    assert len({each.hash for each in found.values()}) == 3


@given(rows)
def test_the_order_of_rows_does_not_matter(rows: list[Row]) -> None:
    shuffled = [rows[at] for at in np.random.default_rng(0).permutation(len(rows))]
    assert by_key(sums_of([batch(rows)])) == by_key(sums_of([batch(shuffled)]))


@pytest.fixture
def stored(tmp_path: Path) -> tuple[str, list[Row]]:
    """A table of two files whose rows are of two batches and two partitions."""
    rows: list[Row] = [(1, 2 + offset % 2, 0, offset % 3 % 2, offset, f"id {offset}") for offset in range(20)]
    for part in (rows[:7], rows[7:]):
        write_deltalake(str(tmp_path / "target"), pa.table(batch(part)), mode="append")
    return str(tmp_path / "target"), rows


def test_the_sums_of_a_table_at_a_version(stored: tuple[str, list[Row]]) -> None:
    table, rows = stored
    assert sums_at(DataFusion(), At(table), TARGET, ("id",)) == naive(rows)
    assert sums_at(DataFusion(), At(table), TARGET) == naive(rows, ids=False)
    assert sums_at(DataFusion(), At(table, 0), TARGET, ("id",)) == naive(rows[:7])
    assert sums_at(DataFusion(), At(table), TARGET, ("id",), "`_batch` = 3") == naive([row for row in rows if row[1] == 3])
    with pytest.raises(Unreadable):
        sums_at(DataFusion(), At(table, 9), TARGET)


def test_the_sums_of_rows_at_some_positions_only(stored: tuple[str, list[Row]]) -> None:
    """All five columns count: the same offset in another batch is another row."""
    table, rows = stored
    wanted = [rows[3], rows[8], rows[15]]
    others = [(1, 9, 0, 0, 4, None), (1, 2, 1, 0, 6, None)]
    only = pa.table({name: [row[at] for row in (*wanted, *others)] for at, name in enumerate("ebspo")})
    assert sums_at(DataFusion(), At(table), TARGET, ("id",), only=only) == naive(wanted)
    some = sums_at(DataFusion(), At(table), TARGET, ("id",), "`_offset` < 8", only)
    assert some == naive(wanted[:1])


def test_quarantined_records_are_summed_without_an_event_id(tmp_path: Path) -> None:
    rows: list[Row] = [(1, 2, 0, 0, offset, None) for offset in range(5)]
    table = pa.table(batch(rows, ids=False)).rename_columns(QUARANTINE.position)
    write_deltalake(str(tmp_path / "quarantine"), table)
    assert sums_at(DataFusion(), At(str(tmp_path / "quarantine")), QUARANTINE) == naive(rows, ids=False)


@pytest.mark.parametrize(
    ("text", "columns"),
    [('["id","place"]', ("id", "place")), ('"position"', ()), ('{"template":"a"}', ("_event_id",)), ('"headers.id"', ("_event_id",))],
)
def test_the_hashed_columns_are_those_of_the_event_id(text: str, columns: tuple[str, ...]) -> None:
    """A position is hashed anyway."""
    assert hashed_ids(TableState(0, properties={"oncelake.eventId": text})) == columns


def test_a_table_whose_event_id_nobody_knows_is_refused() -> None:
    with pytest.raises(Unreadable, match="eventId was removed"):
        hashed_ids(TableState(0))
