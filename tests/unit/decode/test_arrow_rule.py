"""Row rules on Arrow batches: the value of Spark where plain Arrow has another one, and what is refused.

tests/integration/test_arrow_rule_property.py compares both for random rules. Here each difference has one example.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from ingest.contract.definition import load_contracts
from ingest.contract.sql_type import SqlType, to_arrow
from ingest.contract.sql_type_parser import parse_type
from ingest.decode import rule_expression
from ingest.decode.arrow_rule import compile_rule
from ingest.decode.rule_compiler import DEPTH_MAX
from ingest.decode.rule_expression import holds
from ingest.decode.rule_refusal import RuleRaises, Untranslatable

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
TYPES = {
    "tiny": "TINYINT",
    "n": "INT",
    "big": "BIGINT",
    "money": "DECIMAL(18,2)",
    "fee": "DECIMAL(18,4)",
    "wide": "DECIMAL(38,10)",
    "fine": "DECIMAL(38,30)",
    "single": "FLOAT",
    "x": "DOUBLE",
    "y": "DOUBLE",
    "s": "STRING",
    "flag": "BOOLEAN",
    "other": "BOOLEAN",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "bytes": "BINARY",
    "sizes": "ARRAY<INT>",
    "lines": "ARRAY<STRUCT<sku: STRING, quantity: INT, tags: ARRAY<STRING>>>",
    "metadata": "MAP<STRING, STRING>",
    "address": "STRUCT<city: STRING, geo: STRUCT<lat: DOUBLE, more: STRUCT<a: STRUCT<b: INT>>>>",
}
COLUMNS = {name: parse_type(text) for name, text in TYPES.items()}
SCHEMA = pa.schema([(name, to_arrow(kind)) for name, kind in COLUMNS.items()])
NAN, INF = math.nan, math.inf
LEAST = -(2**31)


def rows(*values: Mapping[str, Any]) -> pa.RecordBatch:
    """Columns that a row does not name are NULL."""
    return pa.RecordBatch.from_pylist([dict(value) for value in values], SCHEMA)


def verdict(check: str, **values: Any) -> bool | None:
    """TRUE, FALSE or NULL, which `holds` gives for the rule, its negation or neither."""
    row = rows(values)
    if holds(compile_rule(check, COLUMNS), row).to_pylist() == [True]:
        return True
    return False if holds(compile_rule(f"NOT ({check})", COLUMNS), row).to_pylist() == [True] else None


@pytest.mark.parametrize(
    "check, values, wanted",
    [
        # NaN equals itself and is above all other numbers; -0.0 is 0.0
        ("x = y", {"x": NAN, "y": NAN}, True),
        ("x != y", {"x": NAN, "y": NAN}, False),
        ("x > y", {"x": NAN, "y": INF}, True),
        ("x >= y", {"x": NAN, "y": NAN}, True),
        ("x < y", {"x": NAN, "y": INF}, False),
        ("x <=> y", {"x": NAN, "y": NAN}, True),
        ("x BETWEEN 0 AND y", {"x": 1.0, "y": NAN}, True),
        ("x IN (1e0, y)", {"x": NAN, "y": NAN}, True),
        ("x IN (0, 1)", {"x": -0.0}, True),
        ("x = 0", {"x": -0.0}, True),
        # NOT LIKE, which sqlglot keeps in a flag
        ("s NOT LIKE 'a%'", {"s": "ab"}, False),
        ("s NOT RLIKE '^a'", {"s": "ab"}, False),
        ("s NOT IN ('a', 'b')", {"s": "a"}, False),
        ("n NOT BETWEEN 1 AND 3", {"n": 2}, False),
        # division is DOUBLE; by zero it is NULL
        ("n / 2 = 0.5", {"n": 1}, True),
        ("n / 0 IS NULL", {"n": 1}, True),
        ("x / y IS NULL", {"x": 1.0, "y": -0.0}, True),
        ("n % 0 IS NULL", {"n": 1}, True),
        ("n % 3 = -1", {"n": -7}, True),
        ("n % big = 0", {"n": LEAST, "big": -1}, True),
        ("n % -1 = 0", {"n": LEAST}, True),
        # whole numbers wrap around
        ("n + 1 < 0", {"n": 2**31 - 1}, True),
        ("n * 2 = -2", {"n": 2**31 - 1}, True),
        ("big - 1 > 0", {"big": -(2**63)}, True),
        ("tiny + tiny = -2", {"tiny": 127}, True),
        ("abs(n) = n AND -n = n", {"n": LEAST}, True),
        ("-2147483648 - 1 > 0", {}, True),
        ("-(2147483648) - 1 < 0", {}, True),
        # DECIMAL is exact
        ("fee <= money", {"fee": Decimal("0.0100"), "money": Decimal("0.01")}, True),
        ("money = 9999999999999999.99", {"money": Decimal("9999999999999999.99")}, True),
        ("money * fee = 0.000001", {"money": Decimal("0.01"), "fee": Decimal("0.0001")}, True),
        ("wide > 1", {"wide": Decimal("9999999999999999999999999999.9999999999")}, True),
        ("money >= 0 AND money > big", {"money": Decimal("0.01"), "big": 0}, True),
        ("coalesce(money, 0) + fee = 1.5", {"fee": Decimal("1.5")}, True),
        ("x = 0.1", {"x": 0.1}, True),
        ("single > 0.1", {"single": 0.1}, True),  # FLOAT becomes DOUBLE
        # three values
        ("flag AND other", {"flag": False}, False),
        ("flag AND other", {"flag": True}, None),
        ("flag OR other", {"flag": True}, True),
        ("flag OR other", {"flag": False}, None),
        ("NOT flag", {}, None),
        ("n IN (1, NULL)", {"n": 1}, True),
        ("n IN (1, NULL)", {"n": 2}, None),
        ("s IN ('a', 'b')", {}, None),
        ("money IN (1, 2.50)", {"money": Decimal("2.5")}, True),
        ("day NOT IN (DATE '2024-02-29', DATE '2024-03-01')", {"day": date(2024, 2, 29)}, False),
        ("n = n", {}, None),
        ("n <=> NULL", {}, True),
        ("n IS DISTINCT FROM 1", {}, True),
        ("flag IS NOT TRUE", {}, True),
        ("flag < other", {"flag": False, "other": True}, True),
        ("CASE WHEN flag THEN 'a' WHEN n > 1 THEN 'b' END = 'b'", {"n": 2}, True),
        ("CASE WHEN flag THEN n END = 1", {"n": 1}, None),
        ("if(flag, n, 7) = 7", {"n": 1}, True),
        ("nvl(s, 'a') = 'a' AND ifnull(s, 'a') = 'a' AND nullif('a', s) = 'a'", {}, True),
        # arrays and maps
        ("size(sizes) = -1 AND size(metadata) = -1", {}, True),
        ("size(sizes) = 0 AND size(metadata) = 1", {"sizes": [], "metadata": [("a", None)]}, True),
        ("forall(sizes, e -> e > 0)", {"sizes": []}, True),
        ("forall(sizes, e -> e > 0)", {"sizes": [1, None]}, None),
        ("forall(sizes, e -> e > 0)", {"sizes": [0, None]}, False),
        ("forall(sizes, e -> e > 0)", {}, None),
        ("exists(sizes, e -> e > 0)", {"sizes": []}, False),
        ("exists(sizes, e -> e > 0)", {"sizes": [0, None]}, None),
        ("exists(sizes, e -> e > 0)", {"sizes": [1, None]}, True),
        ("exists(sizes, e -> e > n)", {"sizes": [1, 5], "n": 4}, True),
        ("exists(sizes, e -> e IS NULL)", {"sizes": [None]}, True),
        ("forall(sizes, e -> true)", {"sizes": [None]}, True),
        ("exists(lines, l -> exists(l.tags, t -> t = l.sku))", {"lines": [{"sku": "a", "tags": ["b", "a"]}]}, True),
        ("metadata['a'] = 'b' AND metadata['c'] IS NULL", {"metadata": [("a", "b")]}, True),
        ("address.geo.more.a.b = 1", {"address": {"geo": {"more": {"a": {"b": 1}}}}}, True),
        ("address.geo.lat IS NULL AND address.geo IS NULL AND address IS NOT NULL", {"address": {"city": "x"}}, True),
        # text
        ("upper(s) = 'SS'", {"s": "ß"}, True),
        ("lower(s) = 'ας'", {"s": "ΑΣ"}, True),
        ("lower(s) = 'a'", {"s": "A"}, True),
        ("trim(s) = '\t'", {"s": " \t "}, True),
        ("ltrim(s) = 'a ' AND rtrim(s) = ' a'", {"s": " a "}, True),
        ("trim(BOTH FROM s) = 'a' AND trim(LEADING FROM s) = 'a ' AND trim(TRAILING FROM s) = ' a'", {"s": " a "}, True),
        ("length(s) = 1", {"s": "😀"}, True),
        ("startswith(s, 'a') AND endswith(s, 'c') AND contains(s, 'b')", {"s": "abc"}, True),
        ("s LIKE '_'", {"s": "\n"}, True),
        ("s LIKE 'a%c'", {"s": "a.\n.c"}, True),
        ("s LIKE 'a.c'", {"s": "abc"}, False),
        # time
        ("year(day) = 2024 AND month(day) = 2 AND day(day) = 29", {"day": date(2024, 2, 29)}, True),
        ("year(at) = 1969", {"at": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)}, True),
        ("at < TIMESTAMP '2024-01-01T00:00:00.000001Z'", {"at": datetime(2024, 1, 1, tzinfo=UTC)}, True),
        ("day = DATE '0001-01-01'", {"day": date(1, 1, 1)}, True),
    ],
)
def test_the_value_is_sparks(check: str, values: dict[str, Any], wanted: bool | None) -> None:
    assert verdict(check, **values) is wanted


@pytest.mark.parametrize(
    "pattern, matching, others",
    [
        (
            "^[0-9]{4}$",
            ["1234", "1234\n", "1234\r", "1234\r\n", "1234\u0085", "1234\u2028", "1234\u2029"],
            ["1234\n\n", "1234\n\r", "1234 "],
        ),
        ("^.$", ["a", "a\n", "😀"], ["\n", "\r", "\u0085", "\u2028", "\u2029", "", "ab"]),
        ("^[^a]$", ["b", "\n", "\r", "\n\n", "b\r\n"], ["a", "\r\n"]),
        ("^a[^b]$", ["ac", "a\r", "ac\n", "a\n"], ["a\r\n"]),  # no end between CR and LF
        ("^a$|^b$", ["a", "b\n"], ["ab", "a\nb"]),
        ("^(a|b)$", ["a", "b\r\n"], ["c"]),
        ("a{2}", ["caac"], ["a"]),
        ("", ["", "a"], []),
        ("[$^.]", ["$", "^", "."], ["a"]),
    ],
)
def test_a_pattern_matches_as_in_java(pattern: str, matching: list[str], others: list[str]) -> None:
    batch = rows(*({"s": text} for text in [*matching, *others]))
    found = holds(compile_rule(f"s RLIKE '{pattern}'", COLUMNS), batch).to_pylist()
    assert found == [True] * len(matching) + [False] * len(others)


@pytest.mark.parametrize(
    "check, reason",
    [
        ("n > 'x'", "INT and STRING"),
        ("s = 0", "INT and STRING"),
        ("day = '2024-02-29'", "DATE and STRING"),
        ("day < at", "DATE and TIMESTAMP"),
        ("flag = 1", "BOOLEAN and INT"),
        ("at < local", "TIMESTAMP and TIMESTAMP_NTZ"),
        ("at < TIMESTAMP '2024-01-01 00:00:00'", "of casts only"),
        ("day < DATE '2024-02-30'", "does not exist"),
        ("CAST(n AS STRING) = '1'", "function cast()"),
        ("n :: STRING = '1'", "CAST"),
        ("money < x", "DECIMAL beside DOUBLE"),
        ("single > 1", "FLOAT beside a whole number"),
        ("money / 2 > 1", "division of DECIMAL"),
        ("money % 2 = 1", "%"),
        ("wide * wide > 1", "38 digits"),
        ("wide = big", None),
        ("wide IN (1, 2)", None),
        ("fine > 1", None),
        ("fine IN (1, 2)", "38 digits"),  # here a literal has the digits of an INT
        ("coalesce(money, fee) > wide * 1.1", "38 digits"),
        ("bytes = bytes", "BINARY"),
        ("sizes = sizes", "ARRAY"),
        ("n = NULL AND NULL = NULL", "NULL only"),
        ("s LIKE 'a!%' ESCAPE '!'", "ESCAPE"),
        ("s ILIKE 'a'", "ILIKE"),
        ("s LIKE ANY ('a', 'b')", "any"),
        ("like(s, 'a%')", "like()"),  # sqlglot swaps the arguments
        ("like('a%', s)", "like()"),
        ("rlike(s, 'a')", "rlike()"),
        ("s RLIKE '[0-9]+\\\\.'", "backslash"),
        ("n BETWEEN SYMMETRIC 3 AND 1", "BETWEEN"),
        ("trim(BOTH 'x' FROM s) = 'a'", "TRIM"),
        ("trim(LEADING 'x' FROM s) = 'a'", "TRIM"),
        ("lower(upper(s)) = 'a'", "optimizer"),
        ("upper(trim(lower(s))) = 'A'", "optimizer"),
        ("+n > 1", "sign +"),
        ("-wide > 0", RuleRaises),
        ("array_size(sizes) = 0", "array_size()"),
        ("cardinality(sizes) = 0", "cardinality()"),
        ("lines.sku IS NOT NULL", "no field"),
        ("sizes[0] = 1", "map['key']"),
        ("metadata[s] = 'a'", "map['key']"),
        ("exists(sizes, (e, i) -> e > i)", "exists()"),
        ("exists(sizes, n -> n > 0)", "variable"),
        ("exists(sizes, N -> n > 0)", "variable"),  # Spark takes n for the variable
        ("filter(sizes, e -> e > 0) IS NOT NULL", "filter()"),
        ("CASE n WHEN 1 THEN true END", "CASE"),
        ("flag = n < 1", "parentheses"),
        ("n < 1 = n > 1", "parentheses"),  # sqlglot ranks < above =, Spark does not
        ("flag = NOT other", "parentheses"),
        ("hour(at) = 1", "hour()"),
        ("unix_timestamp(at) > 0", "unix_timestamp()"),
        ("to_date(s) IS NULL", "to_date()"),
        ("to_date(s, 'yyyy') IS NOT NULL", "to_date()"),
        ("regexp_replace(s, 'a$', 'b') = 'b'", "regexp_replace()"),
        ("size(split(s, ',')) = 2", "split()"),
        ("element_at(sizes, -1) = 1", "element_at()"),
        ("lpad(s, 10, '0') = 'a'", "lpad()"),
        ("concat(s, 'a') = 'a'", "concat()"),
        ("some_function(n)", "some_function()"),
        ("n + 1", "not BOOLEAN"),
        ("9223372036854775808 > n", "BIGINT"),
        ("nosuch > 1", "no column"),
        ("address.nosuch > 1", "no field"),
        ("n >", "parse"),
        ("n > 1 AND", "parse"),
        ("n IN (SELECT 1)", "SELECT"),
        ("current_date > day", "CURRENT_DATE"),
        ("s RLIKE '(?i)a'", "(?"),
        ("s RLIKE '[a-z&&[b]]'", "class"),
        ("s RLIKE '[[:alpha:]]'", "class"),
        ("s RLIKE 'a*+b'", "possessive"),
        ("s RLIKE '(a$)b'", "$ elsewhere"),
        ("s RLIKE '^*'", "nothing to repeat"),
        ("s RLIKE 'a{1001}'", "repetitions"),
        ("(" * 60 + "n > 1" + ")" * 60, "nested"),
    ],
)
def test_what_has_no_exact_counterpart_is_refused_with_the_reason(check: str, reason: str | type[Exception] | None) -> None:
    if reason is None:
        compile_rule(check, COLUMNS)
        return
    kind, text = (Untranslatable, reason) if isinstance(reason, str) else (reason, "")
    with pytest.raises(kind) as caught:
        compile_rule(check, COLUMNS)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "check, reason",
    [
        ("s RLIKE '(a'", "without )"),
        ("s RLIKE 'a)'", "without ("),
        ("s RLIKE '[a'", "without ]"),
        ("s RLIKE 'a{'", "without a number"),
        ("s RLIKE 'a{2,1}'", "below its start"),
        ("s RLIKE '*a'", "nothing to repeat"),
        ("s RLIKE 'a|+'", "nothing to repeat"),
        ("s RLIKE s", "no literal"),
        ("some_function(s) RLIKE concat('(', s)", "no literal"),
        ("regexp(s, s)", "no literal"),
        ("regexp(s, '(')", "without )"),
        ("s LIKE s", "no literal"),
        ("regexp_like(s, s)", "no literal"),
        ("regexp_replace(s, s, 'b') = 'b'", "regexp_replace()"),
        ("regexp_replace(s, 'a', '$1') = 'b'", "regexp_replace()"),
        ("regexp_extract(s, '(a)', 2) = 'b'", "regexp_extract()"),
        ("size(split(s, concat(s, ','))) = 2", "split()"),
        ("element_at(sizes, 0) = 1", "element_at()"),
        ("element_at(sizes, n) = 1", "element_at()"),
        ("to_date(s, s) IS NOT NULL", "to_date() with a format"),
        ("hour(to_timestamp(concat(s, 'a'), lower('yyyy'))) = 1", "to_timestamp() with a format"),
        ("repeat(s, n) = 'a'", "repeat()"),
        ("raise_error('x')", "raise_error()"),
        ("abs(wide) > 0", "more than 34 digits"),
    ],
)
def test_a_rule_that_can_raise_is_refused_for_every_writer(check: str, reason: str) -> None:
    with pytest.raises(RuleRaises) as caught:
        compile_rule(check, COLUMNS)
    assert reason in str(caught.value)


def rules_of_contracts() -> Iterator[Any]:
    for contract in load_contracts(ROOT):
        columns: dict[str, SqlType] = {column.name: column.sql_type for column in contract.columns}
        for rule in contract.rules:
            yield pytest.param(rule.check, columns, id=f"{contract.table}.{rule.name}")


@pytest.mark.parametrize("check, columns", list(rules_of_contracts()))
def test_the_rules_of_this_repository_are_translated(check: str, columns: dict[str, SqlType]) -> None:
    assert compile_rule(check, columns).columns


@pytest.mark.parametrize(
    "check, why_not",
    [
        ("amount IS NULL OR amount >= 0", None),  # ingest init
        ("card_last4 IS NULL OR card_last4 RLIKE '^[0-9]{4}$' AND length(card_last4) = 4", None),  # docs/reference/contracts.md
        ("amount >= 0", None),  # tests/faults, bench
        ("status IN ('placed', 'paid', 'shipped', 'cancelled')", None),
        ("100 / n >= 1", None),  # tests/integration
        ("_offset < 100 OR n IS NOT NULL", None),
        ("_kafka_timestamp >= TIMESTAMP '2020-01-01 00:00:00Z'", None),
        ("s IS NULL OR CAST(s AS INT) < 100", "cast()"),
        ("aggregate(lines, 0, (total, l) -> total + l.quantity) > 0", "aggregate()"),  # tests/unit/contract
        ("array_contains(lines.sku, 'a') AND lines[0].quantity > 0", "array_contains()"),
        ("metadata['a'] = 'b' AND metadata.a = 'b'", "no field"),
        ("timestampdiff(MICROSECOND, at, at) = 0 AND extract(YEAR FROM day) > 2000", "timestampdiff()"),
    ],
)
def test_the_rules_of_pages_and_tests_are_translated_or_named(check: str, why_not: str | None) -> None:
    others = {"amount": "DECIMAL(18,2)", "card_last4": "STRING", "status": "STRING", "_offset": "BIGINT", "_kafka_timestamp": "TIMESTAMP"}
    columns = {**COLUMNS, **{name: parse_type(text) for name, text in others.items()}}
    if why_not is None:
        assert compile_rule(check, columns).columns
        return
    with pytest.raises(Untranslatable, match=re.escape(why_not)):
        compile_rule(check, columns)


def test_an_order_without_lines_or_with_a_line_of_none_breaks_its_rules() -> None:
    """The verdicts of a contract, row by row."""
    (contract,) = load_contracts(ROOT, ["orders"])
    columns = {column.name: column.sql_type for column in contract.columns}
    good = {"amount": Decimal(0), "currency": "EUR", "status": "paid", "lines": [{"sku": "a", "quantity": 1}]}
    broken: list[dict[str, Any]] = [{"amount": Decimal("-0.01")}, {"currency": "XXX"}, {"status": None}, {"lines": []}]
    broken += [{"lines": [{"sku": None, "quantity": 1}]}, {"lines": [{"sku": "a", "quantity": 0}]}]
    schema = pa.schema([(name, to_arrow(kind)) for name, kind in columns.items()])
    batch = pa.RecordBatch.from_pylist([good, *({**good, **each} for each in broken)], schema)
    found = [holds(compile_rule(rule.check, columns), batch).to_pylist() for rule in contract.rules]
    assert found == [[at != rule for at in range(7)] for rule in (1, 2, 3, 4)] + [[at not in (5, 6) for at in range(7)]]


def test_a_card_of_four_digits_and_a_line_feed_breaks_its_rule() -> None:
    """In Spark the pattern alone accepts it, as the first rule shows."""
    (contract,) = load_contracts(ROOT, ["payments"])
    (rule,) = (rule for rule in contract.rules if rule.name == "card_digits")
    batch = pa.RecordBatch.from_pydict({"card_last4": ["1234", "1234\n", "123", "12345", None]})
    columns = {"card_last4": parse_type("STRING")}
    pattern = compile_rule("card_last4 RLIKE '^[0-9]{4}$'", columns)
    assert holds(pattern, batch).to_pylist() == [True, True, False, False, False]
    assert holds(compile_rule(rule.check, columns), batch).to_pylist() == [True, False, False, False, True]


def test_values_below_null_and_outside_of_a_slice_do_not_matter() -> None:
    valid = pa.array([True, False, True, True]).buffers()[1]

    def hiding(values: pa.Array, buffers: int, *children: pa.Array) -> pa.Array:
        """The values, of which the second is NULL, without the first."""
        return pa.Array.from_buffers(values.type, 4, [valid, *values.buffers()[1:buffers]], children=list(children)).slice(1)

    sizes = pa.array([[9], [-1, 0], [1], []], pa.list_(pa.int32()))
    metadata = pa.array([[("k", "x")], [("k", "a")], [("k", "a")], []], pa.map_(pa.string(), pa.string()))
    address = pa.array([{"city": "x"}, {"city": "a"}, {"city": "a"}, {"city": None}], pa.struct([("city", pa.string())]))
    batch = pa.RecordBatch.from_arrays(
        [
            hiding(pa.array([1, 0, 0, 2], pa.int32()), 2),
            hiding(sizes, 2, sizes.values),
            hiding(metadata, 2, metadata.values),
            hiding(address, 1, *address.flatten()),
        ],
        ["n", "sizes", "metadata", "address"],
    )
    columns = {**COLUMNS, "address": parse_type("STRUCT<city: STRING>")}
    for check, wanted in {
        "n % n IS NULL": [True, True, False],
        "size(sizes) = -1": [True, False, False],
        "size(metadata) = -1": [True, False, False],
        "exists(sizes, e -> e > 0)": [False, True, False],
        "forall(sizes, e -> e > n)": [False, True, True],
        "metadata['k'] = 'a'": [False, True, False],
        "address.city IS NULL": [True, False, True],
    }.items():
        assert holds(compile_rule(check, columns), batch).to_pylist() == wanted, check


def test_other_layouts_of_a_type_are_the_same_values() -> None:
    """Spark may send large texts, and a name for UTC."""
    texts, times = pa.array(["a", None, "b"], pa.large_string()), pa.array([0, 1, None], pa.timestamp("us", "Etc/UTC"))
    batch = pa.RecordBatch.from_arrays([texts, times], ["s", "at"])
    assert holds(compile_rule("s IN ('a', 'c')", COLUMNS), batch).to_pylist() == [True, False, False]
    assert holds(compile_rule("at = TIMESTAMP '1970-01-01 00:00:00Z'", COLUMNS), batch).to_pylist() == [True, False, False]


def test_a_rule_reads_only_its_columns_and_takes_batches_of_any_size() -> None:
    rule = compile_rule("exists(sizes, e -> e > n) OR 1 > 2", COLUMNS)
    assert [field.name for field in rule.columns] == ["n", "sizes"]
    assert holds(rule, rows()).to_pylist() == []
    assert holds(compile_rule("1 < 2", COLUMNS), rows({}, {})).to_pylist() == [True, True]
    assert holds(compile_rule("NULL", COLUMNS), rows({}, {})).to_pylist() == [False, False]
    with pytest.raises(KeyError):
        holds(rule, rows().select(["n"]))


WORKER = """
import pickle, sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("sqlglot", "ingest"):
            raise ImportError(f"a worker has no {name}")
