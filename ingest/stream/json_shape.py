"""The shape of a JSON text that `from_json` reads exactly: one regular expression in place of all second looks.

Most records are compact objects that hold what the contract says. A text that matches holds UTF-8 and one complete object, only fields
that may be there, for each a token that its type allows, no more digits than the type keeps, and times in the contract's notation. What
such a text can still have at fault is asked of the parsed values: a field that is missing, a day that the calendar does not have, a key
of a map given twice. All other texts, right or wrong, are looked at closely (json_value.py); so a pattern may be too narrow, never too
wide.

Repeated groups are possessive: Java walks those in a loop, all others by recursion, as deep as a text is long. A repeated class of
characters is greedy and ends where it cannot go on: for that Java has a loop of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import types as T

# Control characters inside are refused by the parser, bytes that are no UTF-8 by whoever asks. Escapes: not half a character.
ESCAPE = r'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})'
TEXT = rf'"[^"\\]*(?:{ESCAPE}[^"\\]*)*+"'
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# Years for which no zone leads out of the calendar; a day or minute that there is not becomes NULL in the cast.
DATE = r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
CLOCK = rf"{DATE}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:[.][0-9]{{1,6}})?"
ZONE = r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
# Fewer digits than the greatest value has.
DIGITS = {T.ByteType: 2, T.ShortType: 4, T.IntegerType: 9, T.LongType: 18}
NUMBER = r"-?(?:0|[1-9][0-9]{0,17})(?:[.][0-9]{1,17})?"

Fields = Sequence[tuple[str, T.DataType]]


def in_order(fields: Fields) -> str | None:
    """Objects whose fields come in the order of the columns, each at most once; None if a column's type has no shape."""
    members = _members(fields)
    if members is None:
        return None
    # After a member either a comma and a next one, or the end.
    return rf"^\{{{''.join(f'(?:{member}{_NEXT})?+' for member in members)}\}}\z"


def in_any_order(fields: Fields, *, others: bool) -> str | None:
    """Objects whose fields come in any order, also doubled ones; with `others` also fields that are no column, if they are scalars."""
    members = _members(fields)
    if members is None:
        return None
    if others:
        names = "|".join(name for name, _ in fields)
        members.append(rf'"(?!(?:{names})")[^"\\]*": ?(?:{TEXT}|{NUMBER}|true|false|null)')
    return rf"^\{{(?:(?:{'|'.join(members)}){_NEXT})*+\}}\z"


_NEXT = r'(?:, ?(?=")|(?=\}))'


def _members(fields: Fields) -> list[str] | None:
    members = []
    for name, kind in fields:
        value = _value(kind, top=True)
        if value is None or re.fullmatch(NAME, name) is None:
            return None
        members.append(rf'"{name}": ?(?:{value}|null)')
    return members


def _value(kind: T.DataType, *, top: bool = False) -> str | None:
    """The tokens of a value that is not null; None where the parsed value alone would not tell what is wrong."""
    match kind:
        case T.StringType():
            return TEXT
        case T.BooleanType():
            return "true|false"
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return rf"-?(?:0|[1-9][0-9]{{0,{DIGITS[type(kind)] - 1}}})"
        case T.DecimalType():
            number = _decimal(kind)
            return rf'{number}|"{number}"'
        case T.FloatType() | T.DoubleType():
            return NUMBER
        case T.DateType() if top:
            return rf'"{DATE}"'
        case T.TimestampType() if top:
            return rf'"{CLOCK}{ZONE}"'
        case T.TimestampNTZType() if top:
            return rf'"{CLOCK}"'
        case T.ArrayType():
            item = _value(kind.elementType)
            return None if item is None else rf"\[(?:(?:{item}|null)(?:, ?(?!\])|(?=\])))*+\]"
        case T.StructType():
            members = _members([(f.name, f.dataType) for f in kind.fields]) if _flat_times(kind) else None
            return None if members is None else rf"\{{(?:(?:{'|'.join(members)}){_NEXT})*+\}}"
        case T.MapType(keyType=T.StringType()) if top:
            # Whether a key is given twice is asked of the parsed map.
            item = _value(kind.valueType)
            return None if item is None else rf"\{{(?:{TEXT}: ?(?:{item}|null){_NEXT})*+\}}"
    return None


def _flat_times(kind: T.StructType) -> bool:
    """Whether a struct holds neither a time nor a field that must be there: both are looked for below the top level only closely."""
    return all(f.nullable and not isinstance(f.dataType, T.DateType | T.TimestampType | T.TimestampNTZType) for f in kind.fields)


def _decimal(kind: T.DecimalType) -> str:
    whole = kind.precision - kind.scale
    before = rf"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
    return rf"-?{before}" + (rf"(?:[.][0-9]{{1,{kind.scale}}})?" if kind.scale else "")
