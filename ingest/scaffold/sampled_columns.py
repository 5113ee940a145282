"""The columns of a table, inferred from the JSON values of a topic's first records. The types are those that lose nothing of the sample."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal as Number
from typing import Any

from ingest.contract.sql_type import Array, Atomic, Decimal, Map, SqlType, Struct, TypeProblem, ddl
from ingest.contract.sql_type import Field as StructField
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import InvalidInput
from ingest.scaffold.draft import Draft, DraftColumn, identifier, looks_personal

RECORDS = 1000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:[0-5]\d)?")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
# More keys than this are data (a map by sku or by day) rather than the fields of a struct.
_FIELDS_MAX = 50
# Room for amounts of money; a number with more digits after its point is a measurement.
_SCALE_MAX, _WHOLE_DIGITS_MAX, _PRECISION = 6, 12, 18
_ID_KINDS = ("STRING", "BIGINT")
_UNLIKELY = 100


def draft_of(topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> Draft:
    """A draft from the key and value of each sampled record. Raises InvalidInput TOPIC_EMPTY if there is none."""
    sample = list(records)
    if not sample:
        raise InvalidInput(
            "TOPIC_EMPTY",
            f"the topic {topic} has no committed record.",
            expected="records from which to infer columns.",
            remedy="send one, or leave --topic out: the contract is then an example to edit.",
        )
    table = identifier(topic.rpartition(".")[2])
    values = [(key, _object(value)) for key, value in sample]
    objects = [(key, value) for key, value in values if value is not None]
    notes = [f"Inferred from {len(sample):,} records of the topic. Review types, nullable, sensitive and the event id."]
    if len(objects) < len(sample):
        notes.append(f"{len(sample) - len(objects):,} of them are not JSON objects; such records go to quarantine.")
    columns = _columns([value for _, value in objects], notes)
    event_id = _event_id(table, columns, objects)
    if not columns or event_id is None:
        why = "No JSON object was found" if not objects else "No column or key identifies an event"
        notes.append(f"{why}: the table keeps each record as it is (format raw), and its position is its identity.")
        return Draft(table, topic, (), "position", format="raw", notes=tuple(notes))
    times = [column.name for column in columns if column.type == "TIMESTAMP"]
    skipped = any("no column" in note for note in notes)
    return Draft(table, topic, columns, event_id, next(iter(times), None), keep_unknown=skipped, notes=tuple(notes))


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        # Only numbers in plain notation can become a DECIMAL.
        read = read_json(value or b"", parse_float=lambda text: float(text) if "e" in text.lower() else Number(text))
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


def _columns(objects: Sequence[dict[str, Any]], notes: list[str]) -> tuple[DraftColumn, ...]:
    found: dict[str, DraftColumn] = {}
    for name in dict.fromkeys(name for each in objects for name in each):
        if _NAME.fullmatch(name) is None or name.lower() in found:
            notes.append(f"The field {json.dumps(name)} is no column: its name is not allowed, or differs from another only by case.")
            continue
        values = [each.get(name) for each in objects]
        kind = ddl(_type(name, [value for value in values if value is not None], notes))
        found[name.lower()] = DraftColumn(name, kind, nullable=None in values, sensitive=looks_personal(name))
    return tuple(found.values())


def _type(where: str, values: Sequence[Any], notes: list[str]) -> SqlType:
    """The type of these values, none of them null. What cannot be one type becomes STRING, with a note."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return Atomic("BOOLEAN")
    if kinds == {int}:
        return Atomic("BIGINT") if all(-(2**63) <= value < 2**63 for value in values) else Decimal(38, 0)
    if kinds and kinds <= {int, Number, float}:
        return _fraction(values) if float not in kinds else Atomic("DOUBLE")
    if kinds == {str}:
        return Atomic(_text_kind(values))
    if kinds == {list}:
        return Array(_type(f"{where}[]", [each for value in values for each in value if each is not None], notes))
    if kinds == {dict}:
        return _nested(where, values, notes)
    seen = ", ".join(sorted(kind.__name__ for kind in kinds)) or "only null"
    notes.append(f"{where}: the sample has {seen}; a STRING accepts only strings.")
    return Atomic("STRING")


def _fraction(values: Sequence[int | Number]) -> SqlType:
    numbers = [Number(value) for value in values]
    scale = max(-int(number.as_tuple().exponent) for number in numbers)
    whole = max(number.adjusted() + 1 for number in numbers)
    return Decimal(_PRECISION, max(scale, 2)) if scale <= _SCALE_MAX and whole <= _WHOLE_DIGITS_MAX else Atomic("DOUBLE")


def _text_kind(values: Sequence[str]) -> str:
    try:
        moments = [_MOMENT.fullmatch(value) for value in values]
        if all(moments):
            for value in values:
                datetime.fromisoformat(re.sub(r"\.\d+", "", value).replace("Z", "+00:00"))
            zones = {match[2] is not None for match in moments if match}
            return "STRING" if len(zones) > 1 else "TIMESTAMP" if zones == {True} else "TIMESTAMP_NTZ"
        if all(_DAY.fullmatch(value) and date.fromisoformat(value) for value in values):
            return "DATE"
    except ValueError:
        pass
    return "STRING"


def _nested(where: str, values: Sequence[dict[str, Any]], notes: list[str]) -> SqlType:
    names = list(dict.fromkeys(name for value in values for name in value))
    held = {name: [value[name] for value in values if value.get(name) is not None] for name in names}
    if names and len(names) <= _FIELDS_MAX and all(map(_NAME.fullmatch, names)):
        try:
            return Struct(tuple(StructField(name, _type(f"{where}.{name}", held[name], notes)) for name in names))
        except TypeProblem:
            pass  # two names that differ only by case
    return Map(_type(f"{where}.*", [value for each in held.values() for value in each], notes))


def _event_id(table: str, columns: Sequence[DraftColumn], objects: Sequence[tuple[bytes | None, dict[str, Any]]]) -> list[str] | str | None:
    """The column that identifies the sampled events best, else the record's key. Copies of one event may be in the sample."""
    payloads = [json.dumps(value, sort_keys=True, default=str) for _, value in objects]
    fit = [each.name for each in columns if not each.nullable and each.type in _ID_KINDS]
    fit = [name for name in fit if _identifies([value[name] for _, value in objects], payloads)]
    best = min(fit, key=lambda name: _rank(table, name), default=None)
    keys = [key for key, _ in objects]
    if (best is None or _rank(table, best) == _UNLIKELY) and None not in keys and _identifies(keys, payloads):
        return "key"
    return [best] if best is not None else None


def _identifies(ids: Sequence[object], payloads: Sequence[str]) -> bool:
    """Whether an id never stands for two different events."""
    return max(Counter(one for one, _ in set(zip(ids, payloads, strict=True))).values(), default=0) == 1


def _rank(table: str, name: str) -> int:
    """The names that people give to an event id come first."""
    snake, one = identifier(name), table.removesuffix("s")
    order = ("event_id", "id", f"{one}_id", f"{table}_id", "uuid", "message_id")
    return order.index(snake) if snake in order else len(order) if snake.endswith("_id") else _UNLIKELY
