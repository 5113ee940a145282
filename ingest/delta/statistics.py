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
    found = Statistics(columns)
    found.add(rows)
    return found.as_json()


class Statistics:
    """The statistics of a file whose rows come part by part: their number, and bounds and NULL counts of `columns` (top-level ones)."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._rows = 0
        self._nulls = dict.fromkeys(columns, 0)
        self._ends: dict[str, list[pa.Array]] = {name: [] for name in columns}  # of each part: values that have the bounds of all

    def add(self, rows: pa.Table) -> None:
        """Take in a part of the rows."""
        self._rows += rows.num_rows
        for name, ends in self._ends.items():
            self._nulls[name] += rows[name].null_count
            if (found := _ends(rows[name])) is not None:
                ends.append(found)

    def as_json(self) -> str:
        """The statistics of all rows until now, as the add action has them."""
        least: dict[str, str] = {}
        greatest: dict[str, str] = {}
        for name, ends in self._ends.items():
            for into, text in zip((least, greatest), _bounds(pa.chunked_array(ends)) if ends else (None, None), strict=True):
                if text is not None:
                    into[name] = text
        return (
            f'{{"numRecords":{self._rows},"minValues":{_object(least)},"maxValues":{_object(greatest)},'
            f'"nullCount":{json.dumps(self._nulls, ensure_ascii=False, separators=(",", ":"))}}}'
        )


def _ends(column: pa.ChunkedArray) -> pa.Array | None:
    """The least and the greatest value, and NaN if it occurs; None for types without bounds, and without values."""
    kind, t = column.type, pa.types
    if t.is_nested(kind) or t.is_binary(kind) or t.is_boolean(kind) or column.null_count == len(column):
        return None
    if t.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        return pa.array([float("nan")], kind)
    found = pc.min_max(column)
    return pa.array([found["min"], found["max"]], kind)


def _object(values: dict[str, str]) -> str:
    """A JSON object of values that are JSON already: a DECIMAL's digits would not survive Python's own numbers."""
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in values.items()) + "}"


def _bounds(column: pa.ChunkedArray) -> tuple[str | None, str | None]:
    """The least and the greatest of these values as JSON; None where there is no right one."""
    kind, t = column.type, pa.types
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
