"""The view of a log: which lines it shows, and the state of transactions that end after them."""

from __future__ import annotations

import struct

import pytest
from kafka.record.default_records import DefaultRecordBatch

from ingest.kafka.log.fetch import Bounds
from ingest.kafka.log.log_view import view
from ingest.kafka.log.record_batch import Marker
from tests.batches import MemoryLog, batch, sealed


def long_log(batches: int, records: int, log_start: int = 0) -> MemoryLog:
    end = batches * records
    held = [(base + records - 1, batch(base, records)) for base in range(0, end, records)]
    return MemoryLog(Bounds(log_start, end, end), [each for each in held if each[0] >= log_start])


@pytest.mark.parametrize("records", [1, 7, 400])
def test_without_a_start_the_last_lines_are_shown_for_any_batch_size(records: int) -> None:
    log = long_log(60, records)
    shown = view(log, 0, limit=50)
    assert [line.last for line in shown.lines] == [n * records - 1 for n in range(11, 61)]
    assert [line.first for line in view(log, 0, end=3 * records, limit=50).lines] == [0, records, 2 * records]


def test_with_a_start_the_first_lines_are_shown_and_more_is_set_if_there_are_more() -> None:
    log = long_log(10, 5)
    shown = view(log, 0, start=7, limit=2)
    assert ([(line.first, line.last) for line in shown.lines], shown.more) == ([(5, 9), (10, 14)], True)
    assert view(log, 0, start=40, limit=2).more is False


def test_expired_offsets_are_shown_as_a_line_if_they_are_requested() -> None:
    log = long_log(10, 5, log_start=12)
    assert [(line.kind, line.first, line.last) for line in view(log, 0, start=0, end=16).lines] == [
        ("expired", 0, 11),
        ("data", 10, 14),
        ("data", 15, 19),
    ]
    assert [(line.kind, line.last) for line in view(log, 0, end=9).lines] == [("expired", 8)]
    assert view(log, 0).lines[0].kind == "data"


def test_above_the_last_stable_offset_the_producers_next_marker_decides_the_state() -> None:
    held = [
        batch(0, 1, producer=1, transactional=True),
        batch(1, 2, producer=2, transactional=True),
        batch(3, marker=Marker.ABORT, producer=2),
        batch(4, 1, producer=2, transactional=True),
        batch(5, 1),
        batch(6, marker=Marker.COMMIT, producer=2),
    ]
    log = MemoryLog(Bounds(0, 0, 7), [(last, data) for last, data in zip((0, 2, 3, 4, 5, 6), held, strict=True)])
    states = {line.first: line.transaction for line in view(log, 0, start=0, end=5).lines}
    assert states == {0: "open", 1: "aborted", 3: "aborted", 4: "committed"}
    assert [(line.first, line.transaction) for line in view(log, 0, limit=2).lines] == [(5, None), (6, "committed")]


def test_compacted_and_emptied_batches_are_shown_as_such() -> None:
    log = MemoryLog(Bounds(0, 12, 12), [(4, batch(0, [1, 3], span=5)), (7, batch(5, [], span=3)), (11, batch(10, 2))])
    lines = view(log, 0, start=0).lines
    assert [(line.kind, line.first, line.last, line.records) for line in lines] == [
        ("data", 0, 4, 2),
        ("hole", 5, 7, 0),
        ("hole", 8, 9, 0),
        ("data", 10, 11, 2),
    ]


def test_an_invalid_timestamp_is_shown_as_none() -> None:
    made = bytearray(batch(0, 1))
    struct.pack_into(">q", made, DefaultRecordBatch.ATTRIBUTES_OFFSET + 14, 2**60)
    assert view(MemoryLog(Bounds(0, 1, 1), [(0, sealed(made))]), 0).lines[0].time is None
