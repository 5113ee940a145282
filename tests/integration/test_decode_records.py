"""decode() on records of every shape: records that are no event, event ids, unknown fields, row rules and parser limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from ingest.decode.decoder import decode
from tests.integration.records import KAFKA_TIME, SOURCE, contract, decoded, event, kafka_frame, reason

pytestmark = pytest.mark.integration

GOOD = '{"id":"a","n":1,"s":"x"}'
MALFORMED = "malformed_json"
DEEP = "[" * 2000 + "]" * 2000

# Name -> the record's value and its reason code. The code is None for a good record.
RECORDS: dict[str, tuple[bytes | str | None, str | None]] = {
    "a good event": (GOOD, None),
    "blanks and line feeds around it": (f" \r\n\t{GOOD}\n", None),
    "a tombstone": (None, "tombstone"),
    "no bytes": (b"", "empty"),
    "blanks only": (b" \n", MALFORMED),
    "a number": ("42", "not_an_object"),
    "a string": ('"order"', "not_an_object"),
    "null": ("null", "not_an_object"),
    "an array": ("[1,2,3]", "not_an_object"),
    "an array of one event": (f"[{GOOD}]", "not_an_object"),
    "two objects": (GOOD + GOOD, MALFORMED),
    "two objects and a comma": (f"{GOOD},{GOOD}", MALFORMED),
    "two objects on two lines": (f"{GOOD}\n{GOOD}", MALFORMED),
    "trailing garbage": (f"{GOOD} oops", MALFORMED),
    "a trailing zero byte": (f"{GOOD}\0", MALFORMED),
    "a trailing comment": (f"{GOOD}//x", MALFORMED),
    "text that would close the wrapper": (f'{GOOD}],"z":0}}', MALFORMED),
    "text that would close the wrapper and continue": (f'{GOOD}],"z":0,"r":[{GOOD}', MALFORMED),
    "text that would close the wrapper and open another": (f'{GOOD}],"z":0}}{{"r":[{GOOD}', MALFORMED),
    "text that would close the wrapper in other quotes": (f"{GOOD}],'z':0}} oops", MALFORMED),
    "text that would close the wrapper with an escape": (f'{GOOD}],"\\u007a":0}} oops', MALFORMED),
    "a string that looks like the end of the wrapper": ('{"id":"a","s":"], \\"z\\":0}"}', None),
    "an array and a field that look like the end of the wrapper": ('{"id":"a","x":[1], "z":0}', None),
    "truncated": (GOOD[:-1], MALFORMED),
    "truncated within a string": ('{"id":"a', MALFORMED),
    "a byte order mark": ("\ufeff" + GOOD, MALFORMED),
    "a comma too many": ('{"id":"a",}', MALFORMED),
    "a comma too few": ('{"id":"a" "n":1}', MALFORMED),
    "single quotes": ("{'id':'a'}", MALFORMED),
    "a key without quotes": ('{id:"a"}', MALFORMED),
    "a comment": ('{"id":"a"/**/}', MALFORMED),
    "a raw control character": ('{"id":"a\x01"}', MALFORMED),
    "not UTF-8": (b'{"id":"\xff\xfe"}', "not_utf8"),
    "a surrogate in UTF-8": (b'{"id":"\xed\xa0\x80"}', "not_utf8"),
    "Latin-1": ('{"id":"é"}'.encode("latin-1"), "not_utf8"),
    "UTF-16": (GOOD.encode("utf-16"), "not_utf8"),
    "an escaped unpaired surrogate": ('{"id":"\\ud800"}', "not_utf8"),
    "the id twice": ('{"id":"a","id":"b"}', "duplicate_key"),
    "the same value twice": ('{"id":"a","n":1,"n":1}', "duplicate_key"),
    "a field twice, once escaped": ('{"id":"a","\\u0069d":"b"}', "duplicate_key"),
    "an unknown field twice": ('{"id":"a","x":1,"x":2}', "duplicate_key"),
    "a key in an escape": ('{"\\u0069d":"a"}', None),
    "no field at all": ("{}", "missing_event_id"),
    "no id": ('{"n":1}', "missing_event_id"),
    "a null id": ('{"id":null}', "missing_event_id"),
    "no id and a bad value": ('{"s":5}', "missing_event_id"),
    "the id in another case": ('{"ID":"a"}', "missing_event_id"),
    "a number for the id": ('{"id":5}', "wrong_type"),
    "an array for the id": ('{"id":["a"]}', "wrong_type"),
    "an empty id": ('{"id":""}', None),
    "the wrapper's own names": ('{"id":"a","_corrupt":"x","r":1,"z":2}', None),
    # The parser's limit is a depth of 1,000. Beyond it, the parser must neither crash nor hang.
    "an unknown field 2,000 deep": (f'{{"id":"a","x":{DEEP}}}', MALFORMED),
    "a number 2,000 deep": (f'{{"id":"a","n":{DEEP}}}', MALFORMED),
    "an id 2,000 deep": ('{"id":' * 2000 + '"a"' + "}" * 2000, MALFORMED),
    "100,000 open brackets": ("[" * 100_000, MALFORMED),
    "an unknown field 900 deep": (f'{{"id":"a","x":{"[" * 900}{"]" * 900}}}', None),
    "a long number in an unknown field": (f'{{"id":"a","x":{"7" * 900}}}', None),
}


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> dict[str, Row]:
    rows = decoded(spark, contract({"n": "INT", "s": "STRING"}), [value for value, _ in RECORDS.values()])
    return dict(zip(RECORDS, rows, strict=True))


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_one_complete_event_or_goes_to_quarantine_with_its_bytes(outcomes: dict[str, Row], name: str) -> None:
    """I5: quarantine keeps raw bytes and reason. A good row has neither."""
    value, expected = RECORDS[name]
    row = outcomes[name]
    assert row["__reason"] == expected, row["__detail"]
    if expected is None:
        assert (row["__value"], row["__detail"]) == (None, None)
    else:
        raw = value.encode() if isinstance(value, str) else value
        assert row["__value"] == raw
        assert row["__detail"]


def test_the_detail_is_short_and_a_faulty_event_id_is_reported_before_other_faults(outcomes: dict[str, Row]) -> None:
    assert reason(outcomes["no id and a bad value"]) == ("missing_event_id", "id is missing or null")
    assert reason(outcomes["truncated"]) == (MALFORMED, "not one complete JSON object")
    assert reason(outcomes["blanks only"]) == (MALFORMED, "no JSON object")
    assert reason(outcomes["a number"]) == ("not_an_object", "no JSON object")
    assert reason(outcomes["the id twice"]) == ("duplicate_key", "a field is given twice")
    assert reason(outcomes["a byte order mark"]) == (MALFORMED, "it begins with a byte order mark (UTF-8)")
    assert reason(outcomes["UTF-16"]) == ("not_utf8", "it begins with a byte order mark (UTF-16)")


def test_a_record_of_10_mb_is_decoded_and_a_faulty_one_is_kept_whole(spark: SparkSession) -> None:
    """I5"""
    text = "x" * (10 * 1024 * 1024)
    big, broken = event(s=json.dumps(text)), event(s=json.dumps(text), n='"one"')
    fine, kept = decoded(spark, contract({"n": "INT", "s": "STRING"}), [big, broken])
    assert fine["s"] == text
    assert reason(kept) == ("wrong_type", "n")
    assert kept["__value"] == broken.encode()


def test_provenance_is_the_records_position_and_the_batchs_time(spark: SparkSession) -> None:
    """I4, I5, I9: a position identifies an event only together with the topic id."""
    names = ["_topic_id", "_partition", "_offset", "_epoch", "_batch", "unix_micros(_kafka_timestamp)", "unix_micros(_ingested_at)"]
    row = decode(kafka_frame(spark, [GOOD]), contract(event_id="position"), SOURCE).selectExpr(*names).first()
    micros = [round(moment.timestamp() * 1_000_000) for moment in (KAFKA_TIME, SOURCE.ingested_at)]
    assert row is not None and list(row) == ["topic-id", 0, 0, 3, 2, *micros]


def test_a_missing_or_null_value_in_a_not_null_column_is_named(spark: SparkSession) -> None:
    """I5"""
    rules = contract({"at": "TIMESTAMP!", "price": "DECIMAL(4,2)!", "box": "STRUCT<w: INT NOT NULL>!"})
    whole = {"at": '"2024-05-01T10:00:00Z"', "price": "1.5", "box": '{"w":1}'}
    cases: list[tuple[dict[str, str], str | None]] = [(whole, None)]
    for column in whole:
        cases += [({**whole, column: "null"}, column), ({k: v for k, v in whole.items() if k != column}, column)]
    cases += [({**whole, "box": "{}"}, "box"), ({**whole, "box": '{"w":null}'}, "box")]
    rows = decoded(spark, rules, [event(**fields) for fields, _ in cases])
    assert [reason(row) for row in rows] == [column and ("missing_value", column) for _, column in cases]


def test_unknown_fields_are_ignored_kept_or_quarantined(spark: SparkSession) -> None:
    values = ['{"id":"a","n":1}', '{"id":"a","N":2,"x":"1","y":{"z":[1,"t",null,true]},"w":null,"v":7}', '{"id":"a","x":"\\u00e9"}']
    values.append('{"id":"a","x":"1","y":{"z":1,"z":2}}')
    ignored = decoded(spark, contract({"n": "INT"}), values)
    assert [(reason(row), row["n"]) for row in ignored] == [(None, 1), *[(None, None)] * 3]
    kept = decoded(spark, contract({"n": "INT"}, unknown_fields="keep"), values)
    second = {"N": "2", "x": "1", "y": '{"z":[1,"t",null,true]}', "w": None, "v": "7"}
    assert [row["_unknown"] for row in kept[:3]] == [None, second, {"x": "é"}]
    assert reason(kept[3]) == ("duplicate_key", "y"), "the stored text could have only one of the two values"
    refused = decoded(spark, contract({"n": "INT"}, unknown_fields="quarantine"), values)
    assert [reason(row) for row in refused] == [None, ("unknown_field", "N, x, y, w, v"), ("unknown_field", "x"), ("unknown_field", "x, y")]


def test_unknown_fields_are_kept_as_they_were_written(spark: SparkSession) -> None:
    """I5: including numbers of any length or exponent, and nesting as deep as a record allows."""
    deep = "[" * 400 + "]" * 400
    written = ["1e400", "[1e-400]", '{"x":[2,-1E+309]}', "0." + "1" * 39, "1" * 39, "1234567890123456789e3", "1.10", "-0.5e-7", deep]
    values = ['{"id":"a","w":null,"v":[null]}', *(f'{{"id":"a","x":{text},"y":2}}' for text in written)]
    rows = decoded(spark, contract({"n": "INT"}, unknown_fields="keep"), values)
    assert [reason(row) for row in rows] == [None] * len(values)
    assert [row["_unknown"] for row in rows] == [{"w": None, "v": "[null]"}, *({"x": text, "y": "2"} for text in written)]
    ignored = decoded(spark, contract({"n": "INT"}), values)
    assert [reason(row) for row in ignored] == [None] * len(values)


def test_a_faulty_record_keeps_its_event_id(spark: SparkSession) -> None:
    """I5: so that it can be found in quarantine by its event id."""
    values = ['{"id":"a","n":"x"}', '{"id":5}', '{"id":"a","id":"b"}', "{"]
    assert [row["id"] for row in decoded(spark, contract({"n": "INT"}), values)] == ["a", None, None, None]


def test_a_duplicate_key_in_a_map_is_found(spark: SparkSession) -> None:
    """I5: Spark's map would contain both entries, although the text looks like a valid map."""
    values = ['{"id":"a","m":{"k":"1","K":"2","":"é"}}', '{"id":"a","m":{"k":"1","k":"2"}}', '{"id":"a","m":{}}', '{"id":"a","m":null}']
    rows = decoded(spark, contract({"m": "MAP<STRING, STRING>"}), values)
    assert [reason(row) for row in rows] == [None, ("duplicate_key", "m"), None, None]
    assert [rows[at]["m"] for at in (0, 2, 3)] == [{"k": "1", "K": "2", "": "é"}, {}, None]


