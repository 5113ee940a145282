"""An answer: columns and rows, the same from both engines, and their values as JSON documents contain them."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from ingest.runtime.errors import InvalidInput

Plain: TypeAlias = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None


@dataclass(frozen=True)
class ResultColumn:
    """A column of an answer; `type` is its SQL type, such as `DECIMAL(18,2)`."""

    name: str
    type: str
    numeric: bool


class Answer:
    """The columns of a result, and its rows as they arrive.

    Times have microseconds (DataFusion's own functions return nanoseconds, which Spark does not have).
    """

    def __init__(self, reader: pa.RecordBatchReader, error: Callable[[Exception], InvalidInput]) -> None:
        self._reader = reader
        self._error = error
        self._schema = pa.schema([pa.field(f.name, _micros(f.type), f.nullable) for f in reader.schema])
        self.columns = tuple(ResultColumn(f.name, sql_type(f.type), _numeric(f.type)) for f in self._schema)

    def rows(self, limit: int | None = None) -> Iterator[tuple[Any, ...]]:
        """The rows as Python values, at most `limit`, readable once. Raises InvalidInput SQL_FAILED if the query fails on the way."""
        left = math.inf if limit is None else limit
        try:
            for batch in self._reader:
                taken = batch if batch.num_rows <= left else batch.slice(0, int(left))
                # By position: two columns may have the same name.
                typed = (column.cast(field.type, safe=False) for column, field in zip(taken.columns, self._schema, strict=True))
                columns = [column.to_pylist(maps_as_pydicts="strict") for column in typed]
                yield from zip(*columns, strict=True)
                left -= taken.num_rows
                if left <= 0:
                    return
        except Exception as error:
            raise self._error(error) from error


def plain(value: Any) -> Plain:
    """A value for JSON: times in ISO 8601 and UTC, decimals and durations (seconds) as strings, binary as base64, nested values kept.

    Floats that JSON cannot express become "NaN", "Infinity" and "-Infinity".
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return f"{value:f}"
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z" if value.tzinfo else value.isoformat()
        case date() | time():
            return value.isoformat()
        case timedelta():
            return f"{Decimal(value // timedelta(microseconds=1)).scaleb(-6).normalize():f}"
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case dict():
            return {str(plain(key)): plain(inner) for key, inner in value.items()}
        case pa.MonthDayNano():
            return f"{value.months} months {value.days} days {Decimal(value.nanoseconds).scaleb(-9).normalize():f} seconds"
        case list() | tuple():
            return [plain(inner) for inner in value]
        case _:
            return str(value)


def sql_type(kind: pa.DataType) -> str:
    """The SQL name of an Arrow type, as contracts write it; a duration is `INTERVAL`."""
    t = pa.types
    if t.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if t.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    if t.is_duration(kind) or t.is_interval(kind):
        return "INTERVAL"
    if t.is_map(kind):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if t.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name}: {sql_type(field.type)}' for field in kind)}>"
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_list_view(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if t.is_dictionary(kind):
        return sql_type(kind.value_type)
    names = {
        "bool": "BOOLEAN",
        **dict.fromkeys(("int8", "uint8"), "TINYINT"),
        **dict.fromkeys(("int16", "uint16"), "SMALLINT"),
        **dict.fromkeys(("int32", "uint32"), "INT"),
        **dict.fromkeys(("int64", "uint64"), "BIGINT"),
        **dict.fromkeys(("halffloat", "float"), "FLOAT"),
        "double": "DOUBLE",
        **dict.fromkeys(("string", "large_string", "string_view"), "STRING"),
        **dict.fromkeys(("binary", "large_binary", "binary_view"), "BINARY"),
        **dict.fromkeys(("date32[day]", "date64[ms]"), "DATE"),
        "null": "VOID",
    }
    return names.get(str(kind), str(kind).upper())


def _numeric(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_duration(kind))


def _micros(kind: pa.DataType) -> pa.DataType:
    """The type with microseconds in place of nanoseconds, which Python's own times do not have."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if pa.types.is_duration(kind) and kind.unit == "ns" else kind
