"""A row rule as a tree that pyarrow evaluates on Arrow batches, all rows at once, with the result of Spark's SQL (ANSI off, UTC).

Spark's Python workers get this module by value. It needs pyarrow and numpy only. arrow_rule.py makes the trees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Letters that are newer than Python's tables (Unicode 15 to 17, which Spark's ICU has), and those whose capital is newer.
_NEW_CAPITALS = {0x19B: 0xA7DC, 0x264: 0xA7CB, 0x1C8A: 0x1C89, 0xA7CD: 0xA7CC}
_NEW_CAPITALS |= {0xA7CF: 0xA7CE, 0xA7D3: 0xA7D2, 0xA7D5: 0xA7D4, 0xA7DB: 0xA7DA}
_NEW_CAPITALS |= {0x10D70 + at: 0x10D50 + at for at in range(22)} | {0x16EBB + at: 0x16EA0 + at for at in range(25)}
_NEW_SMALL = {capital: small for small, capital in _NEW_CAPITALS.items()}


@dataclass(frozen=True)
class Expression:
    """An operation on other expressions. `type` is the type of its values, as Spark would have it.

    `value` belongs to the operation: a literal's value, the name of a column, field or lambda variable, a map's key, a pattern, or the
    members of IN.
    """

    operation: str
    type: pa.DataType
    operands: tuple[Expression, ...] = ()
    value: Any = None


@dataclass(frozen=True)
class ArrowRule:
    """A predicate and the columns that it reads. Made by `compile_rule`; can be pickled."""

    columns: tuple[pa.Field, ...]
    predicate: Expression


def holds(rule: ArrowRule, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Whether each row meets the rule, never NULL. The predicate must be TRUE; NULL breaks it, as in Delta's CHECK.

    A column of another layout of the same values, such as large_string, is converted. Raises KeyError for a column that is missing.
    """
    columns = {field.name: _as(batch.column(field.name), field.type) for field in rule.columns}
    return pc.fill_null(_array(rule.predicate, _Rows(batch.num_rows, columns)), False)


class _Rows:
    """The columns that an expression sees: the batch's, or inside of a lambda the elements of all arrays as one column."""

    def __init__(self, count: int, columns: Mapping[str, pa.Array], around: _Rows | None = None, row: np.ndarray | None = None) -> None:
        """`row` has the row of `around` for each of these rows."""
        self.count = count
        self._columns, self._around, self._row = dict(columns), around, row

    def column(self, name: str) -> pa.Array:
        if name not in self._columns:
            assert self._around is not None, name
            self._columns[name] = self._around.column(name).take(pa.array(self._row))
        return self._columns[name]


def _array(expression: Expression, rows: _Rows) -> pa.Array:
    found = _evaluated(expression, rows)
    return found if isinstance(found, pa.Array) else pa.repeat(found, rows.count)


def _evaluated(expression: Expression, rows: _Rows) -> pa.Array | pa.Scalar:
    """The values of all rows; of a literal, the one value."""
    if expression.operation == "literal":
        return pa.scalar(expression.value, expression.type)
    if expression.operation == "column":
        return rows.column(expression.value)
    if expression.operation in ("exists", "forall"):
        return _quantified(expression, rows)
    operands = [_evaluated(operand, rows) for operand in expression.operands]
    if not any(isinstance(operand, pa.Array) for operand in operands):
        operands[0] = pa.repeat(operands[0], rows.count)
    return OPERATIONS[expression.operation](expression, *operands)


def _quantified(expression: Expression, rows: _Rows) -> pa.Array:
    """exists and forall with three values: one element may decide; else one NULL among the answers makes the result NULL."""
    array, test = expression.operands
    deciding = expression.operation == "exists"
    lists = _array(array, rows)
    missing = _numpy(pc.is_null(lists))
    row = np.repeat(np.arange(rows.count), np.where(missing, 0, np.diff(_numpy(lists.offsets))))
    elements = pc.list_flatten(lists)  # without the elements that are hidden below a NULL
    answers = _array(test, _Rows(len(elements), {expression.value: elements}, rows, row))
    decided = np.zeros(rows.count, bool)
    decided[row[_numpy(pc.fill_null(answers, not deciding)) == deciding]] = True
    unknown = missing.copy()
    if answers.null_count:
        unknown[row[_numpy(pc.is_null(answers))]] = True
    return pa.array(decided == deciding, pa.bool_(), mask=unknown & ~decided)


def _equal(a: pa.Array, b: pa.Array) -> pa.Array:
    """Spark's equality: NaN equals itself."""
    found = pc.equal(a, b)
    return pc.or_(found, pc.and_(pc.is_nan(a), pc.is_nan(b))) if pa.types.is_floating(a.type) else found


def _less(a: pa.Array, b: pa.Array) -> pa.Array:
    """Spark's order: NaN above all numbers, FALSE below TRUE."""
    if pa.types.is_boolean(a.type):
        return pc.and_(pc.invert(a), b)
    found = pc.less(a, b)
    return pc.or_(found, pc.and_(pc.invert(pc.is_nan(a)), pc.is_nan(b))) if pa.types.is_floating(a.type) else found


