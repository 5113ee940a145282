"""Row rules: the predicates that are accepted, and the reasons for refusing others."""

from __future__ import annotations

import pytest

from ingest.contract.row_rule import rule_problems
from ingest.contract.sql_type_parser import parse_type

TYPES = {
    "amount": "DECIMAL(18,2)",
    "status": "STRING",
    "ordered_at": "TIMESTAMP",
    "day": "DATE",
    "lines": "ARRAY<STRUCT<sku: STRING, quantity: INT>>",
    "address": "STRUCT<city: STRING, geo: STRUCT<lat: DOUBLE, more: STRUCT<a: STRUCT<b: INT>>>>",
    "metadata": "MAP<STRING, STRING>",
}
COLUMNS = {name: parse_type(text) for name, text in TYPES.items()}


@pytest.mark.parametrize(
    "check",
    [
        "amount >= 0",
        "status IN ('placed', \"paid\") AND NOT amount <=> NULL",
        "status LIKE ANY ('a%', 'b%') OR status RLIKE '^x$'",
        "size(lines) > 0",
        "forall(lines, l -> l.quantity > 0 AND l.sku IS NOT NULL)",
        "aggregate(lines, 0, (total, l) -> total + l.quantity) > 0",
        "array_contains(lines.sku, 'a') AND lines[0].quantity > 0",
        "address.geo.lat BETWEEN -90 AND 90 AND address.geo.more.a.b > 1",
        "metadata['a'] = 'b' AND metadata.a = 'b'",
        "ordered_at >= TIMESTAMP '2020-01-01 00:00:00Z' AND day < DATE '2100-01-01'",
        "timestampdiff(MICROSECOND, ordered_at, ordered_at) = 0 AND extract(YEAR FROM day) > 2000",
        "unix_timestamp(ordered_at) > 0",
        "status = 'now' OR status NOT IN ('today')",
        "CASE WHEN amount > 1 THEN true ELSE status IS NOT NULL END",
        "some_function_of_tomorrow(amount)",
    ],
)
def test_a_deterministic_predicate_over_one_row_is_accepted(check: str) -> None:
    assert rule_problems(check, COLUMNS) == []


@pytest.mark.parametrize(
    "call, reason",
    [
        *((f"{name}() > ordered_at", "the clock") for name in ("now", "current_timestamp", "localtimestamp", "NOW", "`now`", "curdate")),
        *((f"{name} > day", "the clock") for name in ("current_date", "CURRENT_TIMESTAMP", "localtimestamp", "current_time")),
        ("unix_timestamp() > 1", "the clock"),
        *((f"{name}() > 0", "chance") for name in ("rand", "randn", "random", "uuid", "system.builtin.rand")),
        ("size(shuffle(lines)) > 0", "chance"),
        *((f"{name}() = status", "the session") for name in ("current_user", "session_user", "user", "current_catalog", "current_schema")),
        *((f"{name} = status", "the session") for name in ("user", "current_user", "session_user", "current_database")),
        ("version() = status", "the session"),
        *((f"{name}() >= 0", "where and in which order") for name in ("monotonically_increasing_id", "spark_partition_id")),
        ("input_file_name() = status", "where and in which order"),
        ("amount > 0 OR raise_error('x')", "raises"),
        ("assert_true(amount > 0)", "raises"),
        *((f"{name}('java.lang.System', 'nanoTime') = status", "outside of SQL") for name in ("reflect", "java_method", "try_reflect")),
        ("ai_query('m', status) = 'ok'", "another system"),
        *((f"{name}(amount > 0)", "other rows") for name in ("any", "some", "every", "bool_and", "mean", "std")),
    ],
)
def test_a_function_whose_result_may_vary_is_refused_with_the_reason(call: str, reason: str) -> None:
    found = [found for found, _ in rule_problems(call, COLUMNS)]
    assert any(reason in text for text in found), found


@pytest.mark.parametrize(
    "check, found, expected",
    [
        ("amount >=", "is not SQL", "one deterministic SQL predicate"),
        ("'open", "is not SQL", "one deterministic SQL predicate"),
        ("", "is empty", "one deterministic SQL predicate"),
        ("amount > 0; amount > 1", "several statements", "one deterministic SQL predicate"),
        ("DROP TABLE orders", "is not a predicate", "one deterministic SQL predicate"),
        ("SELECT 1", "is not a predicate", "one deterministic SQL predicate"),
        ("amount > 0 AS good", "is not a predicate", "one deterministic SQL predicate"),
        ("(" * 3000 + "amount" + ")" * 3000, "nested too deeply", "one deterministic SQL predicate"),
        ("amount > 0 -- fine", "contains an SQL comment", "after #"),
        ("amount > ${limit}", "from the session", "without variables"),
        ("amount > :limit", "a parameter", "a literal"),
        ("amount IN (SELECT 1)", "a subquery", "one row"),
        ("EXISTS (SELECT 1)", "a subquery", "one row"),
        ("sum(amount) > 0", "the aggregate function sum()", "size, exists, forall, aggregate"),
        ("count(*) > 0", "the aggregate function count()", "size, exists, forall, aggregate"),
        ("max(amount) OVER (PARTITION BY status) > 0", "a window function", "one row"),
        ("explode(lines) IS NULL", "explode() produces rows", "one row"),
        ("ordered_at < 'now'", "'now' becomes the current time", "a literal such as TIMESTAMP"),
        ("ordered_at < TIMESTAMP '\\156ow'", "an escape in a TIMESTAMP literal", "a literal such as TIMESTAMP"),
        ('ordered_at < DATE"toda\\y"', "an escape in a DATE literal", "a literal such as TIMESTAMP"),
        ("ordered_at < TIMESTAMP r'now'", "is not SQL", "one deterministic SQL predicate"),
        ("ordered_at < TIMESTAMP 'today'", "'today' becomes the current time", "a literal such as TIMESTAMP"),
        ("day = CAST(' Yesterday ' AS DATE)", "becomes the current time", "a literal such as TIMESTAMP"),
        ("ammount > 0", "there is no column 'ammount'", "(did you mean amount?)"),
        ("Amount > 0", "there is no column 'Amount'", "(did you mean amount?)"),
        ("address.town = 'x'", "'address' has no field 'town'", "one of city, geo"),
        ("address.geo.lon > 0", "'address.geo' has no field 'lon'", "lat"),
        ("address.geo.more.a.c > 0", "'address.geo.more.a' has no field 'c'", "b"),
        ("lines.price[0] > 0", "'lines' has no field 'price'", "one of sku, quantity"),
        ("status.x = 1", "'status' is not a struct", "a field of a STRUCT column"),
        ("exists(lines, l -> l.quantity > limit_)", "there is no column 'limit_'", "one of amount"),
    ],
)
def test_text_that_is_not_a_predicate_over_the_columns_is_refused_with_a_hint(check: str, found: str, expected: str) -> None:
    problems = rule_problems(check, COLUMNS)
    assert any(found in text and expected in allowed for text, allowed in problems), problems


def test_a_column_may_have_the_name_of_a_session_function() -> None:
    assert rule_problems("user <> ''", {"user": parse_type("STRING")}) == []
    assert rule_problems("user() <> ''", {"user": parse_type("STRING")}) != []


def test_a_column_with_an_invalid_type_is_not_reported_a_second_time() -> None:
    assert rule_problems("x.y.z > 1", {"x": None}) == []


def test_without_known_columns_only_the_functions_are_checked() -> None:
    assert rule_problems("nope > 1", None) == []
    assert len(rule_problems("nope > rand()", None)) == 1