def test_a_row_rule_must_be_true_and_neither_false_nor_null(spark: SparkSession) -> None:
    """I5: NULL breaks a rule, as in Delta's CHECK. Overflows and failed casts are NULL, not errors. The detail names the rule."""
    rules = [
        {"name": "positive", "check": "n > 0"},
        {"name": "halves", "check": "100 / n >= 1"},
        {"name": "numeric", "check": "s IS NULL OR CAST(s AS INT) < 100"},
        {"name": "early", "check": "_offset < 100 OR n IS NOT NULL"},
    ]
    cases = {
        '"n":5': None,
        '"n":0': "positive",
        '"n":null': "positive",
        '"n":101': "halves",
        '"n":5,"s":"7"': None,
        '"n":5,"s":"x"': "numeric",
    }
    rows = decoded(spark, contract({"n": "INT", "s": "STRING"}, rules=rules), [f'{{"id":"e",{fields}}}' for fields in cases])
    assert [reason(row) for row in rows] == [name and ("broken_rule", name) for name in cases.values()]


def test_rules_are_not_evaluated_on_a_record_with_a_wrong_value(spark: SparkSession) -> None:
    rules = contract({"n": "INT"}, rules=[{"name": "present", "check": "n IS NOT NULL"}])
    assert reason(decoded(spark, rules, [event(n='"x"')])[0]) == ("wrong_type", "n")


