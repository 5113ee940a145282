"""Counts of a batch without the later copies that the driver found."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ingest.batch.batch_counts import BatchCounts, PartitionCounts
from ingest.batch.dedup import later_copies

pytestmark = pytest.mark.unit


def test_later_copies_are_counted_per_partition_equal_ones_as_duplicates_others_as_failed() -> None:
    rows = [("a", 0, 1, 7), ("a", 1, 5, 7), ("a", 1, 6, 8), ("b", 0, 2, 1), ("b", 0, 3, 1), ("c", 1, 9, 1)]
    names = ["__id0", "_partition", "_offset", "__payload", "_source"]
    types = [pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int16()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*((*row, 0) for row in rows), strict=True), types, strict=True)]
    later = later_copies(pa.table(columns, names))
    before = {(0, 0): PartitionCounts(5, 2, 0), (0, 1): PartitionCounts(4, 0, 0), (1, 1): PartitionCounts(1, 0, 0)}
    after = {(0, 0): PartitionCounts(5, 2, 1), (0, 1): PartitionCounts(4, 1, 1), (1, 1): PartitionCounts(1, 0, 0)}
    assert BatchCounts(before, {}, 0).without(later) == BatchCounts(after, {}, 1)
