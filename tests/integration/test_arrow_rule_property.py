"""Row rules on Arrow batches give exactly the verdicts of Spark, for random predicates and rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlglot
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from sqlglot.errors import SqlglotError

from ingest.contract.row_rule import rule_problems
from ingest.contract.sql_type import to_arrow
from ingest.contract.sql_type_parser import parse_type
from ingest.decode import decoder
from ingest.decode.arrow_rule import compile_rule
from ingest.decode.rule_compiler import Compiler
from ingest.decode.rule_expression import ArrowRule, holds
from ingest.decode.rule_functions import RAISING as RAISING_FUNCTIONS
from ingest.decode.rule_refusal import RuleRaises, Untranslatable
from tests.integration.generated_rules import COLUMNS, SCHEMA, Text, batch
from tests.integration.interpreted import interpreted

pytestmark = pytest.mark.integration

ROWS = 60
# Parts of random patterns, and the characters of the texts.
PATTERN_PARTS = [*"ab.^$|()*+?{}[]-é😀", "\n", "??", "{2}", "{1,}", "{0,2}", "{3,1}", "[ab]", "[^a]", "[^^]", "[a-]", "[.$]", "[]", "[é-ü]"]
PATTERN_PARTS += ["[\r\n]", "[^\r]", "(a|b)", "(b)", "&&", "$|", "a$", "^a", "[^b]$", "$", "a", "b"]
PATTERN_TEXT = "aabb\n\r\u0085\u2028éü😀^$.-]{"
# Blocks with letters of Unicode 15 to 17.
NEWER = (*range(0x1C80, 0x1C90), *range(0xA7C0, 0xA7F0), *range(0x10D50, 0x10D90), *range(0x16EA0, 0x16EE0))


def _analysed(frame: DataFrame, check: str) -> bool:
    try:
        frame.select(decoder.holds(check)).schema  # noqa: B018 - Spark analyses the plan here
    except (PySparkException, Py4JJavaError):  # inside of a lambda a syntax error is an internal one
        return False
    return True


def _translated(frame: DataFrame, random: Random, number: int) -> Iterator[tuple[str, ArrowRule]]:
    """Rules that both sides accept. Contracts refuse what Spark cannot analyse."""
    while number:
        check = Text(random).predicate(random.choice((0, 1, 1, 2, 3)))
        try:
            rule = compile_rule(check, COLUMNS)
        except (Untranslatable, RuleRaises):
            continue
        if not rule_problems(check, dict(COLUMNS)) and _analysed(frame, check):
            number -= 1
            yield check, rule


def differences(spark: SparkSession, seed: int, number: int) -> list[str]:
    """Each rule and row where Arrow's verdict is not Spark's."""
    random = Random(seed)
    dirty, clean = batch(random, ROWS)
    frame = spark.createDataFrame(pa.Table.from_batches([clean])).coalesce(1)
    rules = list(_translated(frame, random, number))
    wanted = frame.select(*(decoder.holds(check).alias(f"r{at}") for at, (check, _) in enumerate(rules))).toArrow()
    found = []
    for at, (check, rule) in enumerate(rules):
        ours, sparks = holds(rule, dirty).to_pylist(), wanted.column(f"r{at}").to_pylist()
        rows = [row for row in range(ROWS) if ours[row] is not sparks[row]]
        if rows:
            values = {field.name: clean.column(field.name)[rows[0]].as_py() for field in rule.columns}
            found.append(f"{check}: {len(rows)} rows, first {values}: Arrow {ours[rows[0]]}, Spark {sparks[rows[0]]}")
    return found


@settings(max_examples=2, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_the_verdicts_are_those_of_spark(spark: SparkSession, seed: int) -> None:
    with interpreted(spark):
        assert differences(spark, seed, 25) == []


@pytest.mark.slow
@settings(max_examples=40, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_thousands_of_verdicts_are_those_of_spark(spark: SparkSession, seed: int) -> None:
    with interpreted(spark):
        assert differences(spark, seed, 100) == []


@pytest.mark.slow
@settings(max_examples=8, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_the_verdicts_are_those_of_compiled_plans(spark: SparkSession, seed: int) -> None:
    assert differences(spark, seed, 40) == []


@settings(max_examples=2, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_the_types_of_expressions_are_those_of_spark(spark: SparkSession, seed: int) -> None:
    """A type decides where an operation that follows overflows, rounds or is refused."""
    random = Random(seed)
    _, clean = batch(random, 1)
    frame = spark.createDataFrame(pa.Table.from_batches([clean]))
    compared = 0
    for _ in range(120):
        text = Text(random).number(random.choice((1, 1, 2, 3)))
        try:
            ours = Compiler({field.name: field.type for field in SCHEMA}).any(sqlglot.parse_one(text, read="spark")).type
            sparks = to_arrow_type(frame.selectExpr(text).schema[0].dataType)
        except (Untranslatable, RuleRaises, SqlglotError, PySparkException):
            continue
        compared += 1
        assert ours == sparks, text
    assert compared > 50


def pattern_differences(spark: SparkSession, seed: int, number: int) -> list[str]:
    """Each random pattern that is translated inexactly. Those that are refused as raising are no patterns in Java."""
    random = Random(seed)
    java: Any = spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    texts = pa.array(["".join(random.choices(PATTERN_TEXT, k=random.randint(0, 5))) for _ in range(80)])
    patterns: dict[str, ArrowRule] = {}
    while len(patterns) < number:
        pattern = "".join(random.choices(PATTERN_PARTS, k=random.randint(1, 6)))
        try:
            patterns[pattern] = compile_rule(f"s RLIKE '{pattern}'", {"s": COLUMNS["text"]})
        except Untranslatable:
            continue
        except RuleRaises:
            with pytest.raises((Py4JJavaError, PySparkException)):
                java.compile(pattern)
    rows = pa.RecordBatch.from_arrays([texts], ["s"])
    frame = spark.createDataFrame(pa.Table.from_batches([rows])).coalesce(1)
    sparks = frame.select(*(decoder.holds(f"s RLIKE '{pattern}'").alias(f"p{at}") for at, pattern in enumerate(patterns))).toArrow()
    found = []
    for at, (pattern, rule) in enumerate(patterns.items()):
        verdicts = zip(texts.to_pylist(), holds(rule, rows).to_pylist(), sparks.column(at).to_pylist(), strict=True)
        found += [f"{pattern!r} on {text!r}: Arrow {ours}, Spark {wanted}" for text, ours, wanted in verdicts if ours is not wanted]
    return found


@settings(max_examples=2, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_patterns_match_as_in_java(spark: SparkSession, seed: int) -> None:
    with interpreted(spark):
        assert pattern_differences(spark, seed, 60) == []


@pytest.mark.slow
@settings(max_examples=20, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_thousands_of_patterns_match_as_in_java(spark: SparkSession, seed: int) -> None:
    with interpreted(spark):
        assert pattern_differences(spark, seed, 200) == []


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_upper_and_lower_know_the_characters_that_spark_knows(spark: SparkSession, every: bool) -> None:
    """Beyond ASCII Python maps them. Spark's ICU is of a newer Unicode. The final sigma depends on the letters around."""
    random = Random(5)
    letters = [chr(code) for code in range(0x110000 if every else 0x20000) if not 0xD800 <= code < 0xE000]
    if not every:
        letters = [letter for letter in letters if letter.upper() != letter or letter.lower() != letter or ord(letter) in NEWER]
    words = ["".join(random.choices("ΣσςαA.:'1 \u00ad\u0301-", k=random.randint(1, 6))) for _ in range(20_000 if every else 2_000)]
    text = pa.array(letters + words)
    frame = spark.createDataFrame(pa.Table.from_arrays([text], ["text"])).coalesce(1)
    with interpreted(spark):
        sparks = frame.selectExpr("upper(text) AS upper", "lower(text) AS lower").toArrow()
    for name in ("upper", "lower"):
        batch = pa.RecordBatch.from_arrays([text, sparks.column(name).combine_chunks()], ["text", "code"])
        right = holds(compile_rule(f"{name}(text) = code", COLUMNS), batch)
        assert batch.filter(pc.invert(right)).column("text").to_pylist() == [], name


