"""The statistics of a data file as its add action carries them (Delta's PROTOCOL.md, Per-file Statistics).

Engines answer queries from them, so they are exact or absent: the number of rows and of NULLs, and bounds that no value exceeds. A bound is
left out where it cannot be right: NaN has no place in an order, and BOOLEAN and BINARY have no bounds in Delta. Workers get this module by
value, so it imports nothing of this package.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# Delta's own limit. A longer least value is cut, which makes it less; a longer greatest value is cut and raised.
TEXT_MAX = 32
HIGHEST = "\U0010ffff"


def statistics(rows: pa.Table, columns: Sequence[str]) -> str:
    """The statistics of `rows` as JSON, with bounds and NULL counts of `columns` (top-level ones)."""
    least: dict[str, str] = {}
    greatest: dict[str, str] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        column = rows[name]
        nulls[name] = column.null_count
        bounds = _bounds(column)
        for into, text in zip((least, greatest), bounds, strict=True):
            if text is not None:
                into[name] = text
    return (
        f'{{"numRecords":{rows.num_rows},"minValues":{_object(least)},"maxValues":{_object(greatest)},'
        f'"nullCount":{json.dumps(nulls, ensure_ascii=False, separators=(",", ":"))}}}'
    )


def _object(values: dict[str, str]) -> str:
    """A JSON object of values that are JSON already: a DECIMAL's digits would not survive Python's own numbers."""
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in values.items()) + "}"


def _bounds(column: pa.ChunkedArray) -> tuple[str | None, str | None]:
    """The least and the greatest value as JSON; None where there is no right one."""
    kind, t = column.type, pa.types
    if t.is_nested(kind) or t.is_binary(kind) or t.is_boolean(kind) or column.null_count == len(column):
        return None, None
    if t.is_floating(kind):
        if pc.any(pc.is_nan(column)).as_py():
            return None, None
        found = pc.min_max(column)
        low, high = found["min"].as_py(), found["max"].as_py()
        if low in (float("-inf"), float("inf")) or high in (float("-inf"), float("inf")):
            return None, None  # JSON has no infinity
        return repr(-0.0 if low == 0 else low), repr(0.0 if high == 0 else high)
    if t.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        ends = pc.min_max(column.cast(pa.int64()))
        moments = (pa.scalar(ends[end].as_py(), pa.timestamp("us")) for end in ("min", "max"))
        low, high = (json.dumps(f"{pc.strftime(moment, '%Y-%m-%dT%H:%M:%S').as_py()}{zone}") for moment in moments)
        return low, high
    ends = pc.min_max(column)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if t.is_string(kind):
        return json.dumps(low[:TEXT_MAX], ensure_ascii=False), _raised(high)
    if t.is_date(kind):
        return json.dumps(low.isoformat()), json.dumps(high.isoformat())
    return _number(low), _number(high)


def _raised(text: str) -> str | None:
    """A text that no value with the same first characters exceeds: the text itself, or its beginning and the highest character."""
    if len(text) > TEXT_MAX:
        if text[TEXT_MAX] == HIGHEST:
            return None  # the raised text could be less than this one
        text = text[:TEXT_MAX] + HIGHEST
    return json.dumps(text, ensure_ascii=False)


def _number(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
