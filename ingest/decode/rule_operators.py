"""Operators of row rules on typed expressions: comparisons and arithmetic, with the types and results that Spark gives them."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from ingest.decode import rule_types as types
from ingest.decode.rule_expression import Expression
from ingest.decode.rule_refusal import RuleRaises, Untranslatable
from ingest.decode.rule_types import BOOLEAN, DOUBLE, cast, name_of, widened

NEGATED_DIGITS_MAX = 34  # Spark negates a DECIMAL with 34 digits: more are rounded, and raise if there is no room

# Equal and less, with swapped operands or negated. So NaN has its place in all of them.
COMPARISONS: dict[type[exp.Expr], tuple[str, bool, bool]] = {
    exp.EQ: ("equal", False, False),
    exp.NEQ: ("equal", False, True),
    exp.LT: ("less", False, False),
    exp.GT: ("less", True, False),
    exp.GTE: ("less", False, True),
    exp.LTE: ("less", True, True),
    exp.NullSafeEQ: ("same", False, False),
    exp.NullSafeNEQ: ("same", False, True),
}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}


def negation(a: Expression) -> Expression:
    """NOT a."""
    return Expression("not", BOOLEAN, (a,))


def comparison(kind: type[exp.Expr], a: Expression, b: Expression) -> Expression:
    """One of COMPARISONS."""
    a, b = widened([a, b])
    if not types.is_ordered(a.type):
        raise Untranslatable(f"a comparison of {name_of(a.type)}")
    operation, swapped, negated = COMPARISONS[kind]
    found = Expression(operation, BOOLEAN, (b, a) if swapped else (a, b))
    return negation(found) if negated else found


def membership(value: Expression, members: list[Expression]) -> Expression:
    """IN: NULL if no member is equal and the value or a member is NULL."""
    value, *members = widened([value, *members], own=False)
    if not types.is_ordered(value.type):
        raise Untranslatable(f"IN of {name_of(value.type)}")
    if not pa.types.is_floating(value.type) and all(member.operation == "literal" and member.value is not None for member in members):
        return Expression("in_values", BOOLEAN, (value,), tuple(sorted({member.value for member in members})))
    return Expression("in", BOOLEAN, (value, *members))


def arithmetic(kind: type[exp.Expr], a: Expression, b: Expression) -> Expression:
    """a + b, a - b, a * b. Whole numbers wrap around; a DECIMAL gets room for every result, up to 38 digits."""
    operation = _ARITHMETIC[kind]
    if any(pa.types.is_decimal(each.type) for each in (a, b)) and not any(pa.types.is_floating(each.type) for each in (a, b)):
        (p1, s1), (p2, s2) = types.digits(a), types.digits(b)
        whole, scale = (p1 - s1 + p2 - s2, s1 + s2) if kind is exp.Mul else (max(p1 - s1, p2 - s2), max(s1, s2))
        operands = cast(a, types.decimal(p1, s1)), cast(b, types.decimal(p2, s2))
        return Expression(operation, types.decimal(whole + scale + 1, scale), operands)
    a, b = widened([a, b])
    if not types.is_number(a.type):
        raise Untranslatable(f"arithmetic with {name_of(a.type)}")
    return Expression(operation, a.type, (a, b))


def division(a: Expression, b: Expression) -> Expression:
    """a / b as DOUBLE, of whole numbers, too."""
    for each in (a, b):
        if not types.is_number(each.type) and not pa.types.is_null(each.type):
            raise Untranslatable(f"division of {name_of(each.type)}")
    if any(pa.types.is_decimal(each.type) for each in (a, b)) and not any(pa.types.is_floating(each.type) for each in (a, b)):
        raise Untranslatable("division of DECIMAL, whose scale and rounding are Spark's own; multiply instead")
    return Expression("divide", DOUBLE, (cast(a, DOUBLE), cast(b, DOUBLE)))


def remainder(a: Expression, b: Expression) -> Expression:
    """a % b of whole numbers."""
    a, b = widened([a, b])
    if not types.is_whole(a.type):
        raise Untranslatable("% of other numbers than whole ones")
    return Expression("remainder", a.type, (a, b))


def signed(operation: str, a: Expression) -> Expression:
    """-a (`negate`) or abs(a) (`absolute`). The least whole number is its own opposite."""
    if not types.is_number(a.type):
        raise Untranslatable(f"- or abs() of {name_of(a.type)}")
    if pa.types.is_decimal(a.type) and a.type.precision > NEGATED_DIGITS_MAX:
        raise RuleRaises(f"- and abs() of a DECIMAL can raise on more than {NEGATED_DIGITS_MAX} digits")
    return Expression(operation, a.type, (a,))