RAISING = """
regexp_count(s, concat('(', s)); regexp_extract(s, concat('(', s)); regexp_extract_all(s, concat('(', s)); regexp_instr(s, concat('(', s));
regexp_replace(s, concat('(', s), ''); regexp_substr(s, concat('(', s)); split(s, concat('(', s)); regexp(s, concat('(', s));
s RLIKE concat('(', s); to_number(s, '999'); to_char(at, 'fff{'); to_varchar(at, 'fff{'); to_binary(s, 'hex'); format_string('%d', s);
printf('%q', s); element_at(a, 0); try_element_at(a, n - n); array_insert(a, n - n, 1); sequence(1, n, -1); url_decode(concat('%', s));
unbase64(s); parse_json(concat('{', s)); xpath_int(s, 'a'); xpath(s, 'a'); map(s, 1, s, 2); map_from_arrays(array(s, s), array(1, 2));
map_from_entries(array(struct(s, 1), struct(s, 2))); map_concat(m, m); str_to_map(concat('a:1,a:2', s));
transform_keys(m, (k, v) -> CAST(NULL AS INT)); slice(a, 0, 1); bit_get(n, 99); getbit(n, n); from_utc_timestamp(at, s);
to_utc_timestamp(at, s); convert_timezone(s, 'UTC', at); encode(s, s); decode(CAST(s AS BINARY), s); timestamp_seconds(b);
timestamp_millis(b); add_months(DATE '2024-01-01', n); make_dt_interval(n, n, n, n); timestampadd(YEAR, n, at); raise_error(s);
assert_true(n < 0); validate_utf8(CAST(X'ff' AS STRING)); aes_decrypt(CAST(s AS BINARY), s); to_date(s, concat('q', s));
to_timestamp(s, concat('{', '')); to_timestamp_ltz(s, concat('{', '')); to_timestamp_ntz(s, concat('{', ''));
try_to_timestamp(s, concat('{', '')); to_unix_timestamp(s, concat('{', '')); unix_timestamp(s, concat('{', '')); -w
"""
UNBOUNDED = {"repeat", "lpad", "rpad", "space", "array_repeat"}  # a test cannot run out of memory


