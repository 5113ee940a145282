"""Records become rows or refused records: event ids of key and header, raw records, the first fault, and whose bytes are kept (I5)."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ingest.contract.definition import Contract
from ingest.decode.arrow_rule import arrow_rules
from ingest.decode.event_plan import BatchSource, event_plan
from ingest.decode.events import Events
from ingest.decode.headers import HEADERS, headers_of, last_header
from ingest.decode.payload import payload_hashes
from tests.unit.batch.local_desk import Record, record_batch

pytestmark = pytest.mark.unit

SOURCE = BatchSource(("topic-id", "second-id"), 7, 3, datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC))
ID: dict[str, Any] = {"name": "id", "type": "BIGINT", "nullable": False}


def contract(event_id: Any, columns: list[dict[str, Any]] | None = None, format: str = "json", **given: Any) -> Contract:
    document = {"pipeline": "t", "table": "events", "source": {"topic": "t", "format": format}, "event_id": event_id, **given}
    return Contract.model_validate(document | ({"columns": columns or [ID]} if format == "json" else {}))


def decoded(contract: Contract, *records: Record, keep_raw: bool = False) -> list[dict[str, Any]]:
    """The outcome of each record, in their order."""
    events = Events(event_plan(contract, SOURCE, arrow_rules(contract)))
    rows = [row for batch in events.decode([record_batch(records)], keep_raw=keep_raw) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["_offset"])


def headers(*given: tuple[str, bytes | None]) -> str:
    """Headers as Spark's to_json writes them: NULL is left out."""
    return json.dumps([{"key": key} | ({"value": base64.b64encode(value).decode()} if value is not None else {}) for key, value in given])


def faults(rows: list[dict[str, Any]]) -> list[tuple[str | None, str | None]]:
    return [(row["__reason"], row["__detail"]) for row in rows]


def test_an_event_id_from_the_key_is_text_and_a_missing_empty_or_broken_one_is_refused() -> None:
    keys = [b"k1", None, b"", b"\xff\xfe", "é".encode(), b"\0"]
    rows = decoded(contract("key"), *(Record(0, at, b'{"id":1}', key) for at, key in enumerate(keys)))
    assert [row["_event_id"] for row in rows] == ["k1", None, None, None, "é", "\0"]
    missing = ("missing_event_id", "the key is missing or empty")
    assert faults(rows) == [(None, None), missing, missing, ("not_utf8", "the key"), (None, None), (None, None)]


def test_of_several_headers_of_the_name_the_last_one_is_the_event_id() -> None:
    """As Kafka's Headers.lastHeader: also if the last one has no value."""
    given = [
        headers(("h", b"first"), ("h", b"last"), ("other", b"x")),
        headers(("h", b"first"), ("h", None)),
        headers(("h", b"first"), ("h", b"")),
        headers(("H", b"another name")),
        None,
        headers(("h", b"\xff")),
    ]
    rows = decoded(contract("header:h"), *(Record(0, at, b'{"id":1}', None, each) for at, each in enumerate(given)))
    assert [row["_event_id"] for row in rows] == ["last", *[None] * 5]
    missing = ("missing_event_id", "header h is missing or empty")
    assert faults(rows) == [(None, None), missing, missing, missing, missing, ("not_utf8", "header h")]


def test_headers_are_read_back_from_sparks_text() -> None:
    texts = pa.array([headers(("a", b"\0\xff"), ("b", None), ("a", b"")), None, "[]"])
    assert headers_of(texts).to_pylist() == [
        [{"key": "a", "value": b"\0\xff"}, {"key": "b", "value": None}, {"key": "a", "value": b""}],
        None,
        [],
    ]
    assert headers_of(pa.nulls(2, pa.string())).equals(pa.nulls(2, HEADERS))
    assert last_header(texts, "a").to_pylist() == [b"", None, None]


def test_raw_records_are_rows_with_their_bytes_and_their_position_as_the_event_id() -> None:
    rows = decoded(contract("position", format="raw"), Record(1, 5, b"\xff", b"k", headers(("h", b"v"))), Record(2, 6, None))
    names = ("key", "value", "headers", "_topic_id", "_source", "_partition", "_offset", "__reason", "__key", "__value")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (b"k", b"\xff", [{"key": "h", "value": b"v"}], "topic-id", 0, 1, 5, None, None, None),
        (None, None, None, "second-id", 1, 0, 6, None, None, None),
    ]


def test_every_row_has_the_constants_of_its_batch_in_the_types_of_their_columns() -> None:
    events = Events(event_plan(contract(["id"]), SOURCE, ()))
    (batch,) = events.decode([record_batch([Record(0, 0, b'{"id":1}'), Record(0, 1, b'{"id":2}')])])
    assert [(row["_epoch"], row["_batch"], row["_ingested_at"]) for row in batch.to_pylist()] == [(7, 3, SOURCE.ingested_at)] * 2
    assert [batch.schema.field(name).type for name in ("_epoch", "_batch")] == [pa.int32(), pa.int64()]


