"""Parse one JSON record exactly: its values, or the reason why it is not an event. docs/reference/contracts.md has the rules.

Python's own parser splits the text. Numbers stay text, so that nothing is rounded before it is checked. Objects stay lists of pairs, so
that a repeated field is found. This is slower than a typed decoder, and decides about every record that the typed one does not accept.
"""

from __future__ import annotations

import binascii
import codecs
import json
import math
import re
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

WRONG_TYPE = "wrong_type"
OUT_OF_RANGE = "number_out_of_range"
TOO_PRECISE = "number_too_precise"
NOT_PLAIN = "number_not_plain"
BAD_TIMESTAMP = "bad_timestamp"
BAD_DATE = "bad_date"
DUPLICATE_KEY = "duplicate_key"

DEPTH_MAX = 1_000
# Python allows a thousand nested calls, and its parser needs one per level of the text. Fewer brackets than this stay below that limit.
BRACKETS_MANY = 100

# An escaped high surrogate without a low one after it, or a low one without a high one before it: half of a character, which has no text.
HALF_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(?:[.]([0-9]+))?([eE][+-]?[0-9]+)?", re.ASCII)
BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
CLOCK = rf"({DAY}[T ](?:[01][0-9]|2[0-3]):[0-9]{{2}}:[0-9]{{2}})(?:[.]([0-9]{{1,6}})0*)?"
# Python adds any two digits up as minutes of a zone: +05:75 would be +06:15.
ZONED, UNZONED = re.compile(rf"{CLOCK}(Z|[+-][0-9]{{2}}:[0-5][0-9])"), re.compile(rf"{CLOCK}()")
ZONE_MAX = timedelta(hours=18)
# The longer ones first: UTF-32's begins with UTF-16's.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# More digits than any DECIMAL has, so that nothing is rounded.
EXACT = Context(prec=100)


class DecodeFault(Exception):
    """The reason why a record is not an event: a reason code, and as `detail` the column or the subject.

    `event_id` has the columns of the event id, if they could be read.
    """

    def __init__(self, code: str, detail: str = "", event_id: Mapping[str, Any] | None = None) -> None:
        super().__init__(code, detail)
        self.code, self.detail, self.event_id = code, detail, event_id or {}


class Number(str):
    """A JSON number as written."""


class Object(list[tuple[str, Any]]):
    """A JSON object's fields in order, including repeated ones."""


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


Reader = Callable[[Any], Any]
"""Converts a parsed value that is not null to the column's value. Raises DecodeFault without a detail."""


class ExactReader:
    """Reads JSON texts as events of `schema`, which has the columns' types and nullability.

    `unknown` is the contract's `unknown_fields`. With `keep` an event also has `_unknown`: None, or pairs of name and text.
    """

    def __init__(self, schema: pa.Schema, event_id: Sequence[str], unknown: str) -> None:
        self._columns = {field.name: (_reader(field.type), field.nullable) for field in schema}
        self._event_id, self._unknown = event_id, unknown
        # Not at module level: a module that goes to workers by value cannot contain it.
        self._parse = json.JSONDecoder(object_pairs_hook=Object, parse_float=Number, parse_int=Number, parse_constant=_no_constant).decode

    def read(self, value: bytes | None) -> dict[str, Any]:
        """The event's values by column. Raises DecodeFault.

        In a complete object without repeated fields, a fault of the event id takes precedence over all others.
        """
        if value is None or value.count(b"[") + value.count(b"{") < BRACKETS_MANY:
            return self._event(value)
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + 5 * DEPTH_MAX)
        try:
            return self._event(value)
        finally:
            sys.setrecursionlimit(limit)

    def _event(self, value: bytes | None) -> dict[str, Any]:
        fields = _fields(value, self._parse)
        try:
            event = _once(fields)
        except DecodeFault as fault:
            raise DecodeFault(fault.code, "a field is given twice") from fault
        for name in self._event_id:
            if event.get(name) is None:
                raise DecodeFault("missing_event_id", f"{name} is missing or null")
        read = {name: _read(name, event.get(name), *self._columns[name]) for name in self._event_id}
        try:
            for name, column in self._columns.items():
                read[name] = _read(name, event.get(name), *column)
            others = [name for name in event if name not in self._columns] if self._unknown != "ignore" else []
            if others and self._unknown == "quarantine":
                raise DecodeFault("unknown_field", ", ".join(others))
            if self._unknown == "keep":
                read["_unknown"] = [(name, _read(name, event[name], _text, True)) for name in others] or None
        except DecodeFault as fault:
            raise DecodeFault(fault.code, fault.detail, {name: read[name] for name in self._event_id}) from fault
        return read


