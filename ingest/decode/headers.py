"""The headers of Kafka records, which pass Spark's workers as JSON text.

Spark's Arrow writer measures every part of a nested column per record, at ten times the cost of reading it.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterable

import pyarrow as pa

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def headers_of(texts: pa.Array) -> pa.Array:
    """The headers of each record (HEADERS), in their order; NULL if it has none."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), HEADERS)
    return pa.array([_headers(text) for text in texts.to_pylist()], HEADERS)


def structs(headers: Iterable[tuple[str, bytes | None]]) -> list[dict[str, str | bytes | None]] | None:
    """One record's headers as a value of HEADERS; None if it has none."""
    return [{"key": key, "value": value} for key, value in headers] or None


def texts_of(headers: pa.Array) -> pa.Array:
    """The inverse of `headers_of`: the text that Spark's to_json makes of each record's headers; NULL if it has none."""
    texts = [None if each is None else json.dumps([_document(**header) for header in each]) for each in headers.to_pylist()]
    return pa.array(texts, pa.string())


def _document(key: str | None, value: bytes | None) -> dict[str, str]:
    text = binascii.b2a_base64(value, newline=False).decode() if value is not None else None
    return {name: each for name, each in (("key", key), ("value", text)) if each is not None}


def last_header(texts: pa.Array, name: str) -> pa.Array:
    """The value of the last header with this name (binary), as Kafka's own Headers.lastHeader; NULL without one."""
    found = []
    for text in texts.to_pylist():
        values = [each["value"] for each in _headers(text) or () if each["key"] == name]
        found.append(values[-1] if values else None)
    return pa.array(found, pa.binary())


def _headers(text: str | None) -> list[dict[str, str | bytes | None]] | None:
    if text is None:
        return None
    # Our own text, made by Spark's to_json: BINARY as base64, and NULL left out.
    return [
        {"key": each.get("key"), "value": binascii.a2b_base64(each["value"]) if "value" in each else None}
        for each in json.loads(text)  # as a worker has only pyarrow and numpy
    ]
