"""Kafka's record batches (message format v2), read by kafka-python from the bytes of a fetch reply.

The format is Kafka's "Record Batch" (kafka.apache.org/documentation/#recordbatch). A batch's header contains its offset span, its
producer and its number of records; a million records have a few thousand headers. Records are decoded only where needed.
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
    """One record. The timestamp is in milliseconds since 1970 UTC, -1 if there is none."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


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

        Raises InvalidEnvironment BATCH_CORRUPT or CODEC_MISSING, only for a batch that compaction has thinned out.
        """
        if self.dense:
            return Intervals.of([(self.base_offset, self.last_offset + 1)])
        return Intervals.of_offsets([record.offset for record in self.records()])

    def records(self, wanted: Collection[int] | None = None) -> Iterator[Record]:
        """The records by ascending offset; only those at the `wanted` offsets if given.

        Raises InvalidEnvironment BATCH_CORRUPT or CODEC_MISSING.
        """
        try:
            for one in DefaultRecordBatch(self.data):
                if wanted is None or one.offset in wanted:
                    yield Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
        except UnsupportedCodecError as error:
            name = self.compression.name.lower()
            raise InvalidEnvironment(
                "CODEC_MISSING",
                f"the records at offset {self.base_offset} are compressed with {name}, and no installed Python package decompresses it.",
                expected=f"the package {_PACKAGES[name]}, which is needed to decode records (compacted topics, single records).",
                remedy=f"pip install {_PACKAGES[name]}",
            ) from error
        except Exception as error:  # CorruptRecordError, or an error of the codec
            raise corrupt(self.base_offset, f"its records cannot be read ({error})") from error


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
