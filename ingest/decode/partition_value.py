"""Partition values: their text in a commit (Delta's PROTOCOL.md, Partition Value Serialization), and those that cannot be written.

A reader takes partition values from the commit, as text. The name of a file's folder only repeats them, escaped as Spark escapes it.
Workers get this module by value, so it imports nothing of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

UNWRITABLE = "unwritable"
# What Spark escapes in the name of a partition's folder (ExternalCatalogUtils.escapePathName).
ESCAPED = frozenset("\"#%'*/:=?\\{[]^") | {chr(code) for code in (*range(1, 0x20), 0x7F)}
# The folder of NULL. Spark makes NULL of this text.
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
# The limit of file systems for a name.
NAME_BYTES_MAX = 255
# All folders of a row together: a key of an object store has at most 1,024 bytes, with the lake's own path and the name of the file.
PATH_BYTES_MAX = 700
# The types in Delta's schema that a partition column may have, besides DECIMAL.
KINDS: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}


def kind_of(name: Any) -> pa.DataType | None:
    """The Arrow type for a type in Delta's schema; None if no partition column can have it."""
    if isinstance(name, str) and name.startswith("decimal("):
        precision, scale = name.removeprefix("decimal(").rstrip(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return KINDS.get(name) if isinstance(name, str) else None


def unwritable(rows: pa.Table | pa.RecordBatch, partition_by: Sequence[str]) -> tuple[np.ndarray, pa.Array]:
    """Which rows (bool, shape (rows,)) cannot be written, and for each of them the name of the column that is the cause.

    Such a value would come back as another one: the empty text is NULL in Delta. Or the name of its folder would be too long, which would
    stop the table for good.
    """
    mask, cause = np.zeros(rows.num_rows, bool), np.full(rows.num_rows, None, object)
    length = np.zeros(rows.num_rows, np.int64)
    for name in partition_by:
        codes, values = encoded(rows[name])
        # The last entry is that of NULL, whose code is -1.
        sizes = [_size(name, value, rows[name].type) for value in values] + [len(folder_name(name, None).encode()) + 1]
        length += np.array(sizes)[codes]
        wrong = (np.array(sizes)[codes] > NAME_BYTES_MAX + 1) | (length > PATH_BYTES_MAX)
        cause[wrong & ~mask] = name
        mask |= wrong
    return mask, pa.array(cause.tolist(), pa.string())


def folder_name(column: str, text: str | None) -> str:
    """The name of the folder of a partition value, such as `day=2026-01-01`."""
    return f"{_escaped(column)}={NULL_FOLDER if text is None else _escaped(text)}"


def text_of(value: Any) -> str | None:
    """A partition value as the text of an add action; None for NULL. Raises ValueError for a value without a text."""
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            moment = value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return moment.isoformat(" ") if value.tzinfo is None else f"{moment.isoformat('T', 'microseconds')}Z"
        case date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.decode()
        case float():
            return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
        case None | str() | int():
            return None if value is None else str(value)
        case _:
            raise ValueError(f"no partition value: {value!r}")


def value_of(text: str | None, kind: pa.DataType) -> Any:
    """A partition value from its text, as any engine writes it; the empty text is NULL. Raises ValueError."""
    t = pa.types
    if not text:
        return None
    if t.is_boolean(kind):
        if text.lower() not in ("true", "false"):
            raise ValueError(f"no BOOLEAN: {text}")
        return text.lower() == "true"
    if t.is_integer(kind):
        return int(text)
    if t.is_floating(kind):
        return float(text)
    if t.is_decimal(kind):
        try:
            return Decimal(text)
        except ArithmeticError as error:
            raise ValueError(f"no DECIMAL: {text}") from error
    if t.is_date(kind):
        return date.fromisoformat(text)
    if t.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        if kind.tz is None:
            return moment.replace(tzinfo=None)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)  # older writers name no zone
    return text.encode() if t.is_binary(kind) else text


def _escaped(text: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in ESCAPED else letter for letter in text)


def encoded(column: pa.ChunkedArray | pa.Array) -> tuple[np.ndarray, list[Any]]:
    """The number of each row's value among the different values (-1: NULL), and those values as Python's (None: not in Python's range)."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found = array.dictionary_encode()
    return found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), _values(found.dictionary)


def _values(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_timestamp(kind):
        micros = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        return [_moment(number, UTC if kind.tz else None) for number in micros.to_pylist()]
    if pa.types.is_date(kind):
        days = array.cast(pa.date32()).cast(pa.int32())
        moments = [_moment(number * 86_400_000_000, None) for number in days.to_pylist()]
        return [None if moment is None else moment.date() for moment in moments]
    if pa.types.is_float32(kind):
        return [float(str(number)) for number in array.to_numpy(zero_copy_only=False)]  # the fewest digits that give it back
    values: list[Any] = array.to_pylist()
    return values


def _moment(micros: int, zone: Any) -> datetime | None:
    try:
        return datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=micros)
    except OverflowError:
        return None


def text_or_none(value: Any) -> str | None:
    """The text of a value; None if it has none."""
    try:
        return text_of(value) or None
    except ValueError:
        return None


def _size(name: str, value: Any, kind: pa.DataType) -> int:
    """The bytes of the value's folder in a path, or more than any folder may have if the value would not come back from its text."""
    text = text_or_none(value)
    if text is None or text == NULL_FOLDER or "\0" in text:
        return PATH_BYTES_MAX + 1
    if (back := value_of(text, kind)) != value and back == back:  # NaN is not itself
        return PATH_BYTES_MAX + 1
    return len(folder_name(name, text).encode()) + 1
