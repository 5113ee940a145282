"""JSON becomes an exact value, or the record is quarantined with reason and column (I5, docs/reference/contracts.md)."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row, SparkSession

from tests.integration.records import contract, event, plain

pytestmark = pytest.mark.integration

COLUMNS = {
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "big": "BIGINT",
    "single": "FLOAT",
    "double": "DOUBLE",
    "money": "DECIMAL(18,2)",
    "count": "DECIMAL(38,0)",
    "share": "DECIMAL(38,38)",
    "flag": "BOOLEAN",
    "text": "STRING",
    "bytes": "BINARY",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "address": "STRUCT<zip: INT, fee: DECIMAL(4,2), city: STRING>",
    "sizes": "ARRAY<TINYINT>",
    "tags": "ARRAY<STRING>",
    "times": "MAP<STRING, TIMESTAMP>",
    "stops": "ARRAY<STRUCT<on: DATE, names: ARRAY<STRING>>>",
}


class Case(NamedTuple):
    """A field's JSON text, with its exact value or the reason code."""

    column: str
    json_text: str
    value: Any = None
    reason: str | None = None


def good(column: str, json_text: str, value: Any) -> Case:
    return Case(column, json_text, value)


def bad(reason: str, column: str, *json_texts: str) -> list[Case]:
    return [Case(column, text, None, reason) for text in json_texts]


def exactly(column: str, make: Callable[[str], Any], values: Mapping[str, str]) -> list[Case]:
    """Valid JSON texts of one column, each with its value."""
    return [good(column, json_text, make(value)) for json_text, value in values.items()]


def null(*columns: str) -> list[Case]:
    return [good(column, "null", None) for column in columns]


def quoted(*texts: str) -> list[str]:
    return [f'"{text}"' for text in texts]


def whole_numbers() -> list[Case]:
    cases: list[Case] = []
    for column, bits in (("tiny", 8), ("small", 16), ("whole", 32), ("big", 64)):
        least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        cases += [good(column, str(number), number) for number in (0, least, greatest)] + [good(column, "-0", 0)]
        beyond = [least - 1, greatest + 1, 2 * greatest + 1, 2 * greatest + 2, 10**39]
        cases += bad("number_out_of_range", column, *map(str, beyond))
        cases += bad("wrong_type", column, '"5"', "5.0", "5.5", "5e0", "5.00000000000000000001", "true", "[5]", '{"a":5}', '""', '"x"')
        cases += bad("malformed_json", column, "05", "+5", "0x5", "5_0")
    return [*cases, *bad("number_out_of_range", "tiny", "200", "-200")]


def decimals() -> list[Case]:
    nines, most = "9" * 38, f"{'9' * 16}.99"
    money = {"0.1": "0.10", "-0": "0.00", "12.5000": "12.50", '"12.50"': "12.50", '"-12.5"': "-12.50", most: most, f"-{most}": f"-{most}"}
    money[f'"0.10{"0" * 40}"'] = "0.10"
    return [
        *exactly("money", Decimal, money),
        *exactly("count", Decimal, {nines: nines, f"-{nines}": f"-{nines}", f'"{nines}"': nines, "9007199254740993": "9007199254740993"}),
        *exactly("share", Decimal, {f"0.{nines}": f"0.{nines}", f'"0.{nines}"': f"0.{nines}"}),
        *bad("number_too_precise", "money", "12.345", '"12.345"', "0.001", "-0.009"),
        *bad("number_out_of_range", "money", "9" * 17, "-" + "9" * 17, '"' + "9" * 17 + '"', f"{'9' * 17}.00", f'"{"1234567890" * 4}"'),
        *bad("number_out_of_range", "share", "1"),
        *bad("number_not_plain", "money", "1e2", "1E-2", "1e400", '"1e2"', '"1E-2"'),
        # The parser keeps numbers exact only up to 38 digits. A string may have any number of trailing zeros.
        *bad("number_not_plain", "money", "1234567890" * 4, "0.10" + "0" * 40),
        *bad("number_not_plain", "count", "9" * 39),
        *bad("wrong_type", "money", "true", "{}", "[]", "[1]"),
        *bad("wrong_type", "money", *quoted("", "twelve", " 12", "12 ", "+12", "012", ".5", "5.", "1,5", "NaN", "Infinity", "-Infinity")),
        *bad("wrong_type", "money", *quoted("0x10", "1_000", "١٢", "12\\n", "--1", "1e", "1.2.3", "12d", "12f")),
        *bad("malformed_json", "money", "NaN", "Infinity", "-Infinity", "012", ".5", "5.", "-", "--1"),
    ]


def floats() -> list[Case]:
    cases: list[Case] = []
    for column in ("single", "double"):
        cases += [
            good(column, "0.5", 0.5),
            good(column, "-0.0", -0.0),
            good(column, "-0", -0.0),
            good(column, "0", 0.0),
            good(column, "5", 5.0),
            good(column, "1e2", 100.0),
        ]
        cases += bad("number_out_of_range", column, "1e400", "-1e400")
        cases += bad("wrong_type", column, *quoted("NaN", "Infinity", "-Infinity", "+INF", "1.5", "abc", ""), "true", "[]", "{}")
        cases += bad("malformed_json", column, "NaN", "Infinity", "-Infinity", "1.", ".1")
    cases += [good("double", "0.1", 0.1), good("double", "5e-324", 5e-324), good("double", "1e39", 1e39)]
    return [*cases, *bad("number_out_of_range", "single", "1e39")]


