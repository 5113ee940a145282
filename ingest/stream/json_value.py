"""From JSON text to exact column values: for each Spark SQL type, how it is parsed, converted, and found at fault.

Spark's own reader rounds decimals in silence, reads `"1,5"` as 15, `12:30` as a time of today, numbers as seconds, 200 as a
TINYINT of -56, and any JSON as a STRING. So what it cannot be trusted with is parsed as something wider here and converted
under our eyes (docs/contracts.md has the rules):

- wire_type: the type that `from_json` is given
- value: the column's value; right unless something is at fault
- fault: NULL, or the reason code of what is wrong with the parsed value
- token_type, token_fault: the same for what only the JSON token shows (5 or "5"). Slow, so `suspicious` says when to look
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

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

# \z, not $: in Java's expressions a line feed may follow $.
NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?\z"
CLOCK = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,6}0*)?"
ZONED = rf"^{CLOCK}(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})\z"
UNZONED = rf"^{CLOCK}\z"
DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
# Years 0 and 10000, which a zone can make of 1 and 9999: neither Python nor SQL's own definition of a date has them.
FIRST, LAST = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"

# Text that a number, a boolean, an object or an array leaves behind when it is parsed as STRING. Of the last two the beginning is
# enough: in Java's expressions a dot stops at each of Unicode's line ends, which JSON allows within a string.
LOOKS_UNQUOTED = r"^(?:(?:-?[0-9.eE+-]+|true|false|\"-?Infinity\")$|[{\[])"

TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)


def wire_type(kind: T.DataType) -> T.DataType:
    """The type that `from_json` parses a value of `kind` as."""
    if isinstance(kind, T.DecimalType):
        # All digits that DECIMAL has go to the fraction, so that excess ones are seen; what exceeds even these is suspicious.
        return T.DecimalType(38, _wire_scale(kind))
    if isinstance(kind, TIMES):
        return T.StringType()
    if isinstance(kind, T.ByteType):
        return T.ShortType()  # the parser's getByteValue takes 128 to 255 and wraps
    return _rebuilt(kind, wire_type)


def token_type(kind: T.DataType) -> T.DataType:
    """The type that shows the JSON tokens of STRING and DECIMAL values: VARIANT."""
    return T.VariantType() if isinstance(kind, T.StringType | T.DecimalType) else _rebuilt(kind, token_type)


def value(kind: T.DataType, wire: Column) -> Column:
    """The column's value: right unless `fault` or `token_fault` finds something. One cast does a whole nested value."""
    return wire if wire_type(kind) == nullable(kind) else wire.cast(nullable(kind))


def fault(kind: T.DataType, wire: Column, *, nullable: bool = True) -> Column | None:
    """The reason code of what is wrong with a parsed value, NULL if nothing is; None if nothing can be."""
    own = _fault_of_value(kind, wire)
    if own is not None and isinstance(kind, T.ArrayType | T.MapType | T.StructType) and _only_decimals_can_fail(kind):
        # A cast there and back is one compiled expression; looking into each item is not.
        own = F.when(~wire.eqNullSafe(value(kind, wire).cast(wire_type(kind))), own)
    if nullable:
        return own
    missing = F.when(wire.isNull(), F.lit("missing_value"))
    return missing if own is None else F.coalesce(missing, own)


def _fault_of_value(kind: T.DataType, wire: Column) -> Column | None:
    if isinstance(kind, T.DecimalType):
        inexact = ~wire.eqNullSafe(wire.cast(kind).cast(wire_type(kind)))
        return F.when(inexact, F.when(wire.cast(kind).isNull(), F.lit(OUT_OF_RANGE)).otherwise(F.lit(TOO_PRECISE)))
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        pattern = ZONED if isinstance(kind, T.TimestampType) else UNZONED
        return F.when(wire.isNotNull() & ~_is_time(kind, wire, pattern), F.lit(BAD_TIMESTAMP))
    if isinstance(kind, T.DateType):
        return F.when(wire.isNotNull() & ~_is_time(kind, wire, DATE), F.lit(BAD_DATE))
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


def _is_time(kind: T.DataType, text: Column, pattern: str) -> Column:
    first, last = (F.lit(edge).cast(kind) for edge in (FIRST, LAST))
    return F.coalesce(text.rlike(pattern) & text.cast(kind).between(first, last), F.lit(False))


def _first_fault(kind: T.DataType, nullable: bool, items: Column) -> Column | None:
    """The first fault among `items`, which are looked at one by one."""
    if fault(kind, F.lit(None), nullable=nullable) is None:
        return None
    codes = F.transform(items, lambda item: fault(kind, item, nullable=nullable))  # type: ignore[arg-type,return-value]
    return F.get(F.filter(codes, lambda code: code.isNotNull()), 0)


def token_fault(kind: T.DataType, token: Column) -> Column | None:
    """The reason code of a JSON token that the column's type does not allow, NULL if it does; None if any token is right."""
    if isinstance(kind, T.StringType):
        return F.when(~F.schema_of_variant(token).isin("STRING", "VOID"), F.lit(WRONG_TYPE))
    if isinstance(kind, T.DecimalType):
        return _decimal_token_fault(kind, token)
    if isinstance(kind, T.StructType):
        parts = [token_fault(f.dataType, token[f.name]) for f in kind.fields]
        known = [part for part in parts if part is not None]
        return F.coalesce(*known) if known else None
    if isinstance(kind, T.ArrayType | T.MapType):
        inner = kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType
        if token_fault(inner, F.lit(None)) is None:
            return None
        items = token if isinstance(kind, T.ArrayType) else F.map_values(token)
        codes = F.transform(items, lambda item: token_fault(inner, item))  # type: ignore[arg-type,return-value]
        return F.get(F.filter(codes, lambda code: code.isNotNull()), 0)
    return None


