"""A scan puts every offset into exactly one class, for any log and wherever replies are cut off (I4)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.kafka.intervals import Intervals
from ingest.kafka.log import log_reader
from ingest.kafka.log.fetch import Bounds
from ingest.kafka.log.log_reader import records_at, scan, stretches
from ingest.kafka.log.partition_scan import Kind, PartitionScan
from ingest.kafka.log.record_batch import Compression, Marker
from ingest.runtime.errors import InvalidEnvironment
from tests.batches import MemoryLog, batch


@dataclass
class KnownLog:
    """A log, and the kind of each of its offsets."""

    log: MemoryLog
    kinds: dict[int, Kind]


@st.composite
def logs(draw: st.DrawFn) -> KnownLog:
    """Interleaved transactions of three producers, records outside transactions, compaction, expiry and open transactions."""
    written: list[tuple[int, int, int, bool, Marker | None]] = []  # base, span, producer, transactional, marker
    opened: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    fate: dict[int, bool] = {}  # index in `written`: whether its transaction was committed
    parts: dict[int, list[int]] = {}
    offset = draw(st.integers(0, 3))
    begin = offset
    for _ in range(draw(st.integers(0, 14))):
        producer = draw(st.integers(0, 3))
        if producer in opened and draw(st.booleans()):
            commit = draw(st.booleans())
            written.append((offset, 1, producer, True, Marker.COMMIT if commit else Marker.ABORT))
            if not commit:
                aborted.append((producer - 1, opened[producer], offset))
            fate.update(dict.fromkeys(parts.pop(producer), commit))
            del opened[producer]
            offset += 1
            continue
        span = draw(st.integers(1, 5))
        if producer:
            opened.setdefault(producer, offset)
            parts.setdefault(producer, []).append(len(written))
        written.append((offset, span, producer, producer > 0, None))
        offset += span
    end, stable = offset, min(opened.values(), default=offset)
    start = draw(st.integers(begin, stable)) if draw(st.booleans()) else begin
    kinds = dict.fromkeys(range(start), Kind.EXPIRED) | dict.fromkeys(range(end, end + 5), Kind.BEYOND)
    kept: list[tuple[int, bytes]] = []
    for index, (base, span, producer, transactional, marker) in enumerate(written):
        last = base + span - 1
        # The cleaner stays below the first open transaction and never removes the log's last batch.
        cleanable = last < stable and index < len(written) - 1
        left = list(range(span))
        if cleanable and draw(st.booleans()):
            left = sorted(draw(st.sets(st.integers(0, span - 1))))
        if marker is Marker.ABORT:
            left = [0]  # otherwise its entry would leave the index too
        kind = Kind.COMMIT_MARKER if marker is Marker.COMMIT else Kind.ABORT_MARKER if marker else Kind.COMMITTED
        if transactional and marker is None and not fate.get(index, True):
            kind = Kind.ABORTED
        if base >= stable and marker is None:
            kind = Kind.UNSTABLE
        kinds.update({at: kind if at - base in left else Kind.HOLE for at in range(max(base, start), last + 1)})
        if (bool(left) or draw(st.booleans())) and last >= start:
            packed = draw(st.sampled_from([Compression.NONE, Compression.GZIP]))
            data = batch(base, left, span=span, producer=producer - 1, transactional=transactional, compression=packed, marker=marker)
            kept.append((last, data))
    size = draw(st.sampled_from([1, 150, 10_000]))
    return KnownLog(MemoryLog(Bounds(start, stable, end), kept, aborted, size), kinds)


@settings(max_examples=300)
@given(logs(), st.data())
def test_every_offset_is_in_the_class_of_its_content(known: KnownLog, data: st.DataObject) -> None:
    """I4."""
    start = data.draw(st.integers(0, len(known.kinds) - 1))
    end = data.draw(st.integers(start, len(known.kinds)))
    found = scan(known.log, 0, start, end)
    for kind, offsets in found.classes().items():
        assert offsets.offsets().tolist() == [at for at in range(start, end) if known.kinds[at] is kind], kind
    read = [Kind.COMMITTED]
    assert found.read("read_committed").offsets().tolist() == [at for at in range(start, end) if known.kinds[at] in read]
    read += [Kind.ABORTED, Kind.UNSTABLE]
    assert found.read("read_uncommitted").offsets().tolist() == [at for at in range(start, end) if known.kinds[at] in read]
    tiles = list(stretches(known.log, 0, start, end))
    assert all(before.end == after.start for before, after in pairwise(tiles))
    assert ([tiles[0].start, tiles[-1].end] if tiles else [start, start]) == [start, end]


@given(logs(), st.data())
def test_single_records_are_found_whether_their_transaction_committed_aborted_or_is_open(known: KnownLog, data: st.DataObject) -> None:
    wanted: set[int] = data.draw(st.sets(st.sampled_from(sorted(known.kinds))))
    held = (Kind.COMMITTED, Kind.ABORTED, Kind.UNSTABLE)
    assert [(r.offset, r.value) for r in records_at(known.log, 0, list(wanted))] == [
        (at, b"value %d" % at) for at in sorted(wanted) if known.kinds[at] in held
    ]


def test_missing_offsets_right_before_an_open_transaction_are_a_hole() -> None:
    log = MemoryLog(Bounds(0, 5, 6), [(1, batch(0, 2)), (5, batch(5, 1, producer=3, transactional=True))])
    found = scan(log, 0, 0, 6)
    assert (found.committed, found.holes, found.unstable) == (Intervals.of([(0, 2)]), Intervals.of([(2, 5)]), Intervals.of([(5, 6)]))


def test_records_that_expire_during_a_scan_are_classified_as_expired() -> None:
    """Retention may delete records during a scan."""
    log = MemoryLog(Bounds(0, 9, 9), [(2, batch(0, 3)), (5, batch(3, 3)), (8, batch(6, 3))], reply_bytes_max=1)
    tiles = stretches(log, 0, 0, 9)
    assert next(tiles).end == 3
    log.bounds_, log.batches = Bounds(6, 9, 9), log.batches[2:]
    assert [(t.kind, t.start, t.end) for t in tiles] == [(Kind.EXPIRED, 3, 6), (Kind.COMMITTED, 6, 9)]


def test_a_scan_gives_up_on_a_broker_that_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "ANSWER_WITHIN_S", 0.05)
    log = MemoryLog(Bounds(0, 9, 9), [])
    with pytest.raises(InvalidEnvironment, match=r"LOG_UNREADABLE.*offset 0 "):
        scan(log, 0, 0, 9)


def test_a_scan_that_skips_an_offset_or_has_one_twice_cannot_be_constructed() -> None:
    """The type enforces I4."""
    for committed, holes in (([(0, 4)], [(5, 9)]), ([(0, 5)], [(4, 9)])):
        with pytest.raises(ValueError, match="exactly one class"):
            PartitionScan("t", 0, 0, 9, Bounds(0, 9, 9), committed=Intervals.of(committed), holes=Intervals.of(holes))
    with pytest.raises(ValueError, match="range"):
        scan(MemoryLog(Bounds(0, 0, 0), []), 0, 5, 4)
