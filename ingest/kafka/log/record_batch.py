"""Kafka's record batches (message format v2), read by kafka-python from the bytes of a fetch reply.

The format is Kafka's "Record Batch" (kafka.apache.org/documentation/#recordbatch). A batch's header contains its offset span, its
producer and its number of records; a million records have a few thousand headers. Records are decoded only where needed.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, NamedTuple

from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords
from kafka.record.util import decode_varint

from ingest.kafka.intervals import Intervals
from ingest.kafka.log.decompression import decompressed
from ingest.runtime.errors import InvalidEnvironment

# A larger record is not read: its bytes are needed several times over to store them, and a BINARY of Parquet and Arrow ends at 2 GiB.
RECORD_BYTES_MAX = 64 * 2**20
# Attributes, time and offset take fewer.
_HEAD_BYTES = 1024


class Compression(Enum):
    """The compression of a batch's records; the values are Kafka's."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Marker(Enum):
    """The outcome of the producer's transaction in a control record; the values are Kafka's."""

    ABORT = 0
    COMMIT = 1


class Record(NamedTuple):
    """One record. The timestamp is in milliseconds since 1970 UTC, -1 if there is none.

    `too_large` is the size in bytes of a record of more than RECORD_BYTES_MAX, which has neither key, value nor headers here, else 0.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    too_large: int = 0


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A batch's header and its bytes; `data` is a view of the fetch reply's bytes.

    The batch spans the offsets base_offset to last_offset, both included. Compaction removes records but keeps the span, and may leave a
    batch without records. `producer_id` is -1 without an idempotent producer. Timestamps are milliseconds since 1970 UTC.
    """

    base_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    compression: Compression
    transactional: bool
    control: bool
    producer_id: int
    producer_epoch: int
    max_timestamp_ms: int
    data: memoryview

    @property
    def dense(self) -> bool:
        """Whether each offset of the span has a record, so that no record has to be decoded to find the offsets."""
        return self.record_count == self.last_offset - self.base_offset + 1

    @property
    def marker(self) -> Marker | None:
        """The marker in a control batch. None for data, for an emptied batch and for control records that are not markers.

        Raises InvalidEnvironment BATCH_CORRUPT.
        """
        if not self.control or self.record_count == 0:
            return None
        try:
            return Marker(next(iter(DefaultRecordBatch(self.data))).type)
        except CorruptRecordError as error:
            raise corrupt(self.base_offset, f"its marker cannot be read ({error})") from error
        except (struct.error, TypeError, ValueError):  # another type of control record, or a key that is not a marker's
            return None

    def offsets(self) -> Intervals:
        """The offsets that have a record.

        Raises InvalidEnvironment BATCH_CORRUPT only for a batch that compaction has thinned out.
        """
        if self.dense:
            return Intervals.of([(self.base_offset, self.last_offset + 1)])
        return Intervals.of_offsets([record.offset for record in self.records()])

    def records(self, wanted: Collection[int] | None = None) -> Iterator[Record]:
        """The records by ascending offset; only those at the `wanted` offsets if given. In memory is one at a time.

        Raises InvalidEnvironment BATCH_CORRUPT.
        """
        try:
            yield from self._records(wanted)
        except Exception as error:  # CorruptRecordError, or an error of the codec
            raise corrupt(self.base_offset, f"its records cannot be read ({error})") from error

    def _records(self, wanted: Collection[int] | None) -> Iterator[Record]:
        header = DefaultRecordBatch(self.data)
        appended = header.timestamp_type == header.LOG_APPEND_TIME
        stream = decompressed(self.data[header.HEADER_STRUCT.size :], self.compression.name.lower())
        for _ in range(self.record_count):
            size, _ = decode_varint(_varint(stream), 0)
            body = stream.read(max(size, 0) if size <= RECORD_BYTES_MAX else _HEAD_BYTES)
            left = size - len(body)
            while left > 0 and (piece := stream.read(min(left, _HEAD_BYTES**2))):
                left -= len(piece)
            if left:
                raise CorruptRecordError(f"a record lacks {left} of its {size} bytes")
            time, at = decode_varint(body, 1)  # after the attributes
            offset, at = decode_varint(body, at)
            offset += self.base_offset
            time = self.max_timestamp_ms if appended else header.first_timestamp + time
            if wanted is not None and offset not in wanted:
                continue
            if size > RECORD_BYTES_MAX:
                yield Record(offset, time, None, None, (), size)
                continue
            key, at = _bytes(body, at)
            value, at = _bytes(body, at)
            count, at = decode_varint(body, at)
            headers = []
            for _ in range(count):
                name, at = _bytes(body, at)
                text, at = _bytes(body, at)
                headers.append(((name or b"").decode(errors="replace"), text))  # as in Java
            if at != size:
                raise CorruptRecordError(f"a record of {size} bytes has fields of {at}")
            yield Record(offset, time, key, value, tuple(headers))
        if stream.read(1):
            raise CorruptRecordError("unconsumed bytes after all records")