def _fields(value: bytes | None, parse: Callable[[str], Any]) -> Object:
    if value is None:
        raise DecodeFault("tombstone", "the value is null")
    if not value:
        raise DecodeFault("empty", "the value has no bytes")
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise DecodeFault("not_utf8", _mark(value) or "the value") from error
    # Without the escaped backslashes every backslash starts an escape. The blanks keep two halves from becoming neighbours.
    if HALF_CHARACTER.search(text.replace("\\\\", " ")):
        raise DecodeFault("not_utf8", "an escape that is half of a character")
    is_object = text.lstrip(" \t\r\n").startswith("{")
    try:
        if _depth(text) > DEPTH_MAX:
            raise ValueError("too deep")
        found = parse(text)
    except ValueError as error:
        detail = "not one complete JSON object" if is_object else "no JSON object"
        raise DecodeFault("malformed_json", _mark(value) or detail) from error
    if not isinstance(found, Object):
        raise DecodeFault("not_an_object", "no JSON object")
    return found


def _mark(value: bytes) -> str:
    """The byte order mark with which the value begins, as a fault's detail; empty if there is none."""
    return next((f"it begins with a byte order mark ({name})" for mark, name in BYTE_ORDER_MARKS.items() if value.startswith(mark)), "")


def _once(fields: Object) -> dict[str, Any]:
    """The fields by name. Raises DecodeFault if one is given twice: to choose between their values would be a guess."""
    given = dict(fields)
    if len(given) != len(fields):
        raise DecodeFault(DUPLICATE_KEY)
    return given


