"""The records of a batch as a stream of bytes, decompressed piece by piece: a batch of 199 KiB may have a record of 200 MiB."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

# At the beginning of what Kafka's Java clients compress with snappy: blocks, each after its length. Others write a single block.
_XERIAL, _XERIAL_BYTES = b"\x82SNAPPY\x00", 16
_READ_BYTES = 2**17


def decompressed(data: memoryview, codec: str) -> BinaryIO:
    """The bytes of `data`; `codec` is none, gzip, snappy, lz4 or zstd. Raises OSError or ValueError (Arrow's) for damaged data, at once or
    when it is read."""
    if codec == "none":
        return io.BytesIO(data)
    if codec == "snappy":  # makes 21 bytes of one at most
        return io.BytesIO(b"".join(_snappy(data)))
    import pyarrow as pa  # takes a quarter of a second, which those who only produce need not wait for

    raw: Any = pa.CompressedInputStream(pa.BufferReader(data), codec)
    return io.BufferedReader(raw, _READ_BYTES)


def _snappy(data: memoryview) -> Iterator[bytes]:
    import pyarrow as pa

    at, end = (_XERIAL_BYTES, 0) if data[: len(_XERIAL)] == _XERIAL else (0, len(data))
    while at < len(data):
        if not end:
            at, end = at + 4, at + 4 + struct.unpack_from(">i", data, at)[0]
        size = shift = 0
        for byte in data[at:end]:  # a block begins with the length of its content
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield pa.decompress(data[at:end], size, "snappy", asbytes=True)
        at, end = end, 0
