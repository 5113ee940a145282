"""An audit by position puts every row and every record where it belongs: no Kafka, a log in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ingest.kafka.log.fetch import Bounds
from ingest.kafka.log.partition_scan import Isolation
from ingest.kafka.log.record_batch import Marker
from ingest.runtime.errors import InvalidInput
from ingest.verify.audit.by_position import MARKER, by_position
from ingest.verify.audit.findings import FAULTS, SCHEMA, Audit, faults, joined
from ingest.verify.audit.reach import AFTER, BEFORE, BETWEEN, NO_ROWS, Reach
from tests.batches import MemoryLog, batch

pytestmark = pytest.mark.unit

# 0-1 expired, 2-4 committed, 5 marker, 6-7 aborted, 8 marker, 9 and 12 records, 10-11 compacted away, 13-15 records, 16-17 open.
LOG = MemoryLog(
    Bounds(2, 16, 18),
    [
        (4, batch(2, 3, producer=1, transactional=True)),
        (5, batch(5, producer=1, marker=Marker.COMMIT)),
        (7, batch(6, 2, producer=2, transactional=True)),
        (8, batch(8, producer=2, marker=Marker.ABORT)),
        (12, batch(9, [0, 3], span=4)),
        (15, batch(13, 3)),
        (17, batch(16, 2, producer=3, transactional=True)),
    ],
    [(2, 6, 8)],
)
GOOD = [2, 3, 4, 9, 12, 13, 14, 15]


def audited(rows: list[int], start: str | None = None, stop: str | None = None, isolation: Isolation = "read_committed") -> Audit:
    return by_position(LOG, {0: np.array(rows, np.int64)} if rows else {}, isolation, Reach.parse(start, stop), None)


def offsets(found: Audit) -> dict[str, list[tuple[int, int]]]:
    """Offset and number of rows of each fault."""
    every = {fault: [(line["offset"], line["rows"]) for line in found.lines(fault, 100)] for fault in FAULTS}
    return {fault: lines for fault, lines in every.items() if lines}


def test_a_table_with_each_committed_record_once_is_exact() -> None:
    found = audited(GOOD)
    assert (found.ok, found.records, found.rows, found.found.num_rows) == (True, 8, 8, 0)
    assert found.gaps == {"aborted": 2, "commit marker": 1, "abort marker": 1, "hole": 2}
    assert (found.expired, found.unverifiable, found.not_read) == (2, {}, {})


def test_every_fault_is_named_with_its_rows() -> None:
    found = audited([15, 0, 2, 2, 2, 4, 5, 6, 6, 9, 10, 10, 13, 16])
    assert offsets(found) == {
        "lost": [(3, 1), (12, 1), (14, 1)],
        "doubled": [(2, 2), (10, 1)],
        "aborted": [(6, 2)],
        "no record": [(5, 1)],
        "undecided": [(16, 1)],
    }
    assert found.counts("no record") == {MARKER: 1} and not found.ok
    assert found.gaps == {"aborted": 1, "abort marker": 1, "hole": 1}, "only offsets without a row, up to the last row"
    assert sorted(found.unverifiable.values()) == [1, 2], "a row at an expired offset, two at a hole"


def test_records_after_the_last_row_are_not_read_yet_and_a_given_end_makes_them_lost() -> None:
    found = audited([2, 3, 4, 9])
    assert (found.ok, found.not_read) == (True, {0: 4})
    found = audited([2, 3, 4, 9], stop="14")
    assert (found.counts("lost"), found.not_read) == ({AFTER: 2}, {0: 2})
    assert audited([2, 3, 4, 9], stop="end").counts("lost") == {AFTER: 4}


def test_records_before_the_first_row_are_lost_unless_a_start_is_given() -> None:
    found = audited([9, 13])
    assert found.counts("lost") == {BEFORE: 3, BETWEEN: 1}
    assert offsets(audited([9, 13], start="0:9")) == {"lost": [(12, 1)]}


def test_all_records_of_a_partition_without_rows_are_lost_unless_they_are_out_of_reach() -> None:
    found = audited([])
    assert (found.ok, found.counts("lost"), found.not_read, found.partitions_without_rows) == (False, {NO_ROWS: 8}, {}, (0,))
    assert audited([], stop="end").counts("lost") == {NO_ROWS: 8}
    held = {0: np.array(GOOD), 1: np.empty(0, np.int64)}
    two = replace(LOG, partitions=(0, 1))
    assert by_position(two, held, "read_committed", Reach(), None).counts("lost") == {NO_ROWS: 8}
    for reach in (Reach.parse("1:18", None), Reach.parse(None, "1:0")):
        found = by_position(two, held, "read_committed", reach, None)
        assert (found.ok, found.found.num_rows, found.partitions_without_rows) == (True, 0, (1,))


def test_a_table_without_rows_is_never_exact_while_the_topic_has_records() -> None:
    found = audited([], stop="0")
    assert (found.ok, found.found.num_rows, found.not_read) == (False, 0, {0: 8})
    assert by_position(MemoryLog(Bounds(0, 0, 0), []), {}, "read_committed", Reach(), None).ok


def test_the_lines_of_a_fault_take_a_byte_for_each_word() -> None:
    lines = faults("lost", BETWEEN, np.ones(10_000, np.int64), partition=0, offset=np.arange(10_000))
    assert lines.nbytes < 30 * 10_000
    both = joined([lines, faults("aborted", "the reader", [2])])
    assert both.schema == SCHEMA and both.slice(9_999).to_pylist() == [
        {"fault": "lost", "why": BETWEEN, "partition": 0, "offset": 9_999, "event_id": None, "rows": 1},
        {"fault": "aborted", "why": "the reader", "partition": None, "offset": None, "event_id": None, "rows": 2},
    ]


def test_rows_beyond_the_end_and_in_unknown_partitions_have_no_record() -> None:
    held = {0: np.array([*GOOD, 18]), 7: np.array([0, 0, 1])}
    found = by_position(LOG, held, "read_committed", Reach(), None)
    assert [(line["partition"], line["offset"], line["rows"]) for line in found.lines("no record", 9)] == [(0, 18, 1), (7, 0, 2), (7, 1, 1)]


def test_a_reader_of_uncommitted_records_may_have_aborted_and_open_ones() -> None:
    everything = sorted([*GOOD, 6, 7, 16, 17])
    found = audited(everything, isolation="read_uncommitted")
    assert (found.ok, found.records, found.gaps) == (True, 12, {"commit marker": 1, "abort marker": 1, "hole": 2})
    assert offsets(audited([*GOOD[:-1], 17], isolation="read_uncommitted")) == {"lost": [(6, 1), (7, 1), (15, 1), (16, 1)]}


def test_a_record_whose_event_id_has_a_row_is_a_dropped_copy() -> None:
    def has_row(partition: int, offsets: Any) -> Any:
        assert partition == 0
        return np.isin(offsets, [3, 14])

    found = by_position(LOG, {0: np.array([2, 4, 9, 13, 15])}, "read_committed", Reach(), has_row)
    assert (offsets(found), found.dropped) == ({"lost": [(12, 1)]}, 2)


@pytest.mark.parametrize("text", ["x", "-1", "0:1,0:2", "0:x", "1,2", ""])
def test_a_range_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"AUDIT_RANGE.*--from"):
        Reach.parse(text, None)