def test_the_first_fault_of_a_record_is_its_reason() -> None:
    """In the order: its text, its event id, the rules as the contract names them, its partition value."""
    columns = [ID, {"name": "day", "type": "STRING"}]
    rules = [{"name": "first", "check": "id > 0"}, {"name": "second", "check": "id > 10"}]
    one = contract("key", columns, rules=rules, layout={"partition_by": ["day"]})
    values = [
        (b"{", None),
        (b'{"id":-1,"day":""}', None),
        (b'{"id":-1,"day":""}', b"k"),
        (b'{"id":5,"day":""}', b"k"),
        (b'{"id":11,"day":""}', b"k"),
        (b'{"id":11,"day":"d"}', b"k"),
    ]
    rows = decoded(one, *(Record(0, at, value, key) for at, (value, key) in enumerate(values)))
    assert [row["__reason"] for row in rows] == ["malformed_json", "missing_event_id", "broken_rule", "broken_rule", "unwritable", None]
    assert [row["__detail"] for row in rows][2:] == ["first", "second", "day", None]


@pytest.mark.parametrize(
    ("kind", "value", "writable"),
    [
        ("STRING", "a/b=c %\n", True),
        ("STRING", "", False),
        ("STRING", "x" * 300, False),
        ("STRING", "a\0b", False),
        ("STRING", "__HIVE_DEFAULT_PARTITION__", False),
        ("STRING", None, True),
        ("DECIMAL(10,7)", "0.0000000", True),
        ("TIMESTAMP", "0001-01-01T00:00:00Z", True),
        ("BOOLEAN", False, True),
    ],
    ids=str,
)
def test_a_partition_value_that_would_not_come_back_is_refused(kind: str, value: Any, writable: bool) -> None:
    one = contract(["id"], [ID, {"name": "p", "type": kind}], layout={"partition_by": ["p"]})
    assert faults(decoded(one, Record(0, 0, json.dumps({"id": 1, "p": value}).encode()))) == [
        (None, None) if writable else ("unwritable", "p")
    ]


def test_a_rule_that_is_neither_true_nor_false_is_broken() -> None:
    """As in Delta's CHECK."""
    one = contract(["id"], [ID, {"name": "n", "type": "INT"}], rules=[{"name": "r", "check": "n > 0"}])
    rows = decoded(one, Record(0, 0, b'{"id":1,"n":1}'), Record(0, 1, b'{"id":1,"n":0}'), Record(0, 2, b'{"id":1}'))
    assert faults(rows) == [(None, None), ("broken_rule", "r"), ("broken_rule", "r")]


@pytest.mark.parametrize("keep_raw", [False, True])
def test_only_refused_records_keep_their_bytes_unless_all_are_to(keep_raw: bool) -> None:
    one = contract(["id"], [ID, {"name": "n", "type": "INT"}], rules=[{"name": "r", "check": "n > 0"}])
    values = [b'{"id":1,"n":1}', b'{"id":1,"n":0}', b"{", b'{"id":2,"n":2}']
    rows = decoded(one, *(Record(0, at, value, b"k", headers(("h", b"v"))) for at, value in enumerate(values)), keep_raw=keep_raw)
    kept = [keep_raw or row["__reason"] is not None for row in rows]
    assert kept == [keep_raw, True, True, keep_raw]
    for name, given in (("__value", values), ("__key", [b"k"] * 4), ("__headers", [headers(("h", b"v"))] * 4)):
        assert [row[name] for row in rows] == [value if keep else None for value, keep in zip(given, kept, strict=True)]


def test_the_id_of_a_refused_record_is_kept_if_it_could_be_read() -> None:
    one = contract(["id"], [ID, {"name": "n", "type": "INT"}])
    rows = decoded(one, Record(0, 0, b'{"id":1,"n":"x"}'), Record(0, 1, b'{"n":1}'), Record(0, 2, b'{"id":"x"}'))
    assert [row["id"] for row in rows] == [1, None, None] and all(row["__reason"] for row in rows)


def test_only_rows_have_a_payload_hash_and_it_is_that_of_the_columns() -> None:
    one = contract(["id"], [ID, {"name": "n", "type": "INT"}], conflicts="table")
    rows = decoded(one, *(Record(0, at, value) for at, value in enumerate((b'{"id":1,"n":2}', b'{"n":2,"id":1}', b'{"id":1}', b"{"))))
    found = [row["_payload_hash"] for row in rows]
    same = payload_hashes([("id", pa.array([1])), ("n", pa.array([2], pa.int32()))], 1).view("int64").tolist()
    assert found[:2] == same * 2 and found[2] not in (None, *same) and found[3] is None


def test_the_payload_of_a_raw_record_is_its_key_value_and_headers() -> None:
    one = contract("header:h", format="raw", conflicts="table")
    given = headers(("h", b"1"))
    records = [
        Record(0, 0, b"v", b"k", given),
        Record(0, 1, b"v", b"k", given),
        Record(0, 2, b"w", b"k", given),
        Record(0, 3, b"v", b"l", given),
    ]
    hashes = [row["_payload_hash"] for row in decoded(one, *records, Record(0, 4, b"v", b"k", headers(("h", b"1"), ("x", None))))]
    assert hashes[0] == hashes[1] and len({*hashes}) == 4