@pytest.mark.slow
def test_functions_that_are_refused_as_raising_do_raise(spark: SparkSession) -> None:
    given = {"n": ("INT", 2**31 - 1), "s": ("STRING", "x"), "a": ("ARRAY<INT>", [1]), "m": ("MAP<STRING, INT>", [("k", 1)])}
    given |= {"at": ("TIMESTAMP", datetime(2024, 1, 1, tzinfo=UTC)), "b": ("BIGINT", 2**63 - 1), "w": ("DECIMAL(38,0)", Decimal("9" * 38))}
    columns = {name: parse_type(kind) for name, (kind, _) in given.items()}
    schema = pa.schema([(name, to_arrow(kind)) for name, kind in columns.items()])
    frame = spark.createDataFrame(pa.Table.from_pylist([{name: each for name, (_, each) in given.items()}], schema))
    seen = set()
    for text in (each.strip() for each in RAISING.split(";")):
        with pytest.raises(RuleRaises):
            compile_rule(f"({text}) IS NULL", columns)
        with pytest.raises((PySparkException, Py4JJavaError)) as caught, interpreted(spark):
            frame.selectExpr(f"CAST(({text}) AS STRING)" if "transform_keys" not in text and "xpath(" not in text else text).toArrow()
        assert not isinstance(caught.value, AnalysisException), text
        seen.add(text.partition("(")[0])
    assert RAISING_FUNCTIONS.keys() - seen - UNBOUNDED <= {name for name in RAISING_FUNCTIONS if name.startswith("xpath_")}
