"""From JSON text to exact column values: for each Spark SQL type, how it is parsed, converted, and found at fault.

Spark's own reader rounds decimals in silence, reads `12:30` as a time of today, numbers as seconds, 200 as a TINYINT of
-56 and any JSON as a STRING. So what it cannot be trusted with is parsed as text and converted here (docs/contracts.md has
the rules). Three functions of a type, all free of Python at run time:

- wire_type: the type that `from_json` is given
- value: the column's value, NULL where it is at fault
- fault: NULL, or the reason code
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

WRONG_TYPE = "wrong_type"
OUT_OF_RANGE = "number_out_of_range"
TOO_PRECISE = "number_too_precise"
NOT_PLAIN = "number_not_plain"
BAD_TIMESTAMP = "bad_timestamp"
BAD_DATE = "bad_date"
DUPLICATE_KEY = "duplicate_key"

NUMBER = r"^-?([0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?|Infinity)$"
CLOCK = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?"
ZONED = rf"^{CLOCK}(Z|[+-][0-9]{{2}}:[0-9]{{2}})$"
UNZONED = rf"^{CLOCK}$"
DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
# Text that a number, a boolean, an object or an array would have left behind in a STRING column.
LOOKS_UNQUOTED = r"^(-?[0-9.eE+-]+|true|false|\"-?Infinity\"|[{\[].*)$"


def wire_type(kind: T.DataType, *, strings_as: T.DataType | None = None) -> T.DataType:
    """The type that `from_json` parses a value of `kind` as; `strings_as` replaces STRING (see `string_tokens`)."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, wire_type(f.dataType, strings_as=strings_as)) for f in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(wire_type(kind.elementType, strings_as=strings_as))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), wire_type(kind.valueType, strings_as=strings_as))
    if isinstance(kind, T.StringType):
        return strings_as or kind
    if isinstance(kind, T.DecimalType):
        return T.VariantType()  # the only one that keeps all digits of a number: STRING goes through a double
    if isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        return T.StringType()
    if isinstance(kind, T.ByteType):
        return T.ShortType()  # the parser's getByteValue takes 128 to 255 and wraps
    return kind


def value(kind: T.DataType, wire: Column) -> Column:
    """The exact value of `kind` for a parsed `wire` value that `fault` finds nothing wrong with."""
    if isinstance(kind, T.DecimalType):
        return wire.cast("string").try_cast(kind)
    if isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType | T.ByteType):
        return wire.try_cast(kind)
    if not needs_conversion(kind):
        return wire
    if isinstance(kind, T.StructType):
        fields = [value(f.dataType, wire[f.name]).alias(f.name) for f in kind.fields]
        return F.when(wire.isNotNull(), F.struct(*fields))
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(wire, lambda item: value(element, item))
    assert isinstance(kind, T.MapType)
    inner = kind.valueType
    return F.transform_values(wire, lambda _, item: value(inner, item))


def fault(kind: T.DataType, wire: Column, *, nullable: bool = True) -> Column | None:
    """The reason code of what is wrong with a parsed value, NULL if nothing is; None if nothing can be."""
    own = _fault_of_value(kind, wire)
    if nullable:
        return own
    missing = F.when(absent(kind, wire), F.lit("missing_value"))
    return missing if own is None else F.coalesce(missing, own)


def absent(kind: T.DataType, wire: Column) -> Column:
    """Whether the field is missing or null; a JSON null parsed as VARIANT is a value of its own kind."""
    return (wire.cast("string") if isinstance(kind, T.DecimalType) else wire).isNull()


def _fault_of_value(kind: T.DataType, wire: Column) -> Column | None:
    if isinstance(kind, T.DecimalType):
        return _decimal_fault(kind, wire)
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        pattern = ZONED if isinstance(kind, T.TimestampType) else UNZONED
        return F.when(~(wire.rlike(pattern) & wire.try_cast(kind).isNotNull()), F.lit(BAD_TIMESTAMP))
    if isinstance(kind, T.DateType):
        return F.when(~(wire.rlike(DATE) & wire.try_cast(kind).isNotNull()), F.lit(BAD_DATE))
    if isinstance(kind, T.ByteType):
        return F.when((wire < -128) | (wire > 127), F.lit(OUT_OF_RANGE))
    if isinstance(kind, T.FloatType | T.DoubleType):
        # JSON has no NaN and no infinity: NaN came as a string, an infinity from a number too large.
        infinite = F.abs(wire) == F.lit(float("inf")).cast(kind)
        return F.when(F.isnan(wire), F.lit(WRONG_TYPE)).when(infinite, F.lit(OUT_OF_RANGE))
    if isinstance(kind, T.StructType):
        faults = [fault(f.dataType, wire[f.name], nullable=f.nullable) for f in kind.fields]
        known = [found for found in faults if found is not None]
        return F.when(wire.isNotNull(), F.coalesce(*known)) if known else None
    if isinstance(kind, T.ArrayType):
        return _first_fault(kind.elementType, kind.containsNull, wire)
    if isinstance(kind, T.MapType):
        keys = F.map_keys(wire)
        doubled = F.when(F.size(keys) != F.size(F.array_distinct(keys)), F.lit(DUPLICATE_KEY))
        inner = _first_fault(kind.valueType, kind.valueContainsNull, F.map_values(wire))
        return doubled if inner is None else F.coalesce(doubled, inner)
    return None


