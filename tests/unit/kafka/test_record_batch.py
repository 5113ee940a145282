"""kafka-python parses record batches from their bytes. A damaged batch is always refused."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecordsBuilder

from ingest.kafka.log import record_batch
from ingest.kafka.log.record_batch import Compression, Marker, read_batches
from ingest.runtime.errors import InvalidEnvironment
from tests.batches import TIME_MS, batch, sealed


@given(st.sets(st.integers(0, 300), max_size=40), st.integers(0, 5), st.booleans())
def test_a_compacted_batch_lists_the_offsets_that_are_left(deltas: set[int], more: int, gzip: bool) -> None:
    compression = Compression.GZIP if gzip else Compression.NONE
    made = batch(1000, sorted(deltas), span=max(deltas, default=0) + 1 + more, compression=compression)
    (ours,) = read_batches(made)
    assert ours.offsets().offsets().tolist() == sorted(1000 + delta for delta in deltas)
    wanted = {1000 + delta for delta in deltas if delta % 2}
    assert [(r.offset, r.key, r.timestamp_ms) for r in ours.records(wanted)] == [(n, b"%d" % n, TIME_MS + n) for n in sorted(wanted)]


def test_the_header_contains_producer_transaction_and_marker() -> None:
    data = batch(5, 3, producer=77, transactional=True) + batch(8, marker=Marker.COMMIT, producer=77) + batch(9, 2)
    data += batch(11, marker=Marker.ABORT, producer=78)
    read = list(read_batches(data))
    assert [(b.record_count, b.size_bytes, b.max_timestamp_ms - TIME_MS) for b in read[:2]] == [(3, len(batch(5, 3)), 7), (1, 78, 8)]
    assert [(b.base_offset, b.last_offset, b.producer_id, b.producer_epoch) for b in read] == [
        (5, 7, 77, 0),
        (8, 8, 77, 0),
        (9, 10, -1, -1),
        (11, 11, 78, 0),
    ]
    assert [(b.transactional, b.control, b.marker) for b in read] == [
        (True, False, None),
        (True, True, Marker.COMMIT),
        (False, False, None),
        (True, True, Marker.ABORT),
    ]


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    whole, next_one = batch(0, 10), batch(10, 10)
    for cut in range(len(next_one)):
        assert [b.base_offset for b in read_batches(whole + next_one[:cut])] == [0]
    assert list(read_batches(b"")) == []


@pytest.mark.parametrize("at", [17, 21, 23, 27, 60, 70, -1])
def test_a_flipped_bit_is_found_by_the_checksum(at: int) -> None:
    made = bytearray(batch(0, 10))
    made[at] ^= 1
    with pytest.raises(InvalidEnvironment, match=r"BATCH_CORRUPT.*offset 0 .*checksum"):
        list(read_batches(bytes(made)))


def test_an_impossible_batch_is_refused_even_if_its_checksum_matches() -> None:
    made = bytearray(batch(0, 3))
    struct.pack_into(">i", made, DefaultRecordBatch.HEADER_STRUCT.size - 4, 4)
    with pytest.raises(InvalidEnvironment, match=r"BATCH_CORRUPT.*4 records in 3 offsets"):
        list(read_batches(sealed(made)))
    struct.pack_into(">i", made, DefaultRecordBatch.HEADER_STRUCT.size - 4, 2)
    (fewer,) = read_batches(sealed(made))
    with pytest.raises(InvalidEnvironment, match=r"BATCH_CORRUPT.*unconsumed bytes"):
        fewer.offsets()
    short = struct.pack(">qiib", 7, 20, 0, 2) + bytes(15)
    with pytest.raises(InvalidEnvironment, match=r"BATCH_CORRUPT.*offset 7 .*32 bytes long"):
        list(read_batches(short))


def test_an_old_record_format_is_refused_by_name() -> None:
    old = MemoryRecordsBuilder(1, 0, 1 << 20)
    old.append(0, None, b"x", [])
    old.close()
    with pytest.raises(InvalidEnvironment, match=r"BATCH_FORMAT_OLD.*v1"):
        list(read_batches(bytes(old.buffer())))


def packed(made: bytes, codec: Compression, content: bytes) -> bytes:
    """The batch with its records compressed to `content`."""
    header = bytearray(made[: DefaultRecordBatch.HEADER_STRUCT.size])
    struct.pack_into(">h", header, DefaultRecordBatch.ATTRIBUTES_OFFSET, codec.value)
    struct.pack_into(">i", header, 8, len(header) + len(content) - 12)
    return sealed(header + content)


def xerial(records: bytes, block: int = 1000) -> bytes:
    """As Kafka's Java clients write snappy: pieces of their own, each after its length."""
    pieces = [pa.compress(records[at : at + block], "snappy", asbytes=True) for at in range(0, len(records), block)]
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(piece)) + piece for piece in pieces)


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "snappy": lambda records: pa.compress(records, "snappy", asbytes=True),
    "snappy of Java": xerial,
    "lz4": lambda records: pa.compress(records, "lz4", asbytes=True),
    "zstd": lambda records: pa.compress(records, "zstd", asbytes=True),
}


@pytest.mark.parametrize("codec", PACKED)
def test_the_records_of_every_codec_are_read_and_damaged_ones_are_refused(codec: str) -> None:
    compression = Compression[codec.split(maxsplit=1)[0].upper()]
    plain = batch(40, 200, values=[b"%d" % number * number for number in range(200)])
    (expected,) = read_batches(plain)
    content = PACKED[codec](plain[DefaultRecordBatch.HEADER_STRUCT.size :])
    (read,) = read_batches(packed(plain, compression, content))
    assert read.compression is compression and list(read.records()) == list(expected.records())
    for cut in (3, len(content) // 2, len(content) - 9):
        (damaged,) = read_batches(packed(plain, compression, content[:cut]))
        with pytest.raises(InvalidEnvironment, match="BATCH_CORRUPT"):
            list(damaged.records())


@pytest.mark.parametrize("codec", PACKED)
def test_a_record_too_large_is_passed_over_and_never_in_memory(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 KiB may become 200 MiB."""
    monkeypatch.setattr(record_batch, "RECORD_BYTES_MAX", 2**20)
    size = 64 * 2**20
    plain = batch(7, 3, values=[b"before", bytes(size), b"after"])
    content = PACKED[codec](plain[DefaultRecordBatch.HEADER_STRUCT.size :])
    made = packed(plain, Compression[codec.split(maxsplit=1)[0].upper()], content)
    del plain
    (read,) = read_batches(made)
    tracemalloc.start()
    held = pa.total_allocated_bytes()
    first, large, last = read.records()
    peak, arrow = tracemalloc.get_traced_memory()[1], pa.total_allocated_bytes() - held
    tracemalloc.stop()
    assert (first.value, last.offset, last.value, last.too_large) == (b"before", 9, b"after", 0)
    assert (large.offset, large.key, large.value, large.headers) == (8, None, None, ())
    assert size < large.too_large < size + 100
    assert arrow < 2**20 and (peak < 8 * 2**20 or codec.startswith("snappy")), "snappy makes 21 bytes of one at most"
