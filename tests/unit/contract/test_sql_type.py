"""Column types: canonical text, round trips and refused types."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark

from ingest.contract.sql_type import Array, Atomic, Decimal, Field, Map, SqlType, Struct, TypeProblem, ddl, text_of, to_delta, to_spark
from ingest.contract.sql_type_parser import parse_type
from ingest.contract.sql_type_words import ATOMIC

COMMENTS = st.none() | st.text(st.characters(blacklist_categories=["Cs"]), max_size=12) | st.sampled_from(["it's", "a\\b", "\\n\n\t\r'"])
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.builds(Decimal, st.just(p), st.integers(0, p)))
SIMPLE: st.SearchStrategy[SqlType] = st.sampled_from(sorted(ATOMIC)).map(Atomic) | DECIMALS


def structs(inner: st.SearchStrategy[SqlType], nullable: st.SearchStrategy[bool]) -> st.SearchStrategy[SqlType]:
    fields = st.builds(Field, NAMES, inner, nullable, COMMENTS)
    return st.lists(fields, min_size=1, max_size=4, unique_by=lambda f: f.name.lower()).map(lambda fs: Struct(tuple(fs)))


def nested(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    return inner.map(Array) | inner.map(Map) | structs(inner, st.just(True))


TYPES = st.recursive(SIMPLE, nested, max_leaves=8)


@settings(max_examples=200)
@given(TYPES | structs(TYPES, st.booleans()))
def test_the_canonical_text_of_any_type_parses_back_to_that_type(sql_type: SqlType) -> None:
    text = ddl(sql_type)
    assert parse_type(text) == sql_type
    assert ddl(parse_type(text)) == text


@settings(max_examples=100)
@given(TYPES)
def test_spark_has_the_same_name_for_each_type(sql_type: SqlType) -> None:
    without_space = ddl(sql_type, comments=False).replace(" ", "").lower()
    assert to_spark(sql_type).simpleString().lower() == without_space


@settings(max_examples=100)
@given(TYPES)
def test_the_delta_schema_stores_a_type_as_spark_does(sql_type: SqlType) -> None:
    assert to_delta(sql_type) == to_spark(sql_type).jsonValue()
    assert text_of(to_delta(sql_type)) == to_spark(sql_type).simpleString()


@pytest.mark.parametrize(
    "written, canonical",
    [
        ("string", "STRING"),
        (" integer ", "INT"),
        ("long", "BIGINT"),
        ("numeric( 12 , 2 )", "DECIMAL(12,2)"),
        ("decimal(5)", "DECIMAL(5,0)"),
        ("timestamp_ltz", "TIMESTAMP"),
        ("map<string,array<real>>", "MAP<STRING, ARRAY<FLOAT>>"),
        ("struct<a int not null comment 'x', b:date>", "STRUCT<a: INT NOT NULL COMMENT 'x', b: DATE>"),
    ],
)
def test_every_spelling_of_a_type_has_one_canonical_text(written: str, canonical: str) -> None:
    assert ddl(parse_type(written)) == canonical


def test_comment_and_not_null_of_a_field_reach_spark() -> None:
    made = to_spark(parse_type("STRUCT<a: INT NOT NULL COMMENT 'it\\'s'>"))
    assert made == spark.StructType([spark.StructField("a", spark.IntegerType(), False, {"comment": "it's"})])


@pytest.mark.parametrize(
    "text, found, expected",
    [
        ("CHAR(3)", "CHAR is not supported", "pad"),
        ("VARCHAR(10)", "VARCHAR is not supported", "STRING, with a rule"),
        ("INTERVAL DAY", "INTERVAL is not supported", "BIGINT"),
        ("VOID", "VOID is not supported", "never hold a value"),
        ("VARIANT", "VARIANT is not supported", "STRING with the JSON text"),
        ("STRING COLLATE UTF8_LCASE", "has a collation", "STRING alone"),
        ("TEXT", "TEXT is not supported", "STRING"),
        ("STRNG", "not a type", "did you mean STRING?"),
        ("", "ends too early", "one of BOOLEAN"),
        ("INT(3)", "has '('", "nothing more"),
        ("INT INT", "has 'INT'", "nothing more"),
        ("DECIMAL", "without cents", "DECIMAL(p,s)"),
        ("DECIMAL(39,2)", "does not exist", "1 <= p <= 38"),
        ("DECIMAL(4,5)", "does not exist", "0 <= s <= p"),
        ("DECIMAL(0,0)", "does not exist", "1 <= p <= 38"),
        ("DECIMAL(a,2)", "has 'a'", "a number of digits"),
        ("MAP<INT, STRING>", "keys of type INT", "MAP<STRING, ...>"),
        ("ARRAY<STRING", "ends too early", "'>'"),
        ("ARRAY STRING", "has 'STRING'", "'<'"),
        ("STRUCT<>", "no field", "at least one field"),
        ("STRUCT<a: INT,>", "has '>'", "a field's name"),
        ("STRUCT<a: INT, A: INT>", "'a' and 'A'", "more than their case"),
        ("STRUCT<a-b: INT>", "cannot be read at '-b", "a type such as"),
        ("ARRAY<STRUCT<a: INT NOT NULL>>", "inside an ARRAY or MAP", "write a rule"),
        ("STRUCT<a: INT COMMENT 'a\\x'>", "has '\\\\x'", r"one of \\"),
        ("ARRAY<" * 40 + "INT" + ">" * 40, "deeper than 32", "at most 32"),
    ],
)
def test_an_unsupported_type_is_refused_with_the_reason(text: str, found: str, expected: str) -> None:
    with pytest.raises(TypeProblem) as caught:
        parse_type(text)
    assert found in caught.value.found and expected in caught.value.expected, caught.value