sys.meta_path.insert(0, Nothing())
holds, rules, batch = pickle.loads(sys.stdin.buffer.read())
print([holds(rule, batch).to_pylist() for rule in rules])
assert not {"sqlglot", "ingest"} & set(sys.modules)
"""


def test_a_worker_needs_neither_sqlglot_nor_this_package() -> None:
    """Rules reach the workers by value, the deepest one too."""
    deepest = f"{' + '.join(['n'] * (DEPTH_MAX - 1))} > 0"
    checks = [
        "forall(sizes, e -> e > n) AND upper(s) = 'SS' AND s RLIKE '^.$'",
        "money >= 1.5 OR day = DATE '2024-01-01'",
        deepest,
    ]
    batch = rows({"n": 1, "sizes": [2], "s": "ß"}, {"money": Decimal("1.50")}, {"day": date(2024, 1, 1)})
    cloudpickle.register_pickle_by_value(rule_expression)  # type: ignore[no-untyped-call]
    try:
        sent = cloudpickle.dumps((holds, [compile_rule(check, COLUMNS) for check in checks], batch))  # type: ignore[no-untyped-call]
    finally:
        cloudpickle.unregister_pickle_by_value(rule_expression)  # type: ignore[no-untyped-call]
    worker = subprocess.run([sys.executable, "-c", WORKER], input=sent, capture_output=True, timeout=60, check=False)
    assert worker.stderr == b""
    assert worker.stdout.decode().strip() == str([[True, False, False], [False, True, True], [True, False, False]])