def test_the_key_or_a_header_can_be_the_event_id(spark: SparkSession) -> None:
    """I3: compared as text, byte by byte. If a header occurs several times, the last one counts, as in Kafka's own client."""
    keys: list[bytes | None] = [b"k", b"", None, b"\xff", "é".encode()]
    expected: list[Any] = ["k", ("missing_event_id", "the key is missing or empty"), ("missing_event_id", "the key is missing or empty")]
    expected += [("not_utf8", "the key"), "é"]
    for rules in (contract(event_id="key"), contract({"n": "INT"}, event_id="key")):
        rows = decoded(spark, rules, ['{"n":1}'] * 5, keys=keys)
        assert [reason(row) or row["_event_id"] for row in rows] == expected
        assert rows[3]["_event_id"] is None, "a STRING has no bytes that are not UTF-8"
    headers = [[("id", b"1"), ("x", b""), ("id", b"2")], [("ID", b"1")], None, [("id", None)], [("id", b"\xff")], []]
    rows = decoded(spark, contract(event_id="header:id"), [b"v"] * 6, headers=headers)
    missing = ("missing_event_id", "header id is missing or empty")
    assert [reason(row) or row["_event_id"] for row in rows] == ["2", missing, missing, missing, ("not_utf8", "header id"), missing]