def _first_fault(kind: T.DataType, nullable: bool, items: Column) -> Column | None:
    if fault(kind, F.lit(None), nullable=nullable) is None:
        return None

    def of(item: Column) -> Column:
        found = fault(kind, item, nullable=nullable)
        assert found is not None
        return found

    # exists() stops at the first; only then is the code itself looked for.
    at_fault = F.exists(items, lambda item: of(item).isNotNull())
    return F.when(at_fault, F.get(F.filter(F.transform(items, of), lambda code: code.isNotNull()), 0))


def needs_conversion(kind: T.DataType) -> bool:
    """Whether a parsed value differs from the column's."""
    return wire_type(kind) != _nullable(kind)


def _nullable(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, _nullable(f.dataType)) for f in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _nullable(kind.valueType))
    return kind


def _decimal_fault(kind: T.DecimalType, token: Column) -> Column:
    # The text of a number token is exact unless it became a double: it had an exponent, or more than 38 digits.
    text = token.cast("string")
    fits = rf"^-?(0|[1-9][0-9]*)([.][0-9]{{0,{kind.scale}}}0*)?$"
    exact = text.rlike(fits) & text.try_cast(kind).isNotNull() & (F.schema_of_variant(token) != "DOUBLE")
    whole_digits = F.length(F.regexp_extract(text, "^-?([0-9]+)", 1))
    return F.when(
        text.isNotNull() & ~F.coalesce(exact, F.lit(False)),
        F.when(~text.rlike(NUMBER), F.lit(WRONG_TYPE))
        .when(text.rlike("[eE]") | (F.schema_of_variant(token) == "DOUBLE"), F.lit(NOT_PLAIN))
        .when(whole_digits > kind.precision - kind.scale, F.lit(OUT_OF_RANGE))
        .otherwise(F.lit(TOO_PRECISE)),
    )


def looks_unquoted(kind: T.DataType, wire: Column) -> Column:
    """Whether a STRING inside the value has text that something other than a JSON string could have left. Cheap."""
    return _any_string(kind, wire, lambda text: text.rlike(LOOKS_UNQUOTED))


def unquoted(kind: T.DataType, tokens: Column) -> Column:
    """Whether a STRING inside the value was no JSON string, judged on `tokens`, parsed with STRING as VARIANT. Exact, but slow."""
    return _any_string(kind, tokens, lambda token: ~F.schema_of_variant(token).isin("STRING", "VOID"))


def _any_string(kind: T.DataType, parsed: Column, test: Callable[[Column], Column]) -> Column:
    if isinstance(kind, T.StringType):
        return F.coalesce(test(parsed), F.lit(False))
    if isinstance(kind, T.StructType):
        parts = [_any_string(f.dataType, parsed[f.name], test) for f in kind.fields if has_string(f.dataType)]
        return reduce(lambda a, b: a | b, parts, F.lit(False))
    if isinstance(kind, T.ArrayType | T.MapType) and has_string(kind):
        inner = kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType
        items = parsed if isinstance(kind, T.ArrayType) else F.map_values(parsed)
        return F.coalesce(F.exists(items, lambda item: _any_string(inner, item, test)), F.lit(False))
    return F.lit(False)


def has_string(kind: T.DataType) -> bool:
    """Whether a value of this type holds a STRING (the keys of a MAP are strings in any JSON)."""
    if isinstance(kind, T.StructType):
        return any(has_string(f.dataType) for f in kind.fields)
    if isinstance(kind, T.ArrayType):
        return has_string(kind.elementType)
    if isinstance(kind, T.MapType):
        return has_string(kind.valueType)
    return isinstance(kind, T.StringType)
