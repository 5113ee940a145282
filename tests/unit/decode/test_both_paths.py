"""The typed decoder and the exact reader agree: whichever of them reads a record, it becomes the same row, or gets the same reason (I5)."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ingest.decode.arrow_json import BatchDecoder, Plan
from ingest.decode.exact_json import DecodeFault, ExactReader

RECORDS = 300
ZONED, UNZONED = pa.timestamp("us", "UTC"), pa.timestamp("us")
NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "-0e1",
    "0.5",
    "5",
    "-5",
    "1e2",
    "1E-2",
    "127",
    "128",
    "-129",
    "32768",
    "2147483648",
    "1e400",
    "-1e-400",
    "NaN",
]
NUMBERS += ["9223372036854775807", "9223372036854775808", "18446744073709551616", "12345678901234567890123", "9007199254740993"]
NUMBERS += ["16777217", "1.000000059604644775390625", "3.4028236e38", "1e-46", "12.50", "12.505", "12.5000", '"12.5"', '"-0"', "05", "-"]
ZONES = [
    "Z",
    "z",
    "",
    "+00:00",
    "-00:00",
    "+05:30",
    "+05:59",
    "+05:60",
    "+05:75",
    "-17:59",
    "+17:60",
    "+18:00",
    "-18:01",
    "+19:00",
    "+0530",
]
CLOCKS = ["10:00:00", "00:00:00", "23:59:59", "24:00:00", "23:59:60", "23:60:00", "10:00", "9:00:00", "10:00:00.5", "10:00:00.1234560"]
CLOCKS += ["10:00:00.1234567", "10:00:00."]
DAYS = [
    "2024-02-29",
    "2023-02-29",
    "2024-04-31",
    "2024-13-01",
    "0001-01-01",
    "0000-01-01",
    "9999-12-31",
    "2024-5-1",
    "1900-02-29",
    "2000-02-29",
]
KEYS = ['"k"', '"\\u006b"', '"K"', '"k" ', '"a\\":"', '""']
STRUCT = pa.struct([("k", pa.int32()), ("K", pa.float64())])

Maker = Callable[[Random], str]


def one_of(texts: Sequence[str]) -> Maker:
    return lambda random: random.choice(texts)


def a_time(random: Random) -> str:
    return f'"{random.choice(DAYS[:1] * 8 + DAYS)}{random.choice("TTT ")}{random.choice(CLOCKS[:1] * 8 + CLOCKS)}{random.choice(ZONES)}"'


def a_text(random: Random) -> str:
    return '"' + "".join(random.choices(['\\"', "\\\\", ":", '\\":', "a", "-0,", "\\ud83d\\ude00", "\\ud83d", "é", "\\u0000"], k=3)) + '"'


def several(item: Maker) -> Maker:
    return lambda random: f"[{','.join(item(random) for _ in range(random.randrange(4)))}]"


def an_object(item: Maker) -> Maker:
    def make(random: Random) -> str:
        return f"{{{','.join(f'{random.choice(KEYS)}:{item(random)}' for _ in range(random.randrange(4)))}}}"

    return make


A_NUMBER, A_DAY = one_of(NUMBERS), one_of([f'"{day}"' for day in DAYS])
KINDS: dict[str, tuple[pa.DataType, Maker]] = {
    **{str(kind): (kind, A_NUMBER) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())},
    "decimal": (pa.decimal128(18, 2), A_NUMBER),
    "boolean": (pa.bool_(), one_of(["true", "false", "1", '"true"'])),
    "string": (pa.string(), a_text),
    "binary": (pa.binary(), one_of(['"AQID"', '"AQ=="', '"AQ"', '"-_8="', "5"])),
    "date": (pa.date32(), A_DAY),
    "timestamp": (ZONED, a_time),
    "timestamp_ntz": (UNZONED, a_time),
    "array": (pa.list_(pa.float64()), several(A_NUMBER)),
    "map": (pa.map_(pa.string(), pa.float32()), an_object(A_NUMBER)),
    "struct": (STRUCT, an_object(A_NUMBER)),
    "array of structs": (pa.list_(STRUCT), several(an_object(A_NUMBER))),
    "map of structs": (pa.map_(pa.string(), STRUCT), an_object(an_object(A_NUMBER))),
}
NULL_OR_FOREIGN = ["null", "{}", "[]", '"x"', "0", "true"]


def by_both(kind: pa.DataType, texts: Sequence[str], unknown: str = "ignore") -> list[tuple[Any, Any]]:
    """What a batch makes of each text as the field `x`, and what the exact reader makes of it."""
    schema = pa.schema([("x", kind)])
    values = [f'{{"x":{text}}}'.encode() for text in texts]
    records = pa.RecordBatch.from_arrays([pa.array(values), pa.array(range(len(values)))], names=["__value", "at"])
    found = [row for batch in BatchDecoder(Plan(schema, (), unknown)).decode([records]) for row in batch.to_pylist()]
    reader = ExactReader(schema, (), unknown)
    ordered = sorted(found, key=lambda row: row["at"])
    return [
        ((row["x"], row["__reason"], row["__detail"]), _exactly(reader, kind, value)) for row, value in zip(ordered, values, strict=True)
    ]


def _exactly(reader: ExactReader, kind: pa.DataType, value: bytes) -> Any:
    try:
        return (pa.array([reader.read(value)["x"]], kind)[0].as_py(), None, None)
    except DecodeFault as fault:
        return (None, fault.code, fault.detail)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=5, phases=[Phase.generate], deadline=None)
@given(seed=st.integers(0, 2**32))
def test_both_paths_make_the_same_of_every_value(name: str, seed: int) -> None:
    """I5: repr, because -0.0 equals 0.0."""
    random = Random(seed)
    kind, make = KINDS[name]
    texts = [random.choice(NULL_OR_FOREIGN) if random.random() < 0.1 else make(random) for _ in range(RECORDS)]
    differences = [(text, pair) for text, pair in zip(texts, by_both(kind, texts), strict=True) if repr(pair[0]) != repr(pair[1])]
    assert differences == []


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_a_negative_zero_keeps_its_sign_however_it_is_written(kind: pa.DataType) -> None:
    for text in ("-0", "-0.0", "-0e1", "-0 ", "-0\n"):
        ((found, _),) = by_both(kind, [text])
        assert repr(found) == "(-0.0, None, None)", text
    ((nested, _),) = by_both(pa.list_(kind), ["[-0,0]"])
    assert repr(nested[0]) == "[-0.0, 0.0]"


@pytest.mark.parametrize("zone", ["+05:60", "+05:75", "-05:99", "+17:60", "+18:01", "+24:00"])
def test_a_zone_that_no_clock_has_is_refused(zone: str) -> None:
    """+05:75 is not +06:15: nothing is guessed (I5)."""
    ((found, _),) = by_both(ZONED, [f'"2024-05-01T10:00:00{zone}"'])
    assert found == (None, "bad_timestamp", "x")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (STRUCT, '{"k":1,"k":2}'),
        (STRUCT, '{"k":1,"k":1}'),
        (STRUCT, '{"k":"no number","\\u006b":2}'),
        (STRUCT, '{"other":1,"other":1}'),
        (pa.list_(STRUCT), '[{"k":1},{"k":1,"k":2}]'),
        (pa.map_(pa.string(), STRUCT), '{"a":{"k":1,"k":2}}'),
        (pa.struct([("s", STRUCT)]), '{"s":{"k":1,"k":2}}'),
        (pa.map_(pa.string(), pa.int32()), '{"k":1,"k":1}'),
        (pa.list_(pa.map_(pa.string(), pa.int32())), '[{"k":null,"k":null}]'),
    ],
    ids=str,
)
def test_a_key_given_twice_is_refused_at_every_depth(kind: pa.DataType, text: str) -> None:
    """I5: to choose one of the values would be a guess."""
    ((found, exact),) = by_both(kind, [text])
    assert found == exact == (None, "duplicate_key", "x")


def test_a_key_given_twice_inside_an_unknown_field_is_refused_if_the_field_is_kept() -> None:
    value = b'{"x":1,"y":{"z":[{"k":1,"k":2}]}}'
    schema = pa.schema([("x", pa.int32())])
    assert ExactReader(schema, (), "ignore").read(value) == {"x": 1}
    with pytest.raises(DecodeFault) as raised:
        ExactReader(schema, ("x",), "keep").read(value)
    assert (raised.value.code, raised.value.detail, raised.value.event_id) == ("duplicate_key", "y", {"x": 1})


@pytest.mark.parametrize(
    ("mark", "codec", "code", "name"),
    [
        (codecs.BOM_UTF8, "utf-8", "malformed_json", "UTF-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "not_utf8", "UTF-16"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "not_utf8", "UTF-16"),
        (codecs.BOM_UTF32_LE, "utf-32-le", "not_utf8", "UTF-32"),
        (codecs.BOM_UTF32_BE, "utf-32-be", "not_utf8", "UTF-32"),
    ],
)
def test_a_byte_order_mark_is_named(mark: bytes, codec: str, code: str, name: str) -> None:
    with pytest.raises(DecodeFault) as raised:
        ExactReader(pa.schema([("x", pa.int32())]), (), "ignore").read(mark + '{"x":1}'.encode(codec))
    assert (raised.value.code, raised.value.detail) == (code, f"it begins with a byte order mark ({name})")
