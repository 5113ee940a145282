"""Headers of Kafka records as text, as Spark's to_json writes it, and back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ingest.decode.headers import HEADERS, headers_of, texts_of

pytestmark = pytest.mark.unit


def test_headers_survive_the_way_through_text() -> None:
    values = [None, [], [{"key": "a", "value": b"\x00\xff"}, {"key": "a", "value": b""}, {"key": "ü", "value": None}]]
    headers = pa.array(values, HEADERS)
    texts = texts_of(headers)
    assert texts.to_pylist()[:2] == [None, "[]"]
    assert headers_of(texts).to_pylist() == values