def _depth(text: str) -> int:
    """The nesting depth of arrays and objects; 0 if there are too few brackets to exceed DEPTH_MAX."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return 0
    depth = deepest = 0
    for bracket in re.findall(r"[][{}]", JSON_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _text(value: Any) -> str:
    """The text of an unknown field that is kept. A string stays as it is, other values become JSON, numbers as written."""
    return value if type(value) is str else _json(value)


def _json(value: Any) -> str:
    if isinstance(value, Number):
        return value
    if isinstance(value, Object):
        return "{" + ",".join(f"{_json(name)}:{_json(item)}" for name, item in _once(value).items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _read(name: str, value: Any, reader: Reader, nullable: bool) -> Any:
    if value is None:
        if not nullable:
            raise DecodeFault("missing_value", name)
        return None
    try:
        return reader(value)
    except DecodeFault as fault:
        raise DecodeFault(fault.code, name) from fault


def _reader(kind: pa.DataType) -> Reader:
    if pa.types.is_integer(kind):
        return _integer(kind.bit_width)
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_floating(kind):
        return _single if kind.bit_width == 32 else _double
    if pa.types.is_timestamp(kind):
        return _time(ZONED if kind.tz else UNZONED)
    if pa.types.is_list(kind):
        return _array(_reader(kind.value_type))
    if pa.types.is_map(kind):
        return _map(_reader(kind.item_type))
    if pa.types.is_struct(kind):
        return _struct({kind.field(at).name: (_reader(kind.field(at).type), kind.field(at).nullable) for at in range(kind.num_fields)})
    return {pa.string(): _string, pa.bool_(): _boolean, pa.binary(): _binary, pa.date32(): _day}[kind]


def _integer(bits: int) -> Reader:
    def read(value: Any) -> int:
        match = NUMBER.fullmatch(value) if isinstance(value, Number) else None
        if match is None or match[2] or match[3]:
            raise DecodeFault(WRONG_TYPE)
        if len(value) > 20 or not -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1):
            raise DecodeFault(OUT_OF_RANGE)
        return int(value)

    return read


def _decimal(precision: int, scale: int) -> Reader:
    step = Decimal(1).scaleb(-scale)

    def read(value: Any) -> Decimal:
        match = NUMBER.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise DecodeFault(WRONG_TYPE)
        whole, fraction, exponent = match.groups(default="")
        if exponent or (isinstance(value, Number) and len(whole.lstrip("0") + fraction) > 38):
            raise DecodeFault(NOT_PLAIN)
        if len(whole.lstrip("0")) > precision - scale:
            raise DecodeFault(OUT_OF_RANGE)
        kept = fraction.rstrip("0")
        if len(kept) > scale:
            raise DecodeFault(TOO_PRECISE)
        found = Decimal(f"{'-' if value[0] == '-' else ''}{whole}.{kept}").quantize(step, context=EXACT)
        return found if found else abs(found)

    return read


def _double(value: Any) -> float:
    if not isinstance(value, Number):
        raise DecodeFault(WRONG_TYPE)
    found = float(value)
    if math.isinf(found):
        raise DecodeFault(OUT_OF_RANGE)
    return found


def _single(value: Any) -> float:
    """The FLOAT nearest to the number itself. Through the nearest double it would be rounded twice."""
    number = _double(value)
    try:
        (found,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError as error:
        raise DecodeFault(OUT_OF_RANGE) from error
    if found != number:
        (bits,) = struct.unpack("<i", struct.pack("<f", found))
        (other,) = struct.unpack("<f", struct.pack("<i", bits + (1 if abs(number) > abs(found) else -1)))
        # If `number` is halfway between two floats, the value itself may be nearer to the other one. Decimals compare exactly, with any
        # number of digits. Python refuses to parse an int or a Fraction from a text of more than 4,300 digits.
        if (found + other) / 2 == number and (Decimal(value) > Decimal(number) if other > found else Decimal(value) < Decimal(number)):
            found = other
    return float(found)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise DecodeFault(WRONG_TYPE)
    return value


def _is_string(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def _string(value: Any) -> str:
    if not _is_string(value):
        raise DecodeFault(WRONG_TYPE)
    return str(value)


def _binary(value: Any) -> bytes:
    if not (_is_string(value) and BASE64.fullmatch(value)):
        raise DecodeFault(WRONG_TYPE)
    return binascii.a2b_base64(value)


def _day(value: Any) -> date:
    try:
        if _is_string(value) and re.fullmatch(DAY, value, re.ASCII):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise DecodeFault(BAD_DATE)


def _time(pattern: re.Pattern[str]) -> Reader:
    def read(value: Any) -> datetime:
        match = pattern.fullmatch(value) if _is_string(value) else None
        try:
            if match is not None:
                found = datetime.fromisoformat(f"{match[1]}.{(match[2] or '0'):0<6}{match[3]}")
                offset = found.utcoffset()
                if offset is None:
                    return found
                if abs(offset) <= ZONE_MAX:
                    return found.astimezone(UTC)
        except (ValueError, OverflowError):  # no such time, or a zone offset that leaves the calendar
            pass
        raise DecodeFault(BAD_TIMESTAMP)

    return read


def _array(item: Reader) -> Reader:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list) or isinstance(value, Object):
            raise DecodeFault(WRONG_TYPE)
        return [None if each is None else item(each) for each in value]

    return read


def _map(item: Reader) -> Reader:
    def read(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, Object):
            raise DecodeFault(WRONG_TYPE)
        return [(name, None if each is None else item(each)) for name, each in _once(value).items()]

    return read


def _struct(fields: Mapping[str, tuple[Reader, bool]]) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Object):
            raise DecodeFault(WRONG_TYPE)
        given = _once(value)
        return {name: _read(name, given.get(name), reader, nullable) for name, (reader, nullable) in fields.items()}

    return read