def _varint(stream: BinaryIO) -> bytes:
    """The bytes of a number; fewer at the end of the stream."""
    found = stream.read(1)
    while found and found[-1] >= 0x80 and (more := stream.read(1)):
        found += more
    return found


def _bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    """A field, None if it is null, and where it ends."""
    size, at = decode_varint(body, at)
    if at + size > len(body):
        raise CorruptRecordError(f"a field of {size} bytes in a record of {len(body)}")
    return (body[at : at + size], at + size) if size >= 0 else (None, at)


def read_batches(reply: bytes) -> Iterator[RecordBatch]:
    """The complete batches in the bytes of a fetch reply, with verified checksums. Skips a last batch that is cut off.

    Raises InvalidEnvironment BATCH_CORRUPT or BATCH_FORMAT_OLD (formats v0 and v1, older than Kafka 0.11).
    """
    batches, at = MemoryRecords(reply), 0
    while batches.has_next():
        base, length = struct.unpack_from(">qi", reply, at)
        end = at + MemoryRecords.LOG_OVERHEAD + length
        try:
            batch = batches.next_batch()
        except (CorruptRecordError, struct.error) as error:
            raise corrupt(base, f"its header says that it is {end - at} bytes long") from error
        if batch.magic != 2:
            raise InvalidEnvironment(
                "BATCH_FORMAT_OLD",
                f"the records at offset {base} have message format v{batch.magic}, which is older than Kafka 0.11.",
                expected="format v2, the only one that Kafka 4 supports.",
                remedy="let Kafka 3 rewrite the topic (compaction), or verify without --against-kafka.",
            )
        yield _checked(batch, memoryview(reply)[at:end])
        at = end


def corrupt(base_offset: int, problem: str) -> InvalidEnvironment:
    """The error for a batch whose bytes violate the format or the checksum."""
    return InvalidEnvironment(
        "BATCH_CORRUPT",
        f"the record batch at offset {base_offset} is damaged: {problem}.",
        expected="the bytes that the producer sent.",
        remedy="check the broker's disk (kafka-dump-log.sh --deep-iteration); another replica may have them intact.",
    )


def _checked(batch: DefaultRecordBatch, data: memoryview) -> RecordBatch:
    if not batch.validate_crc():
        raise corrupt(batch.base_offset, "its checksum differs")
    if batch.last_offset_delta < 0 or not 0 <= batch.records_count <= batch.last_offset_delta + 1:
        raise corrupt(batch.base_offset, f"{batch.records_count} records in {batch.last_offset_delta + 1} offsets")
    if batch.compression_type > Compression.ZSTD.value:
        raise corrupt(batch.base_offset, f"no codec has the number {batch.compression_type}")
    return RecordBatch(
        batch.base_offset,
        batch.last_offset,
        batch.records_count,
        len(data),
        Compression(batch.compression_type),
        batch.is_transactional,
        batch.is_control_batch,
        batch.producer_id,
        batch.producer_epoch,
        batch.max_timestamp,
        data,
    )
