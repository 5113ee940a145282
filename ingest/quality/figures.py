"""The figures of another system, for comparison with control totals: a CSV or NDJSON file, or a topic with one JSON object per record."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from ingest.contract.definition import Contract
from ingest.contract.parts import ControlTotal
from ingest.contract.problem import one_of
from ingest.kafka.kafka_options import KafkaOptions
from ingest.quality.control_total import ROWS, GroupKey, Sums, Totals, as_text
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import InvalidInput

Place = str
"""`figures.csv:7` or `topic, partition 0 offset 41`."""
# More than any DECIMAL of a table has, before and after the point.
DIGITS_MAX = 100
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def contract_with_totals(contracts: Sequence[Contract]) -> Contract:
    """The one contract that names control totals. Raises InvalidInput TOTALS_TABLE if there is none, or more than one."""
    found = [contract for contract in contracts if contract.control_totals]
    if len(found) != 1:
        names = ", ".join(contract.name for contract in found) or "no contract"
        raise InvalidInput(
            "TOTALS_TABLE",
            f"{names} of the chosen tables name{'' if len(found) > 1 else 's'} control totals.",
            expected="figures of one table, whose contract has `control_totals` (docs/reference/contracts.md).",
            remedy="name the table.",
        )
    return found[0]


def read_figures(contract: Contract, file: Path | None, topic: str | None, kafka: KafkaOptions) -> dict[str, Totals]:
    """The figures by the name of their total. A topic's committed records count, the newest of each key.

    Raises InvalidInput FIGURES_UNREADABLE for the file, and FIGURES_INVALID with the place of the first wrong figure, or if there is none;
    and the errors of a topic that cannot be read.
    """
    rows = _file(file) if file is not None else _topic(topic or "", kafka)
    found: dict[str, dict[GroupKey, Sums]] = {}
    places: dict[tuple[str, GroupKey], Place] = {}
    for place, row in rows:
        total = _total(contract, place, row)
        key, sums = _figure(total, place, row)
        if (before := places.setdefault((total.name, key), place)) != place:
            raise _invalid(place, f"the group has a figure already, at {before}", "one figure for each group of a day")
        found.setdefault(total.name, {})[key] = sums
    if not found:
        raise _invalid(str(file or topic), "there is no figure", "at least one: without figures nothing is judged")
    return {**found}


def _file(path: Path) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    if path.suffix not in (".csv", ".ndjson", ".jsonl"):
        raise _unreadable(path, "its name ends in none of .csv, .ndjson, .jsonl")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, str(error)) from error
    if path.suffix == ".csv":
        reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", strict=True)
        try:
            yield from ((f"{path.name}:{reader.line_num}", _of_csv(path, reader.line_num, row)) for row in reader)
        except csv.Error as error:
            raise _invalid(f"{path.name}:{reader.line_num}", str(error), "CSV with one header line") from error
        return
    yield from ((f"{path.name}:{n}", _json(f"{path.name}:{n}", line)) for n, line in enumerate(text.split("\n"), 1) if line.strip())


def _of_csv(path: Path, line: int, row: Mapping[str, Any]) -> dict[str, Any]:
    if "" in row or None in row.values():
        raise _invalid(f"{path.name}:{line}", "it has more or fewer fields than the header", "one field for each name in the header")
    return {name: value or None for name, value in row.items()}  # CSV has no other way to write NULL


def _topic(topic: str, kafka: KafkaOptions) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """The newest record of each key, without tombstones. A record without a key is its own."""
    from ingest.kafka.committed_records import committed_records

    newest: dict[Any, Any] = {}
    for record in committed_records(kafka, topic):
        newest[(record.partition, record.offset) if record.key is None else record.key] = record
    for record in newest.values():
        if record.value is not None:
            place = f"{topic}, partition {record.partition} offset {record.offset}"
            yield place, _json(place, record.value)


def _json(place: Place, text: str | bytes) -> Mapping[str, Any]:
    try:
        row = read_json(text, parse_float=Decimal)  # a float would change the figure
    except ValueError as error:
        raise _invalid(place, f"this is not JSON: {error}", "one JSON object") from error
    if not isinstance(row, dict):
        raise _invalid(place, "this is not a JSON object", "one JSON object")
    return row


def _total(contract: Contract, place: Place, row: Mapping[str, Any]) -> ControlTotal:
    names = {total.name: total for total in contract.control_totals}
    name = row.get("total") or (next(iter(names)) if len(names) == 1 else None)
    if not isinstance(name, str) or name not in names:
        raise _invalid(place, f"total is {name!r}", f"total: {one_of(names, str(name))}")
    return names[name]


def _figure(total: ControlTotal, place: Place, row: Mapping[str, Any]) -> tuple[GroupKey, Sums]:
    known = {"total", "day", ROWS, *total.by, *total.sum}
    if strange := sorted(row.keys() - known):
        raise _invalid(place, f"unknown key {strange[0]!r}", f"{', '.join(sorted(known))}")
    if missing := [name for name in ("day", *total.by, *total.sum) if name not in row]:
        raise _invalid(place, f"the key {missing[0]!r} is missing", f"{', '.join(sorted(known - {'total', ROWS}))}")
    try:
        day = date.fromisoformat(text) if _DAY.fullmatch(text := str(row["day"])) else None
    except ValueError:
        day = None
    if day is None:
        raise _invalid(place, f"day is {row['day']!r}", "a day such as 2026-11-25")
    rows = row.get(ROWS)
    count = None if rows is None else _number(place, ROWS, rows)
    if count is not None and count != int(count):
        raise _invalid(place, f"{ROWS} is {rows!r}", "a whole number")
    sums = {name: _number(place, name, row[name]) for name in total.sum}
    return (day, tuple(as_text(row[name]) for name in total.by)), Sums(None if count is None else int(count), sums)


def _number(place: Place, name: str, value: Any) -> Decimal:
    """The exact number. Text such as `1e3`, `1,000` or `NaN` is refused."""
    short = isinstance(value, Decimal) and abs(value.adjusted()) <= DIGITS_MAX  # 1e999999999 is short as JSON, and a gigabyte in full
    text = format(value, "f") if short else str(value)
    if isinstance(value, bool) or len(text) > 2 * DIGITS_MAX or not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        raise _invalid(place, f"{name} is {text[:DIGITS_MAX]!r}", "a decimal number such as 1234.50")
    return Decimal(text)


def _invalid(place: Place, found: str, expected: str) -> InvalidInput:
    return InvalidInput(
        "FIGURES_INVALID", f"{place}: {found}.", expected=f"{expected}.", remedy="correct the figures (docs/how-to/prove.md)."
    )


def _unreadable(path: Path, why: str) -> InvalidInput:
    return InvalidInput("FIGURES_UNREADABLE", f"{path}: {why}.", expected="a CSV or NDJSON file in UTF-8.", remedy="name the right file.")