def _same(a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.or_(pc.and_(pc.is_null(a), pc.is_null(b)), pc.fill_null(_equal(a, b), False))


def _in(value: pa.Array, *members: pa.Array) -> pa.Array:
    return reduce(pc.or_kleene, (_equal(value, member) for member in members))


def _in_values(value: pa.Array, members: tuple[Any, ...]) -> pa.Array:
    return _null_where(pc.is_null(value), pc.is_in(value, pa.array(members, value.type)))


def _divide(a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.divide(a, _null_where(pc.equal(b, 0.0), b))  # x / 0 is NULL, x / -0.0 too


def _remainder(a: pa.Array, b: pa.Array) -> pa.Array:
    """The remainder has the sign of `a`. Arrow divides the least number by -1 to 0, so the sign of `b` is dropped."""
    b = pc.abs(_null_where(pc.equal(b, pa.scalar(0, b.type)), b))
    return pc.subtract(a, pc.multiply(pc.divide(a, b), b))


def _choose(*branches: pa.Array) -> pa.Array:
    """CASE: tests and results by turns, then the default."""
    found = branches[-1]
    for at in range(len(branches) - 3, -1, -2):
        found = pc.if_else(pc.fill_null(branches[at], False), branches[at + 1], found)
    return found


def _matches(text: pa.Array, patterns: tuple[str, str | None]) -> pa.Array:
    """RLIKE. The second pattern, if any, is for texts that end in CR LF: between the two Java's `$` does not match."""
    pattern, after_crlf = patterns
    found = pc.match_substring_regex(text, pattern)
    if after_crlf is not None:
        ends = pc.ends_with(text, "\r\n")
        if pc.any(ends).as_py():
            found = pc.if_else(ends, pc.match_substring_regex(text, after_crlf), found)
    return found


def _lower(text: str) -> str:
    return text.translate(_NEW_SMALL).lower()


def _upper(text: str) -> str:
    return text.translate(_NEW_CAPITALS).upper()


def _case_mapped(text: pa.Array, in_ascii: Callable[[pa.Array], pa.Array], mapped: Callable[[str], str]) -> pa.Array:
    """Arrow maps one character to one. Spark (ICU) and Python know that ß becomes SS, and the final sigma."""
    if pc.all(pc.string_is_ascii(text)).as_py() is not False:
        return in_ascii(text)
    return pa.array([None if each is None else mapped(each) for each in text.to_pylist()], pa.string())


def _size(values: pa.Array) -> pa.Array:
    return pa.array(np.where(_numpy(pc.is_null(values)), -1, np.diff(_numpy(values.offsets))), pa.int32())  # ANSI off: size(NULL) is -1


def _null_where(condition: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(pc.fill_null(condition, True), pa.scalar(None, values.type), values)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def _numpy(values: pa.Array) -> np.ndarray:
    return np.asarray(values.to_numpy(zero_copy_only=False))


# Whole numbers wrap around in Arrow as in Java. Casts only widen, so they need no check.
OPERATIONS: dict[str, Callable[..., pa.Array]] = {
    "field": lambda e, parent: pc.struct_field(parent, [e.value]),
    "entry": lambda e, parent: pc.map_lookup(parent, pa.scalar(e.value), "first"),
    "cast": lambda e, a: pc.cast(a, e.type, safe=False),
    "and": lambda e, *operands: reduce(pc.and_kleene, operands),
    "or": lambda e, *operands: reduce(pc.or_kleene, operands),
    "not": lambda e, a: pc.invert(a),
    "is_null": lambda e, a: pc.is_null(a),
    "equal": lambda e, a, b: _equal(a, b),
    "less": lambda e, a, b: _less(a, b),
    "same": lambda e, a, b: _same(a, b),
    "in": lambda e, value, *members: _in(value, *members),
    "in_values": lambda e, value: _in_values(value, e.value),
    "add": lambda e, a, b: _as(pc.add(a, b), e.type),
    "subtract": lambda e, a, b: _as(pc.subtract(a, b), e.type),
    "multiply": lambda e, a, b: _as(pc.multiply(a, b), e.type),
    "divide": lambda e, a, b: _divide(a, b),
    "remainder": lambda e, a, b: _remainder(a, b),
    "negate": lambda e, a: pc.negate(a),
    "absolute": lambda e, a: pc.abs(a),
    "like": lambda e, text: pc.match_like(text, e.value),
    "matches": lambda e, text: _matches(text, e.value),
    "starts_with": lambda e, text: pc.starts_with(text, e.value),
    "ends_with": lambda e, text: pc.ends_with(text, e.value),
    "contains": lambda e, text: pc.match_substring(text, e.value),
    "length": lambda e, text: pc.utf8_length(text),
    "trim": lambda e, text: pc.utf8_trim(text, " "),  # the blank, no other white space
    "trim_left": lambda e, text: pc.utf8_ltrim(text, " "),
    "trim_right": lambda e, text: pc.utf8_rtrim(text, " "),
    "lower": lambda e, text: _case_mapped(text, pc.ascii_lower, _lower),
    "upper": lambda e, text: _case_mapped(text, pc.ascii_upper, _upper),
    "coalesce": lambda e, *operands: pc.coalesce(*operands),
    "choose": lambda e, *branches: _choose(*branches),
    "year": lambda e, a: pc.cast(pc.year(a), e.type),
    "month": lambda e, a: pc.cast(pc.month(a), e.type),
    "day": lambda e, a: pc.cast(pc.day(a), e.type),
    "size": lambda e, a: _size(a),
}
