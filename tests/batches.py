"""Kafka record batches as bytes, as brokers store them, and an in-memory log of them that answers fetches like a broker."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from ingest.kafka.log.fetch import FETCH_BYTES, Bounds, Fetched
from ingest.kafka.log.record_batch import Compression, Marker

NOBODY = -1
TIME_MS = 1_700_000_000_000


def batch(
    base: int,
    deltas: Sequence[int] | int = 1,
    *,
    span: int | None = None,
    producer: int = NOBODY,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
    marker: Marker | None = None,
    keys: Sequence[bytes | None] | None = None,
    values: Sequence[bytes | None] | None = None,
) -> bytes:
    """A batch at offset `base`. `deltas` are the records' distances from it; a number means that many consecutive records.

    `span` is the number of offsets that the batch covers. The record at offset n has the key `n`, the value `value n`, a header and the
    time TIME_MS + n. `keys` and `values` replace those of the records.
    """
    distances = list(range(deltas)) if isinstance(deltas, int) else list(deltas)
    epoch, sequence = (0, 0) if producer != NOBODY else (-1, -1)
    builder = DefaultRecordBatchBuilder(2, compression.value, transactional, producer, epoch, sequence, 1 << 30)
    for number, delta in enumerate(distances):
        n = base + delta
        if marker is not None:
            builder.append(delta, TIME_MS + n, struct.pack(">hh", 0, marker.value), struct.pack(">hi", 0, 0), [])
        else:
            key = b"%d" % n if keys is None else keys[number]
            value = b"value %d" % n if values is None else values[number]
            builder.append(delta, TIME_MS + n, key, value, [("h", b"%d" % n), ("none", None)])
    made = bytearray(builder.build())
    attributes, last = struct.unpack_from(">hi", made, DefaultRecordBatch.ATTRIBUTES_OFFSET)
    if marker is not None:
        attributes |= DefaultRecordBatch.CONTROL_MASK | DefaultRecordBatch.TRANSACTIONAL_MASK
    struct.pack_into(">q", made, 0, base)
    struct.pack_into(">hi", made, DefaultRecordBatch.ATTRIBUTES_OFFSET, attributes, last if span is None else span - 1)
    return sealed(made)


def sealed(made: bytearray) -> bytes:
    """The batch with its checksum corrected."""
    struct.pack_into(">I", made, DefaultRecordBatch.CRC_OFFSET, calc_crc32c(memoryview(made)[DefaultRecordBatch.ATTRIBUTES_OFFSET :]))
    return bytes(made)


@dataclass
class MemoryLog:
    """One partition in memory. `aborted` contains (producer, first offset, offset of the abort marker), `batches` (last offset, bytes)."""

    bounds_: Bounds
    batches: list[tuple[int, bytes]]
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    reply_bytes_max: int = FETCH_BYTES
    topic: str = "memory"
    partitions: tuple[int, ...] = (0,)

    def bounds(self, partition: int) -> Bounds:
        return self.bounds_

    def fetch(self, partition: int, offset: int, *, committed: bool, bytes_max: int = FETCH_BYTES) -> Fetched | None:
        bounds = self.bounds_
        if not bounds.log_start <= offset <= bounds.high_watermark:
            return None
        end = bounds.last_stable if committed else bounds.high_watermark
        found = [data for last, data in self.batches if last >= offset and int.from_bytes(data[:8], "big") < end]
        data = b"".join(found)
        # A broker may cut off a reply in the middle of a batch, but always sends the first batch whole.
        limit = min(bytes_max, self.reply_bytes_max)
        data = data[: max(limit, len(found[0]) if found else 0)]
        index = [(producer, first) for producer, first, marker in self.aborted if marker >= offset] if committed else []
        return Fetched(data, tuple(index), bounds)