def _decimal_token_fault(kind: T.DecimalType, token: Column) -> Column:
    # The text of a number token is exact unless it became a double: it had an exponent, or more than 38 digits.
    text = token.cast("string")
    fits = rf"^-?(?:0|[1-9][0-9]*)(?:[.](?=[0-9])[0-9]{{0,{kind.scale}}}0*)?\z"
    double = F.schema_of_variant(token) == "DOUBLE"
    exact = text.rlike(fits) & text.try_cast(kind).isNotNull() & ~double
    whole_digits = F.length(F.regexp_extract(text, "^-?([0-9]+)", 1))
    code = (
        F.when(double, F.lit(NOT_PLAIN))
        .when(~text.rlike(NUMBER), F.lit(WRONG_TYPE))
        .when(text.rlike("[eE]"), F.lit(NOT_PLAIN))
        .when(whole_digits > kind.precision - kind.scale, F.lit(OUT_OF_RANGE))
        .otherwise(F.lit(TOO_PRECISE))
    )
    return F.when(text.isNotNull() & ~F.coalesce(exact, F.lit(False)), code)


def suspicious(fields: Sequence[tuple[str, T.DataType]], text: Column, wire: Mapping[str, Column]) -> Column:
    """Whether a STRING or DECIMAL of the record could hold a wrong token; also true of some right records.

    Tokens are told by the name before them in the JSON `text`; where an item of an array or map has no name, by its parsed text.
    """
    named = [leaf for name, kind in fields for leaf in _leaves(name, kind)]
    strings = sorted({name for name, kind in named if name and isinstance(kind, T.StringType)})
    decimals = {name: kind for name, kind in named if name and isinstance(kind, T.DecimalType)}
    of_strings = [rf'(?:{"|".join(strings)})"\s*:\s*[^"n\s]'] if strings else []
    of_decimals = []
    if decimals:
        digits = min(_wire_scale(kind) for _, kind in named if isinstance(kind, T.DecimalType)) + 1
        number = rf"-?[0-9]*(?:[.][0-9]{{{digits},}}|[.]?[0-9]*[eE])"
        # Money is often given as text. Text that is a plain number with few digits is read exactly, so that only other text is looked at.
        fraction = rf"(?:[.][0-9]{{1,{digits - 1}}})?" if digits > 1 else ""
        text_of_number = rf'"(?!-?(?:0|[1-9][0-9]{{0,17}}){fraction}")'
        of_decimals.append(rf'(?:{"|".join(sorted(decimals))})"\s*:\s*(?:{text_of_number}|{number})')
    # An escape could hide a name.
    found = F.contains(text, F.lit("\\u")) | _rlike(text, [*of_strings, *of_decimals])
    for name, kind in fields:
        if any(leaf is None and isinstance(inner, T.StringType | T.DecimalType) for leaf, inner in _leaves(name, kind)):
            found |= F.coalesce(_unnamed_suspicious(kind, wire[name]), F.lit(False))
    return found


def _rlike(text: Column, patterns: Sequence[str]) -> Column:
    # One literal character begins the pattern: the search costs little where nothing is found.
    return text.rlike(rf'"(?:{"|".join(patterns)})') if patterns else F.lit(False)


def _leaves(name: str | None, kind: T.DataType) -> Iterator[tuple[str | None, T.DataType]]:
    """Scalars with the JSON name that stands right before their token; None for items of arrays and maps."""
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            yield from _leaves(field.name, field.dataType)
    elif isinstance(kind, T.ArrayType | T.MapType):
        yield from _leaves(None, kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType)
    else:
        yield name, kind


def _unnamed_suspicious(kind: T.DataType, wire: Column) -> Column:
    """The items of an array or map of strings are looked at; anything deeper, or of decimals, is suspicious wherever it is."""
    inner = kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType if isinstance(kind, T.MapType) else None
    if isinstance(inner, T.StringType):
        items = wire if isinstance(kind, T.ArrayType) else F.map_values(wire)
        return F.exists(items, lambda item: item.rlike(LOOKS_UNQUOTED))
    return wire.isNotNull()


def _only_decimals_can_fail(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(field.nullable and _only_decimals_can_fail(field.dataType) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return kind.containsNull and _only_decimals_can_fail(kind.elementType)
    if isinstance(kind, T.MapType):
        return False
    return isinstance(kind, T.DecimalType) or _fault_of_value(kind, F.lit(None)) is None


def _wire_scale(kind: T.DecimalType) -> int:
    return 38 - (kind.precision - kind.scale)


def nullable(kind: T.DataType) -> T.DataType:
    """The same type with every value nullable, as `from_json` gives it."""
    return _rebuilt(kind, nullable)


def _rebuilt(kind: T.DataType, inner: Callable[[T.DataType], T.DataType]) -> T.DataType:
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, inner(f.dataType)) for f in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(inner(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), inner(kind.valueType))
    return kind