def times() -> list[Case]:
    moments = {"2024-05-01T10:00:00Z": "2024-05-01 10:00:00", "2024-02-29T00:00:00Z": "2024-02-29 00:00:00"}
    moments |= {f"2024-05-01T10:00:00.{digits}Z": "2024-05-01 10:00:00.123456" for digits in ("123456", "123456000")}
    moments |= {"2024-05-01T10:00:00.1Z": "2024-05-01 10:00:00.1", "2024-05-01T10:00:00+02:00": "2024-05-01 08:00:00"}
    moments |= {"2024-05-01 10:00:00-18:00": "2024-05-02 04:00:00", "0001-01-01T00:00:00Z": "0001-01-01 00:00:00"}
    moments |= {"9999-12-31T23:59:59.999999Z": "9999-12-31 23:59:59.999999"}
    return [
        *(good("at", f'"{text}"', value) for text, value in moments.items()),
        good("local", '"2024-05-01T10:00:00.5"', "2024-05-01 10:00:00.5"),
        *(good("day", f'"{day}"', day) for day in ("2024-02-29", "0001-01-01", "9999-12-31")),
        *null("at", "local", "day"),
        *bad("bad_timestamp", "at", *quoted("2024-05-01T10:00:00", "2024-05-01T10:00Z", "2024-05-01", "10:00:00Z", "12:30", "")),
        *bad("bad_timestamp", "at", '"2024-05-01T10:00:00.123456789Z"'),  # 9 digits: the last three are lost in microseconds
        *bad(
            "bad_timestamp", "at", *quoted("2016-12-31T23:59:60Z", "2024-05-01T24:00:00Z", "2024-02-30T10:00:00Z", "2023-02-29T10:00:00Z")
        ),
        *bad(
            "bad_timestamp",
            "at",
            *quoted("0000-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "+10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z"),
        ),
        # Times are stored in UTC, where these fall into the years 0 and 10000.
        *bad("bad_timestamp", "at", *quoted("0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00")),
        *bad("bad_timestamp", "at", *quoted("2024-05-01T10:00:00+02", "2024-05-01T10:00:00+0200", "2024-05-01T10:00:00+18:01")),
        *bad("bad_timestamp", "at", *quoted("2024-05-01T10:00:00+05:75", "2024-05-01T10:00:00+17:60")),
        *bad("bad_timestamp", "at", *quoted("2024-05-01T10:00:00 Europe/Paris", "2024-05-01T10:00:00Z[UTC]", "2024-05-01T10:00:00z")),
        *bad(
            "bad_timestamp",
            "at",
            *quoted(" 2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z ", "2024-05-01T10:00:00Z\\n", "2024-5-1T10:00:00Z"),
        ),
        *bad("bad_timestamp", "at", *quoted("now", "today", "yesterday", "epoch"), "1714557600", "true"),
        *bad("bad_timestamp", "at", "{}", "[]"),
        *bad(
            "bad_timestamp", "local", *quoted("2024-05-01T10:00:00Z", "2024-05-01T10:00:00+02:00", "2024-05-01T10:00:00\\n", "2024-05-01")
        ),
        *bad("bad_timestamp", "local", *quoted("0000-01-01T00:00:00", "2024-05-01T10:00:60", "now"), "1714557600"),
        *bad("bad_date", "day", *quoted("2024-02-30", "2024-5-1", "0000-01-01", "10000-01-01", "2024-05-01T00:00:00Z", "today", "")),
        *bad("bad_date", "day", *quoted("2024-05-01 ", " 2024-05-01", "2024-05-01\\n", "20240501", "2024"), "19000"),
    ]


def texts() -> list[Case]:
    kept = ["5", "true", "null", "{}", "[1]", "NaN", "-Infinity", '"-Infinity"', "", " a ", '], "z":0}']
    kept += ["\0", "a\n\tb\\", "caf\u00e9", "cafe\u0301", "\U0001f600", "\\ud800"]
    return [
        *(good("text", json.dumps(text), text) for text in kept),
        *null("text"),
        *bad("wrong_type", "text", "5", "5.0", "-1", "1e400", "9" * 44, "true", "false", '{"a":1}', "[]", '["a"]', "{}"),
        *bad("wrong_type", "text", '{"a":1,"a":2}', '[{"a":1,"a":2}]'),
        *bad("malformed_json", "text", '"\t"', '"\\x"', "NaN", "'a'", "a"),
        # Unpaired surrogates: Java would write '?', and two different ids would become equal.
        *bad("not_utf8", "text", *quoted("\\ud800", "\\udc00", "\\ude00\\ud83d", "\\uD83Dx", "\\\\\\ud83d", "\\ud83d\\ud83d\\ude00")),
        # Two surrogates with an escaped backslash between them are not a pair.
        *bad("not_utf8", "text", *quoted("\\ud83d\\\\\\ude00", "\\ud83d\\\\\\\\\\ude00")),
        good("flag", "true", True),
        good("flag", "false", False),
        *bad("wrong_type", "flag", '"true"', "1", "0", '""', "[]"),
        *bad("malformed_json", "flag", "TRUE", "True", "yes"),
        *(good("bytes", json.dumps(b64encode(raw).decode()), raw) for raw in (b"\x01\x02\x03", b"\x01\x02", b"\xfb\xff", b"")),
        *bad("wrong_type", "bytes", *quoted("AQI", "*", "AQ ID", "-_8=", "AQID=="), "5", "true", "[1]", "{}"),
    ]


def nested() -> list[Case]:
    row = Row("zip", "fee", "city")
    stop = Row("on", "names")
    return [
        good("address", '{"zip":1,"fee":"1.20","city":"5"}', row(1, Decimal("1.20"), "5")),
        good("address", '{"zip":1,"country":"not named"}', row(1, None, None)),
        good("address", '{"ZIP":1}', row(None, None, None)),
        good("address", "{}", row(None, None, None)),
        good("address", "null", None),
        *bad("duplicate_key", "address", '{"city":"x","city":"x"}', '{"city":5,"city":"x"}', '{"other":1,"other":2}'),
        *bad("number_too_precise", "address", '{"fee":1.234}'),
        *bad("number_not_plain", "address", '{"fee":1e1}'),
        *bad("wrong_type", "address", "[]", '"x"', "5", '{"zip":"1"}', '{"city":5}', '{"city":{}}', '{"fee":true}'),
        good("sizes", "[1,null,127]", [1, None, 127]),
        good("sizes", "[]", []),
        *bad("number_out_of_range", "sizes", "[128]", "[1,-129]"),
        *bad("wrong_type", "sizes", '["1"]', "[1.5]", "[[1]]", "{}", "5"),
        good("tags", '["a",null,"5"]', ["a", None, "5"]),
        *bad("wrong_type", "tags", '["a",5]', "[true]", '[["a"]]', '"a"'),
        # Unicode line separators may appear unescaped in a JSON string.
        *bad("wrong_type", "tags", '["a",{"b":"\u2028"}]', '[["\u0085"]]', '["a",{"b":1,"b":2}]'),
        good("times", '{"a":null}', {"a": None}),
        good("times", "{}", {}),
        *bad("bad_timestamp", "times", '{"a":"x"}', '{"a":"2024-05-01T10:00:00"}'),
        *bad("duplicate_key", "times", '{"a":null,"a":null}'),
        *bad("wrong_type", "times", "[]", '"x"'),
        good("stops", '[{"on":null,"names":["a",null]},null,{}]', [stop(None, ["a", None]), None, stop(None, None)]),
        good("stops", '[{"on":"2024-05-01"}]', [stop(date(2024, 5, 1), None)]),
        *bad("bad_date", "stops", '[{},{"on":"2024-01-32"}]'),
        *bad("duplicate_key", "stops", '[{},{"on":null,"on":"2024-05-01"}]'),
        *bad("wrong_type", "stops", '[{"names":[5]}]', '[{"names":{}}]', "[5]", "{}"),
        good("stops", "[]", []),
        good("stops", '[{"names":[]}]', [stop(None, [])]),
    ]


CASES = [*whole_numbers(), *decimals(), *floats(), *times(), *texts(), *nested()]


# One contract per group: a single contract with all columns would take longer to compile than all groups together.
GROUPS = (
    ("tiny", "small", "whole", "big"),
    ("single", "double", "money", "count", "share"),
    ("day", "at", "local"),
    ("flag", "text", "bytes"),
    ("address", "sizes", "tags", "times", "stops"),
)


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> list[Row]:
    """All cases decoded, one record per case."""
    found: dict[int, Row] = {}
    for group in GROUPS:
        chosen = {number: case for number, case in enumerate(CASES) if case.column in group}
        values = [event(**{case.column: case.json_text}) for case in chosen.values()]
        rows = plain(spark, contract({name: COLUMNS[name] for name in group}), values)
        found.update(zip(chosen, rows, strict=True))
    return [found[number] for number in range(len(CASES))]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{c.column}-{ascii(c.json_text)[1:-1][:40]}" for c in CASES])
def test_a_json_value_becomes_exactly_the_columns_value_or_goes_to_quarantine(outcomes: list[Row], number: int) -> None:
    """I5: a value that cannot be decoded is not dropped, rounded or guessed. The detail names the column."""
    case, row = CASES[number], outcomes[number]
    if case.reason is not None:
        assert row["__reason"] == case.reason
        whole_record = case.reason in ("malformed_json", "not_utf8")
        assert whole_record or row["__detail"] == case.column
        return
    assert row["__reason"] is None, row["__detail"]
    assert row["id"] == "e"
    value = bytes(row[case.column]) if isinstance(row[case.column], bytearray) else row[case.column]
    assert value == case.value
    assert str(value) == str(case.value)  # -0.0 is not 0.0, 12.5 is not 12.50
