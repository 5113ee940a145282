"""Kafka's record batches (message format v2), read from the bytes of a fetch reply: the header, and records only where needed.

The format is Kafka's "Record Batch" (kafka.apache.org/documentation/#recordbatch). Its header tells which offsets a batch spans,
whose it is and how many records it holds; a million records are a few thousand headers. kafka-python's own classes copy each batch
and decode every record, so only its constants, checksum and codecs are used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from kafka import codec as codecs
from kafka.record.default_records import ControlRecord, DefaultRecordBatch
from kafka.record.util import calc_crc32c, decode_varint

from ingest.errors import Unfit
from ingest.prove.intervals import Intervals

_HEADER = DefaultRecordBatch.HEADER_STRUCT
# Offset and length come before what the length counts; the checksum covers everything from the attributes on.
_OVERHEAD = DefaultRecordBatch.AFTER_LEN_OFFSET
_CHECKED_FROM = DefaultRecordBatch.ATTRIBUTES_OFFSET
# Up to this byte old formats look the same, and there stands which format it is.
_MAGIC_AT = DefaultRecordBatch.CRC_OFFSET - 1
_LENGTH = slice(8, 12)

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
    log_append_time: bool
    transactional: bool
    control: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    data: memoryview

    @property
    def span(self) -> int:
        """How many offsets it covers, those without a record included."""
        return self.last_offset - self.base_offset + 1

    @property
    def dense(self) -> bool:
        """Whether each offset of its span holds a record, so that none needs to be looked at."""
        return self.record_count == self.span

    @property
    def marker(self) -> Marker | None:
        """What a control batch says; None for data, for an emptied batch and for control records of no transaction."""
        if not self.control or self.record_count == 0:
            return None
        record = next(self.records())
        _, kind = ControlRecord.KEY_STRUCT.unpack_from(record.key or b"\0\0\xff\xff")
        return Marker(kind) if kind in (0, 1) else None

    def offsets(self) -> Intervals:
        """The offsets that hold a record. Raises Unfit BATCH_CORRUPT, CODEC_MISSING (compacted and compressed)."""
        if self.dense:
            return Intervals.of([(self.base_offset, self.last_offset + 1)])
        return Intervals.of_offsets([self.base_offset + delta for delta, _, _ in self._bodies()])

    def records(self, wanted: Collection[int] | None = None) -> Iterator[Record]:
        """Its records by ascending offset, only those at `wanted` offsets if given. Raises Unfit BATCH_CORRUPT, CODEC_MISSING."""
        for delta, timestamp_delta, body in self._bodies():
            offset = self.base_offset + delta
            if wanted is None or offset in wanted:
                stamp = self.max_timestamp_ms if self.log_append_time else self.first_timestamp_ms + timestamp_delta
                try:
                    yield Record(offset, stamp, *_content(body))
                except (IndexError, ValueError) as error:
                    raise corrupt(self.base_offset, f"record {offset} cannot be read ({error})") from error

    def _bodies(self) -> Iterator[tuple[int, int, memoryview]]:
        """Of each record: the offset's distance to the base, the timestamp's to the first, and the bytes from the key on."""
        payload = self._payload()
        at = 0
        try:
            for _ in range(self.record_count):
                length, at = decode_varint(payload, at)
                end = at + length
                if length <= 0 or end > len(payload):
                    raise ValueError(f"a record of {length} bytes at {at} of {len(payload)}")
                timestamp_delta, at = decode_varint(payload, at + 1)  # a byte of attributes that nobody uses
                delta, at = decode_varint(payload, at)
                yield delta, timestamp_delta, payload[at:end]
                at = end
        except (IndexError, ValueError) as error:
            raise corrupt(self.base_offset, f"its records cannot be read ({error})") from error
        if at != len(payload):
            raise corrupt(self.base_offset, f"{len(payload) - at} bytes follow its last record")

    def _payload(self) -> memoryview:
        packed = self.data[_HEADER.size :]
        if self.compression is Compression.NONE:
            return packed
        name = self.compression.name.lower()
        if not getattr(codecs, f"has_{name}")():
            raise Unfit(
                "CODEC_MISSING",
                f"the records at offset {self.base_offset} are packed with {name}, and no Python package here unpacks it.",
                expected=f"the package {_PACKAGES[name]}, where records have to be looked into (compacted topics, single records).",
                remedy=f"pip install {_PACKAGES[name]}",
            )
        try:
            return memoryview(getattr(codecs, f"{name}_decode")(packed.tobytes()))
        except Exception as error:  # every codec has errors of its own
            raise corrupt(self.base_offset, f"{name} cannot unpack it ({error})") from error


def read_batches(reply: bytes | memoryview, *, check: bool = True) -> Iterator[RecordBatch]:
    """The whole batches in the bytes of a fetch reply; one that is cut off at the end is left for the next fetch.

    `check` compares each batch's CRC-32C. Raises Unfit BATCH_CORRUPT, BATCH_FORMAT_OLD (formats v0 and v1, of before Kafka 0.11).
    """
    data = memoryview(reply)
    at = 0
    while at + _OVERHEAD <= len(data):
        end = at + _OVERHEAD + int.from_bytes(data[at:][_LENGTH], "big", signed=True)
        if end > len(data):
            return
        base = int.from_bytes(data[at : at + 8], "big", signed=True)
        if end - at <= _MAGIC_AT:
            raise corrupt(base, f"it says to be {end - at} bytes long")
        if data[at + _MAGIC_AT] != 2:
            raise Unfit(
                "BATCH_FORMAT_OLD",
                f"the records at offset {base} have message format v{data[at + _MAGIC_AT]}, of before Kafka 0.11.",
                expected="format v2, the only one that Kafka 4 knows.",
                remedy="let Kafka 3 rewrite the topic (compaction), or verify without --against-kafka.",
            )
        if end - at < _HEADER.size:
            raise corrupt(base, f"it says to be {end - at} bytes long")
        yield _batch(data[at:end], check)
        at = end


def corrupt(base_offset: int, what: str) -> Unfit:
    """The error for a batch whose bytes are not what its format or its checksum says."""
    return Unfit(
        "BATCH_CORRUPT",
        f"the record batch at offset {base_offset} is damaged: {what}.",
        expected="the bytes that the producer sent.",
        remedy="look into the broker's disk (kafka-dump-log.sh --deep-iteration); another replica may hold them whole.",
    )


def _batch(data: memoryview, check: bool) -> RecordBatch:
    base, _, _, _, crc, attributes, last_delta, first, latest, producer, epoch, sequence, count = _HEADER.unpack_from(data)
    if check and calc_crc32c(data[_CHECKED_FROM:]) != crc:
        raise corrupt(base, "its checksum differs")
    if last_delta < 0 or not 0 <= count <= last_delta + 1:
        raise corrupt(base, f"{count} records in {last_delta + 1} offsets")
    packed = attributes & DefaultRecordBatch.CODEC_MASK
    if packed > Compression.ZSTD.value:
        raise corrupt(base, f"no codec has the number {packed}")
    return RecordBatch(
        base,
        base + last_delta,
        count,
        len(data),
        Compression(packed),
        bool(attributes & DefaultRecordBatch.TIMESTAMP_TYPE_MASK),
        bool(attributes & DefaultRecordBatch.TRANSACTIONAL_MASK),
        bool(attributes & DefaultRecordBatch.CONTROL_MASK),
        producer,
        epoch,
        sequence,
        first,
        latest,
        data,
    )


def _content(body: memoryview) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    """Key, value and headers of one record."""
    key, at = _bytes(body, 0)
    value, at = _bytes(body, at)
    count, at = decode_varint(body, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _bytes(body, at)
        content, at = _bytes(body, at)
        headers.append(((name or b"").decode(errors="replace"), content))
    if at != len(body):
        raise ValueError(f"{len(body) - at} bytes follow its headers")
    return key, value, tuple(headers)


def _bytes(body: Any, at: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(body, at)
    if length < 0:
        return None, at
    if at + length > len(body):
        raise ValueError(f"{length} bytes wanted, {len(body) - at} left")
    return bytes(body[at : at + length]), at + length
