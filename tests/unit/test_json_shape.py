"""The shape of a JSON text that is read at once: never too wide, since nothing looks at such a text a second time.

Python's `re` knows the same syntax but for the end of the text (`\\z` in Java). Texts that match are compared with Python's own reader.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from ingest.stream.json_shape import in_any_order, in_order

pytestmark = pytest.mark.unit

COLUMNS: list[tuple[str, T.DataType]] = [
    ("id", T.StringType()),
    ("n", T.IntegerType()),
    ("money", T.DecimalType(6, 2)),
    ("ok", T.BooleanType()),
    ("x", T.DoubleType()),
    ("at", T.TimestampType()),
    ("day", T.DateType()),
    ("tags", T.ArrayType(T.StringType())),
    ("labels", T.MapType(T.StringType(), T.IntegerType())),
    ("to", T.StructType([T.StructField("zip", T.ShortType()), T.StructField("city", T.StringType())])),
]


def matches(pattern: str | None, text: str) -> bool:
    assert pattern is not None
    return re.search(pattern.replace(r"\z", r"\Z"), text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"id":"a"}',
        '{"id": "a", "n": -5, "money": 12.5, "ok": true}',
        '{"id":null,"n":0,"money":"1234.56","x":-0.5}',
        '{"id":"é \\u00e9 \\n \\" \\\\","tags":["a",null,"]"],"to":{"city":"x","zip":1}}',
        '{"at":"2026-01-31T08:00:00.123Z","day":"2026-02-31"}',
        '{"tags":[],"labels":{},"to":{}}',
        '{"labels":{"a":1,"b \\"":null}}',
    ],
)
def test_what_producers_write_has_a_shape(text: str) -> None:
    assert matches(in_order(COLUMNS), text)
    assert matches(in_any_order(COLUMNS, others=False), text)


# Values that no column of this name may have, and texts that are no object as producers write them.
WRONG = {
    "id": ["5", '{"a":1}', '"\\ud83d"', '"\\ud83d\\ude00"', '"\\x"'],
    "n": ['"5"', "5.0", "05", "+5", "1234567890"],
    "money": ["1.255", "12345", "1e2", '"1,5"', ".5", "5."],
    "ok": ['"true"', "1"],
    "x": ['"1.5"', "1e999"],
    "at": ['"12:30"', "12345", '"2026-01-31T08:00:00"', '"0000-01-31T08:00:00Z"'],
    "tags": ['["a",5]', '["a",]', '["a"', '[["a"]]'],
    "labels": ['{"a":"1"}', '{"a":1,}', "{a:1}", "[]"],
    "to": ['{"zip":99999}', '{"street":"x"}', "[]"],
}
SHAPELESS = ["", "null", "[]", ' {"id":"a"}', '{"id":"a"} ', '{"id":"a"}\n', '{"id":"a"}{"n":1}', '{"id":"a"', '{"id":"a",}']
SHAPELESS += ['{"id":"a" ,"n":1}', '{"id" :"a"}', '{"\\u0069d":"a"}']


@pytest.mark.parametrize("text", [*SHAPELESS, *(f'{{"{name}":{value}}}' for name, values in WRONG.items() for value in values)])
def test_what_needs_a_second_look_has_none(text: str) -> None:
    for pattern in (in_order(COLUMNS), in_any_order(COLUMNS, others=False), in_any_order(COLUMNS, others=True)):
        assert not matches(pattern, text)


def test_a_field_given_twice_or_out_of_order_is_not_in_order() -> None:
    for text in ('{"id":"a","id":"a"}', '{"n":1,"id":"a"}'):
        assert not matches(in_order(COLUMNS), text)
        assert matches(in_any_order(COLUMNS, others=False), text), "the keys are counted then"


def test_fields_that_are_no_column_may_be_scalars_and_never_hide_a_column() -> None:
    others = in_any_order(COLUMNS, others=True)
    assert matches(others, '{"id":"a","source":"web","v":7,"beta":false,"w":null}')
    assert not matches(in_any_order(COLUMNS, others=False), '{"id":"a","source":"web"}')
    for text in ('{"id":"a","more":{"n":1}}', '{"id":"a","more":[1]}', '{"id":"a","n":"x"}', '{"id":5}'):
        assert not matches(others, text)
    assert matches(others, '{"idx":5,"nn":"x"}')


@pytest.mark.parametrize(
    "kind",
    [
        T.BinaryType(),
        T.MapType(T.StringType(), T.DateType()),
        T.ArrayType(T.MapType(T.StringType(), T.IntegerType())),
        T.ArrayType(T.DateType()),
        T.StructType([T.StructField("at", T.TimestampType())]),
        T.StructType([T.StructField("n", T.IntegerType(), nullable=False)]),
    ],
)
def test_types_whose_faults_the_parsed_value_does_not_show_have_no_shape(kind: T.DataType) -> None:
    assert in_order([("a", kind)]) is None
    assert in_any_order([("a", kind)], others=True) is None


TOKENS = st.one_of(
    st.text(max_size=8).map(json.dumps),
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.sampled_from(
        ["true", "false", "null", "[]", "{}", '["a"]', '{"zip":5}', '{"a":5}', "1.50", '"1.5"', '"2026-01-31T08:00:00Z"', '"2026-01-31"']
    ),
)


@settings(max_examples=400)
@given(fields=st.lists(st.tuples(st.sampled_from([name for name, _ in COLUMNS] + ["other"]), TOKENS), max_size=5))
def test_a_text_with_a_shape_is_json_of_the_right_types(fields: list[tuple[str, str]]) -> None:
    text = "{" + ",".join(f'"{name}":{token}' for name, token in fields) + "}"
    if not matches(in_any_order(COLUMNS, others=True), text):
        return
    right: dict[str, Any] = {"id": str, "n": int, "ok": bool, "at": str, "day": str, "tags": list, "labels": dict, "to": dict}
    for name, value in json.loads(text).items():
        if value is not None and name in right:
            assert type(value) is right[name], text
