"""Kafka's record batches (message format v2), read by kafka-python from the bytes of a fetch reply.

The format is Kafka's "Record Batch" (kafka.apache.org/documentation/#recordbatch). Its header tells which offsets a batch spans,
whose it is and how many records it holds; a million records are a few thousand headers. Records are decoded only where needed.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords

from ingest.kafka.intervals import Intervals
from ingest.runtime.errors import InvalidEnvironment

_PACKAGES = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}


class Compression(Enum):
    """How a batch's records are packed; the values are Kafka's."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Marker(Enum):
    """What a control record says of the transaction of its producer; the values are Kafka's."""

    ABORT = 0
    COMMIT = 1


class Record(NamedTuple):
    """One record; the timestamp in milliseconds since 1970 UTC, -1 if it has none."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A batch's header and its bytes, `data`, which belong to the reply that it came in.

    It spans the offsets base_offset to last_offset, both included. Compaction takes records out and leaves the span, and may
    leave a batch of no record. `producer_id` is -1 without an idempotent producer. Timestamps are milliseconds since 1970 UTC.
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
        """Whether each offset of its span holds a record, so that none needs to be looked at."""
        return self.record_count == self.last_offset - self.base_offset + 1

    @property
    def marker(self) -> Marker | None:
        """What a control batch says; None for data, for an emptied batch and for control records of no transaction."""
        if not self.control or self.record_count == 0:
            return None
        try:
            return Marker(next(iter(DefaultRecordBatch(self.data))).type)
        except CorruptRecordError as error:
            raise corrupt(self.base_offset, f"its marker cannot be read ({error})") from error
        except (struct.error, TypeError, ValueError):  # another kind, or a key that is no marker's
            return None

    def offsets(self) -> Intervals:
        """The offsets that hold a record. Raises InvalidEnvironment BATCH_CORRUPT, CODEC_MISSING (compacted and compressed)."""
        if self.dense:
            return Intervals.of([(self.base_offset, self.last_offset + 1)])
        return Intervals.of_offsets([record.offset for record in self.records()])

    def records(self, wanted: Collection[int] | None = None) -> Iterator[Record]:
        """Its records by ascending offset, only those at `wanted` offsets if given. Raises InvalidEnvironment BATCH_CORRUPT,
        CODEC_MISSING.
        """
        try:
            for one in DefaultRecordBatch(self.data):
                if wanted is None or one.offset in wanted:
                    yield Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
        except UnsupportedCodecError as error:
            name = self.compression.name.lower()
            raise InvalidEnvironment(
                "CODEC_MISSING",
                f"the records at offset {self.base_offset} are packed with {name}, and no Python package here unpacks it.",
                expected=f"the package {_PACKAGES[name]}, where records have to be looked into (compacted topics, single records).",
                remedy=f"pip install {_PACKAGES[name]}",
            ) from error
        except Exception as error:  # CorruptRecordError; and every codec has errors of its own
            raise corrupt(self.base_offset, f"its records cannot be read ({error})") from error


def read_batches(reply: bytes) -> Iterator[RecordBatch]:
    """The whole batches in the bytes of a fetch reply, their checksums compared; one that is cut off is left for the next fetch.

    Raises InvalidEnvironment BATCH_CORRUPT, BATCH_FORMAT_OLD (formats v0 and v1, of before Kafka 0.11).
    """
    batches, at = MemoryRecords(reply), 0
    while batches.has_next():
        base, length = struct.unpack_from(">qi", reply, at)
        end = at + MemoryRecords.LOG_OVERHEAD + length
        try:
            batch = batches.next_batch()
        except (CorruptRecordError, struct.error) as error:
            raise corrupt(base, f"it says to be {end - at} bytes long") from error
        if batch.magic != 2:
            raise InvalidEnvironment(
                "BATCH_FORMAT_OLD",
                f"the records at offset {base} have message format v{batch.magic}, of before Kafka 0.11.",
                expected="format v2, the only one that Kafka 4 knows.",
                remedy="let Kafka 3 rewrite the topic (compaction), or verify without --against-kafka.",
            )
        yield _checked(batch, memoryview(reply)[at:end])
        at = end


def corrupt(base_offset: int, what: str) -> InvalidEnvironment:
    """The error for a batch whose bytes are not what its format or its checksum says."""
    return InvalidEnvironment(
        "BATCH_CORRUPT",
        f"the record batch at offset {base_offset} is damaged: {what}.",
        expected="the bytes that the producer sent.",
        remedy="look into the broker's disk (kafka-dump-log.sh --deep-iteration); another replica may hold them whole.",
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
