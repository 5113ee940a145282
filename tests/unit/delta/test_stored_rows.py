"""Rows by their positions: source, partition and offset, as a table stores them (I6)."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.delta.delta_sql import At, DataFusion
from ingest.delta.stored_rows import QUARANTINE, TARGET, Columns, in_ranges, positions
from ingest.kafka.offsets import OffsetRange

pytestmark = pytest.mark.unit

RECORDS = [*product((0, 1), (0, 2), (4, 5, 6))]


def stored(path: Path, columns: Columns, version: int = 0) -> At:
    """A table with a row at each of RECORDS, and another one in its version 1."""
    kinds = (pa.int16(), pa.int32(), pa.int64())
    names = (columns.source, columns.partition, columns.offset)
    for records in (RECORDS, [(1, 2, 9)]):
        arrays = [pa.array([*values], kind) for values, kind in zip(zip(*records, strict=True), kinds, strict=True)]
        write_deltalake(path, pa.table(dict(zip(names, arrays, strict=True))), mode="append")
    return At(str(path), version)


@pytest.mark.parametrize("columns", [TARGET, QUARANTINE])
def test_positions_are_those_of_each_topics_own_partitions(tmp_path: Path, columns: Columns) -> None:
    found = positions(DataFusion(), stored(tmp_path, columns), columns, f"`{columns.offset}` > 4")
    assert {of: sorted(offsets.tolist()) for of, offsets in found.items()} == {of: [5, 6] for of in product((0, 1), (0, 2))}
    later = positions(DataFusion(), At(str(tmp_path), 1), columns, "true", but_not_at=0)
    assert {of: offsets.tolist() for of, offsets in later.items()} == {(1, 2): [9]}


@pytest.mark.parametrize("columns", [TARGET, QUARANTINE])
def test_ranges_contain_the_rows_of_their_topic_alone(tmp_path: Path, columns: Columns) -> None:
    ranges = (OffsetRange(0, 5, 7), OffsetRange(2, 4, 5, source=1))
    found = positions(DataFusion(), stored(tmp_path, columns), columns, in_ranges(ranges, columns))
    assert {of: sorted(offsets.tolist()) for of, offsets in found.items()} == {(0, 0): [5, 6], (1, 2): [4]}
    assert positions(DataFusion(), At(str(tmp_path), 0), columns, in_ranges((), columns)) == {}


def test_the_ranges_of_hundreds_of_topics_are_one_condition(tmp_path: Path) -> None:
    """A chain of as many conditions ends the process."""
    ranges = [OffsetRange(number % 12, 0, 5, source=number // 12) for number in range(6000)]
    found = positions(DataFusion(), stored(tmp_path, TARGET), TARGET, in_ranges(ranges, TARGET))
    assert {of: offsets.tolist() for of, offsets in found.items()} == {of: [4] for of in product((0, 1), (0, 2))}
