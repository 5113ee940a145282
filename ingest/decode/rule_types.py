"""Types of expressions in row rules: how Spark widens operands to a common type. What Arrow cannot match exactly is refused."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ingest.decode.rule_expression import Expression
from ingest.decode.rule_refusal import Untranslatable

BOOLEAN, INT, DOUBLE, TEXT = pa.bool_(), pa.int32(), pa.float64(), pa.string()
DIGITS_MAX = 38
WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
# The digits of a whole number beside a DECIMAL (Spark's DecimalType.forType).
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_NAMES = {BOOLEAN: "BOOLEAN", INT: "INT", DOUBLE: "DOUBLE", TEXT: "STRING", pa.int8(): "TINYINT", pa.int16(): "SMALLINT"}
_NAMES |= {pa.int64(): "BIGINT", pa.float32(): "FLOAT", pa.date32(): "DATE", pa.binary(): "BINARY", pa.null(): "NULL"}


def is_whole(kind: pa.DataType) -> bool:
    """Whether this is TINYINT, SMALLINT, INT or BIGINT."""
    return kind in WHOLE


def is_exact(kind: pa.DataType) -> bool:
    """Whether this is a whole number or a DECIMAL."""
    return is_whole(kind) or pa.types.is_decimal(kind)


def is_number(kind: pa.DataType) -> bool:
    """Whether this is a whole number, a DECIMAL, FLOAT or DOUBLE."""
    return is_exact(kind) or pa.types.is_floating(kind)


def is_ordered(kind: pa.DataType) -> bool:
    """Whether `=` and `<` of this type are translated."""
    return is_number(kind) or kind in (BOOLEAN, TEXT) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)


def literal(value: Any, kind: pa.DataType) -> Expression:
    """A constant as the text has it, or NULL."""
    return Expression("literal", kind, (), value)


def decimal(precision: int, scale: int) -> pa.DataType:
    """A DECIMAL. Above 38 digits Spark rounds or gives NULL."""
    if precision > DIGITS_MAX:
        raise Untranslatable(f"a DECIMAL of more than {DIGITS_MAX} digits, which Spark rounds")
    return pa.decimal128(precision, scale)


def digits(operand: Expression, *, own: bool = True) -> tuple[int, int]:
    """Precision and scale of a whole number or DECIMAL beside a DECIMAL.

    A literal whole number has its own digits (`own`) if it is an operand of arithmetic or of a comparison, else those of its type.
    """
    if not is_exact(operand.type):
        raise Untranslatable(f"{name_of(operand.type)} beside DECIMAL")
    if pa.types.is_decimal(operand.type):
        return operand.type.precision, operand.type.scale
    return (len(str(abs(operand.value))) if own and operand.operation == "literal" else _DIGITS[operand.type]), 0


def cast(operand: Expression, to: pa.DataType) -> Expression:
    """The operand in a wider type."""
    if operand.type == to:
        return operand
    if operand.operation == "literal":
        value = operand.value
        if value is not None and pa.types.is_floating(to):
            value = float(value)
        elif value is not None and pa.types.is_decimal(to):
            value = Decimal(value)
        return literal(value, to)
    if pa.types.is_decimal(operand.type) and pa.types.is_floating(to):
        raise Untranslatable("DECIMAL beside DOUBLE, where the last bit of a conversion may differ")
    return Expression("cast", to, (operand,))


def widened(operands: Sequence[Expression], *, own: bool = True) -> list[Expression]:
    """The operands in their common type. Types of different families are refused: Spark's casts between them have rules of their own."""
    kinds = [operand.type for operand in operands if not pa.types.is_null(operand.type)]
    if not kinds:
        raise Untranslatable("an expression of NULL only")
    return [cast(operand, _common(kinds, operands, own)) for operand in operands]


def _common(kinds: Sequence[pa.DataType], operands: Sequence[Expression], own: bool) -> pa.DataType:
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    if all(map(is_whole, kinds)):
        return max(kinds, key=WHOLE.index)
    if all(map(is_exact, kinds)):
        sizes = [digits(operand, own=own) for operand in operands if not pa.types.is_null(operand.type)]
        scale = max(scale for _, scale in sizes)
        return decimal(max(precision - scale for precision, scale in sizes) + scale, scale)
    if all(map(is_number, kinds)):
        if pa.float32() in kinds and any(map(is_whole, kinds)):
            raise Untranslatable("FLOAT beside a whole number, which Spark compares as FLOAT")
        return DOUBLE
    names = " and ".join(sorted({name_of(kind) for kind in kinds}))
    raise Untranslatable(f"{names} in one operation, which Spark casts; compare values of one type, such as DATE '2024-01-01' with a DATE")


def name_of(kind: pa.DataType) -> str:
    """The SQL name of a type, without the parameters of nested ones."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    return _NAMES.get(kind) or ("ARRAY" if pa.types.is_list(kind) else "MAP" if pa.types.is_map(kind) else "STRUCT")