def test_the_raw_format_keeps_key_value_and_headers_unchanged(spark: SparkSession) -> None:
    """I5: since nothing is decoded, a tombstone is a record like any other."""
    values: list[bytes | str | None] = [b"\xff\x00", None, b""]
    headers = [[("h", b"\xfe"), ("h", None)], None, []]
    rows = decoded(spark, contract(event_id="position"), values, keys=[b"\xfd", None, b"k"], headers=headers)
    assert [reason(row) for row in rows] == [None] * 3
    assert [(row["key"], row["value"]) for row in rows] == [(b"\xfd", b"\xff\x00"), (None, None), (b"k", b"")]
    assert [row["headers"] for row in rows] == [[("h", b"\xfe"), ("h", None)], None, []]


def test_only_faulty_records_carry_their_raw_bytes_key_and_headers(spark: SparkSession) -> None:
    """I5"""
    headers = [[("trace", b"\xff"), ("trace", None)]] * 2
    fine, faulty = decoded(spark, contract(), ['{"id":"a"}', "{"], keys=[b"\xfe", b"\xfe"], headers=headers)
    assert (fine["__key"], fine["__value"], fine["__headers"]) == (None, None, None)
    assert (faulty["__key"], faulty["__value"]) == (b"\xfe", b"{")
    assert faulty["__headers"] == [("trace", b"\xff"), ("trace", None)]
