"""Compile sqlglot's syntax tree of a row rule to an expression. Each node gets the type that Spark gives it with ANSI off.

Literals have a type, nothing is cast from one family of types to another, and every operation is total: a value or NULL for all operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ingest.decode.rule_expression import Expression
from ingest.decode.rule_literal import constant, number, time
from ingest.decode.rule_operators import COMPARISONS, arithmetic, comparison, division, membership, negation, remainder, signed
from ingest.decode.rule_pattern import re2_patterns
from ingest.decode.rule_refusal import RuleRaises, Untranslatable
from ingest.decode.rule_types import BOOLEAN, INT, TEXT, cast, literal, name_of, widened

DEPTH_MAX = 50  # far below what pickle and Python's stack take


class Compiler:
    """Compiles trees over `columns`, their Arrow types by name. `used` collects the columns of the batch that they read."""

    def __init__(self, columns: Mapping[str, pa.DataType]) -> None:
        self.used: set[str] = set()
        self._columns = columns
        self._variables: dict[str, pa.DataType] = {}  # of the lambdas around
        self._depth = 0

    def truth(self, tree: exp.Expr) -> Expression:
        """The tree as a BOOLEAN."""
        found = self.any(tree)
        if found.type != BOOLEAN and not pa.types.is_null(found.type):
            raise Untranslatable(f"{_sql(tree)} is {name_of(found.type)}, not BOOLEAN")
        return cast(found, BOOLEAN)

    def any(self, tree: exp.Expr) -> Expression:
        """The tree as an expression."""
        kind = type(tree)
        made = _NODES.get(kind)
        known = _PARTS.get(kind, ("this", "expression", "expressions"))
        unknown = [name for name, value in tree.args.items() if value not in (None, False, []) and name not in known]
        if made is None or unknown:
            raise Untranslatable(_sql(tree))
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Untranslatable(f"an expression nested deeper than {DEPTH_MAX}")
        try:
            return made(self, tree)
        finally:
            self._depth -= 1

    def operand(self, tree: exp.Expr) -> Expression:
        """An operand of an operator that binds as strongly as a comparison, or more. sqlglot ranks comparisons, Spark does not."""
        if isinstance(tree, _PREDICATES):
            raise Untranslatable(f"{_sql(tree)} as an operand; put it into parentheses")
        return self.any(tree)

    def text(self, tree: exp.Expr) -> Expression:
        found = self.operand(tree)
        if found.type != TEXT:
            raise Untranslatable(f"{_sql(tree)} is {name_of(found.type)}, not STRING")
        return found

    # Columns, fields, entries of maps

    def column(self, tree: exp.Column | exp.Identifier) -> Expression:
        name, *fields = [part.name for part in tree.parts] if isinstance(tree, exp.Column) else [tree.name]
        kind = self._variables.get(name)
        if kind is None:
            if name not in self._columns:
                raise Untranslatable(f"{name!r}, which is no column")
            kind = self._columns[name]
            self.used.add(name)
        found = Expression("column", kind, (), name)
        for field in fields:
            found = _field(found, field)
        return found

    def dot(self, tree: exp.Dot) -> Expression:
        return _field(self.operand(tree.this), tree.expression.name)

    def entry(self, tree: exp.Bracket) -> Expression:
        parent = self.operand(tree.this)
        key = tree.expressions[0]
        if not pa.types.is_map(parent.type) or len(tree.expressions) != 1 or not _is_text_literal(key):
            raise Untranslatable(f"{_sql(tree)}; only map['key'] is translated")
        return Expression("entry", parent.type.item_type, (parent,), key.name)

    # Logic and comparisons

    def logic(self, tree: exp.And | exp.Or) -> Expression:
        """A chain of any length on one level."""
        parts, first = [], tree
        while type(first) is type(tree):
            parts.append(first.expression)
            first = first.this
        return Expression(type(tree).__name__.lower(), BOOLEAN, tuple(self.truth(part) for part in [first, *reversed(parts)]))

    def is_(self, tree: exp.Is) -> Expression:
        found = self.operand(tree.this)
        if isinstance(tree.expression, exp.Null):
            return Expression("is_null", BOOLEAN, (found,))
        if isinstance(tree.expression, exp.Boolean) and found.type == BOOLEAN:
            return Expression("same", BOOLEAN, (found, self.any(tree.expression)))
        raise Untranslatable(_sql(tree))

    def both(self, tree: exp.Binary) -> tuple[Expression, Expression]:
        return self.operand(tree.this), self.operand(tree.expression)

    def between(self, tree: exp.Between) -> Expression:
        value = self.operand(tree.this)
        low, high = self.operand(tree.args["low"]), self.operand(tree.args["high"])
        return Expression("and", BOOLEAN, (comparison(exp.GTE, value, low), comparison(exp.LTE, value, high)))

    def in_(self, tree: exp.In) -> Expression:
        if not tree.expressions:
            raise Untranslatable(_sql(tree))
        return membership(self.operand(tree.this), [self.any(each) for each in tree.expressions])

    # Numbers

    def negated(self, tree: exp.Neg) -> Expression:
        """A sign directly before digits belongs to the literal: -2147483648 is an INT."""
        if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
            return number(f"-{tree.this.name}")
        return signed("negate", self.operand(tree.this))

    # Text

    def like(self, tree: exp.Like) -> Expression:
        found = Expression("like", BOOLEAN, (self.text(tree.this),), _pattern(tree))
        return negation(found) if tree.args.get("negate") else found

    def matches(self, tree: exp.RegexpLike) -> Expression:
        return Expression("matches", BOOLEAN, (self.text(tree.this),), re2_patterns(_pattern(tree)))

    def found_in(self, tree: exp.StartsWith | exp.EndsWith | exp.Contains) -> Expression:
        operation = {exp.StartsWith: "starts_with", exp.EndsWith: "ends_with", exp.Contains: "contains"}[type(tree)]
        if not _is_text_literal(tree.expression):
            raise Untranslatable(f"{_sql(tree)}; only a literal is translated")
        return Expression(operation, BOOLEAN, (self.text(tree.this),), tree.expression.name)

    def trimmed(self, tree: exp.Trim) -> Expression:
        operation = {None: "trim", "BOTH": "trim", "LEADING": "trim_left", "TRAILING": "trim_right"}[tree.args.get("position")]
        return Expression(operation, TEXT, (self.text(tree.this),))

    def case_mapped(self, tree: exp.Lower | exp.Upper) -> Expression:
        if tree.this.find(exp.Lower, exp.Upper):
            raise Untranslatable("lower(upper(x)), which Spark's optimizer replaces by lower(x)")
        return Expression(type(tree).__name__.lower(), TEXT, (self.text(tree.this),))

    # Choice

    def coalesce(self, tree: exp.Coalesce) -> Expression:
        operands = widened([self.any(tree.this), *map(self.any, tree.expressions)], own=False)
        return Expression("coalesce", operands[0].type, tuple(operands))

    def null_if(self, tree: exp.Nullif) -> Expression:
        a = self.any(tree.this)
        return Expression("choose", a.type, (comparison(exp.EQ, a, self.any(tree.expression)), literal(None, a.type), a))

    def if_(self, tree: exp.If) -> Expression:
        if tree.args.get("false") is None:
            raise Untranslatable("if() without a third argument")
        return self._chosen([tree], tree.args["false"])

    def case(self, tree: exp.Case) -> Expression:
        return self._chosen(tree.args["ifs"], tree.args.get("default") or exp.Null())

    def _chosen(self, branches: Sequence[exp.If], default: exp.Expr) -> Expression:
        tests = [self.truth(branch.this) for branch in branches]
        results = widened([*(self.any(branch.args["true"]) for branch in branches), self.any(default)], own=False)
        operands = [each for pair in zip(tests, results[:-1], strict=True) for each in pair]
        return Expression("choose", results[-1].type, (*operands, results[-1]))

    # Time, arrays

    def time_part(self, tree: exp.Year | exp.Month | exp.Day | exp.DayOfMonth) -> Expression:
        found = self.any(tree.this.this if isinstance(tree.this, exp.TsOrDsToDate) else tree.this)
        if not pa.types.is_date32(found.type) and not pa.types.is_timestamp(found.type):
            raise Untranslatable(f"{_sql(tree)} of {name_of(found.type)}, which Spark casts")
        return Expression({exp.Year: "year", exp.Month: "month"}.get(type(tree), "day"), INT, (found,))

    def size(self, tree: exp.ArraySize) -> Expression:
        found = self.any(tree.this)
        if not pa.types.is_list(found.type) and not pa.types.is_map(found.type):
            raise Untranslatable(f"{_sql(tree)} of {name_of(found.type)}")
        return Expression("size", INT, (found,))

    def called(self, tree: exp.Anonymous | exp.Exists) -> Expression:
        """Functions that sqlglot knows by name only, and exists."""
        name, given = ("exists", [tree.this, tree.expression]) if isinstance(tree, exp.Exists) else (tree.name.lower(), tree.expressions)
        if name in ("exists", "forall") and len(given) == 2 and isinstance(given[1], exp.Lambda):
            return self._quantified(name, given[0], given[1])
        if name in ("isnull", "isnotnull") and len(given) == 1:
            found = Expression("is_null", BOOLEAN, (self.any(given[0]),))
            return found if name == "isnull" else negation(found)
        raise Untranslatable(_sql(tree))

    def _quantified(self, name: str, over: exp.Expr, each: exp.Lambda) -> Expression:
        array = self.any(over)
        if not pa.types.is_list(array.type) or len(each.expressions) != 1:
            raise Untranslatable(f"{name}() of {name_of(array.type)}")
        variable = each.expressions[0].name
        if variable.lower() in {other.lower() for other in (*self._columns, *self._variables)}:
            raise Untranslatable(f"the lambda variable {variable!r}, which is also a column or another variable")
        self._variables[variable] = array.type.value_type
        try:
            return Expression(name, BOOLEAN, (array, self.truth(each.this)), variable)
        finally:
            del self._variables[variable]


def _field(parent: Expression, name: str) -> Expression:
    if not pa.types.is_struct(parent.type) or parent.type.get_field_index(name) < 0:
        raise Untranslatable(f"{name!r}, which is no field of {name_of(parent.type)}")
    return Expression("field", parent.type.field(name).type, (parent,), name)


def refuse_raising_patterns(tree: exp.Expr) -> None:
    """Raises RuleRaises for a pattern that is invalid, or that is no literal, so that a value may make it invalid."""
    for node in tree.find_all(exp.Like, exp.RegexpLike, exp.Anonymous):
        if isinstance(node, exp.Anonymous):
            if node.name.lower() != "regexp" or len(node.expressions) != 2:
                continue
            text, pattern = node.expressions
        else:
            text, pattern = node.this, node.expression
        if _is_text_literal(pattern):
            if not isinstance(node, exp.Like) and "\\" not in pattern.name:
                with suppress(Untranslatable):
                    re2_patterns(pattern.name)
        elif not _is_text_literal(text) and not isinstance(pattern, exp.Any | exp.All | exp.Null):  # like('a%', s) has them swapped
            raise RuleRaises(f"{_sql(node)}: the pattern is no literal, and some texts are no patterns")


def _pattern(tree: exp.Like | exp.RegexpLike) -> str:
    if not _is_text_literal(tree.expression):
        raise Untranslatable(_sql(tree))
    return str(tree.expression.name)


def _is_text_literal(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Literal) and tree.is_string


def _sql(tree: exp.Expr) -> str:
    return tree.sql("spark")[:80]


_PREDICATES = (*COMPARISONS, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like, exp.RegexpLike)

_NODES: dict[type[exp.Expr], Callable[[Compiler, Any], Expression]] = {
    exp.Paren: lambda c, tree: c.any(tree.this),
    exp.Column: Compiler.column,
    exp.Identifier: Compiler.column,
    exp.Dot: Compiler.dot,
    exp.Bracket: Compiler.entry,
    **dict.fromkeys((exp.Literal, exp.Boolean, exp.Null), lambda c, tree: constant(tree)),
    exp.Cast: lambda c, tree: time(tree),
    **dict.fromkeys((exp.And, exp.Or), Compiler.logic),
    exp.Not: lambda c, tree: negation(c.truth(tree.this)),
    exp.Is: Compiler.is_,
    **dict.fromkeys(COMPARISONS, lambda c, tree: comparison(type(tree), *c.both(tree))),
    exp.Between: Compiler.between,
    exp.In: Compiler.in_,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), lambda c, tree: arithmetic(type(tree), *c.both(tree))),
    exp.Div: lambda c, tree: division(*c.both(tree)),
    exp.Mod: lambda c, tree: remainder(*c.both(tree)),
    exp.Neg: Compiler.negated,
    exp.Abs: lambda c, tree: signed("absolute", c.any(tree.this)),
    exp.Like: Compiler.like,
    exp.RegexpLike: Compiler.matches,
    exp.Length: lambda c, tree: Expression("length", INT, (c.text(tree.this),)),
    exp.Trim: Compiler.trimmed,
    **dict.fromkeys((exp.Lower, exp.Upper), Compiler.case_mapped),
    **dict.fromkeys((exp.StartsWith, exp.EndsWith, exp.Contains), Compiler.found_in),
    exp.Coalesce: Compiler.coalesce,
    exp.Nullif: Compiler.null_if,
    exp.If: Compiler.if_,
    exp.Case: Compiler.case,
    **dict.fromkeys((exp.Year, exp.Month, exp.Day, exp.DayOfMonth), Compiler.time_part),
    exp.ArraySize: Compiler.size,
    **dict.fromkeys((exp.Exists, exp.Anonymous), Compiler.called),
}
# The parts of each node that are understood. sqlglot keeps NOT LIKE, SYMMETRIC and LEADING as parts, which are easily overlooked.
_PARTS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Identifier: ("this", "quoted"),
    exp.Literal: ("this", "is_string"),
    exp.Cast: ("this", "to"),
    exp.Between: ("this", "low", "high"),
    exp.Div: ("this", "expression", "typed", "safe"),
    exp.Like: ("this", "expression", "negate"),
    exp.Trim: ("this", "position"),
    exp.If: ("this", "true", "false"),
    exp.Case: ("ifs", "default"),
}
