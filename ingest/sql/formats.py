"""An answer as text: an aligned table for people, CSV (RFC 4180) and JSON for programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import IO, Any

from ingest.delta.answer import Answer, ResultColumn, plain
from ingest.runtime.output import console
from ingest.runtime.printable import printable

CELL_CHARACTERS = 60  # a table cuts a longer value; CSV and JSON contain it whole
NARROWEST = 16  # a narrower text column is hardly readable
SEPARATOR = 3  # between two columns
ROWS_DEFAULT = 100


# A spreadsheet reads a cell that begins so as a formula: CSV injection (OWASP). The last four are the wide forms of the first.
FORMULA = tuple("=+-@\t\r\n＝＋－＠")


def write_csv(answer: Answer, out: IO[str], limit: int | None = None, *, no_formulas: bool = False) -> None:
    """A header and one line per row, ended by CR LF. NULL is empty; nested values are JSON.

    Values are unchanged, so that a program reads what the table has: nobody could tell a mark in a value from the value. `no_formulas` is
    for people: text that a spreadsheet would run as a formula gets a `'` before it. Numbers and times stay as they are.
    """
    writer = csv.writer(out)
    writer.writerow([_inert(column.name) if no_formulas else column.name for column in answer.columns])
    for row in answer.rows(limit):
        writer.writerow([_inert(_cell(value)) if no_formulas and isinstance(value, str | bytes) else _cell(value) for value in row])


def _inert(text: Any) -> Any:
    return f"'{text}" if isinstance(text, str) and text.startswith(FORMULA) else text


def write_json(answer: Answer, out: IO[str], limit: int | None = None, **more: Any) -> None:
    """One document: `{"schema", "ok", "tables", "error", ..., "columns": [{"name", "type"}], "rows": [[...], ...]}`, one line per row."""
    # All rows first: an error on the way must not leave half a document.
    rows = [_json([plain(value) for value in row]) for row in answer.rows(limit)]
    columns = [{"name": column.name, "type": column.type} for column in answer.columns]
    head = {"schema": "oncelake/sql/1", "ok": True, "tables": [], "error": None, **more, "columns": columns}
    out.write(f'{_json(head)[:-1]}, "rows": [')
    out.write(",".join(f"\n{row}" for row in rows))
    out.write("\n]}\n" if rows else "]}\n")


def write_table(answer: Answer, out: IO[str], width: int, limit: int | None = None) -> None:
    """Aligned columns, numbers to the right, NULL as `NULL`; one block per row if the columns do not fit into `width`."""
    limit = ROWS_DEFAULT if limit is None else limit
    found = list(answer.rows(limit + 1))
    shown = [[_shown(value) for value in row] for row in found[:limit]]
    write_cells(answer.columns, shown, out, width)
    count = f"{len(shown)} row{'' if len(shown) == 1 else 's'}"
    out.write(f"{count}, and there are more: --limit shows them\n" if len(found) > limit else f"{count}\n")


def write_lines(answer: Answer, out: IO[str], limit: int | None = None) -> None:
    """The text in the rows as it is, with its line breaks: a plan is unreadable in cells."""
    for row in answer.rows(limit):
        out.writelines(f"{str(value).rstrip()}\n" for value in row if value is not None)


def write_cells(columns: Sequence[ResultColumn], rows: Sequence[Sequence[str]], out: IO[str], width: int) -> None:
    """The aligned table of `write_table`."""
    from rich.cells import cell_len

    # The name of an unnamed column is its whole expression.
    columns = [replace(column, name=_shown(column.name)) for column in columns]
    widths = [max(cell_len(cell) for cell in (column.name, *(row[at] for row in rows))) for at, column in enumerate(columns)]
    fitted = _fitted(widths, [column.numeric for column in columns], width - SEPARATOR * (len(columns) - 1))
    if rows and fitted is None:
        _write_blocks(columns, rows, out)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column, most in zip(columns, fitted or widths, strict=True):
        table.add_column(
            Text(column.name), justify="right" if column.numeric else "left", no_wrap=True, overflow="ellipsis", max_width=most
        )
    for row in rows:
        table.add_row(*(Text(cell, style="dim" if cell == "NULL" else "") for cell in row))
    console(out, width=max(width, sum(fitted or widths) + SEPARATOR * len(widths))).print(table)


def _fitted(widths: Sequence[int], numeric: Sequence[bool], width: int) -> list[int] | None:
    """Widths at which the columns fit side by side: text is cut, the widest column first, down to NARROWEST. None if that is not enough."""
    fitted = list(widths)
    texts = [at for at, is_number in enumerate(numeric) if not is_number]
    while sum(fitted) > width:
        widest = max(texts, key=lambda at: fitted[at], default=None)
        if widest is None or fitted[widest] <= NARROWEST:
            return None
        fitted[widest] -= 1
    return fitted


def _write_blocks(columns: Sequence[ResultColumn], rows: Sequence[Sequence[str]], out: IO[str]) -> None:
    longest = max(len(column.name) for column in columns)
    for number, row in enumerate(rows, 1):
        out.write(f"— row {number} —\n")
        out.writelines(f"  {column.name.ljust(longest)}  {cell}\n" for column, cell in zip(columns, row, strict=True))


def _shown(value: Any) -> str:
    """A value in a cell of limited width, on one line and without control characters for a terminal."""
    if value is None:
        return "NULL"
    if isinstance(value, timedelta):
        return ("-" if value < timedelta() else "") + (f"{abs(value)}".rstrip("0") if value.microseconds else f"{abs(value)}")
    text = value if isinstance(value, str) else str(_cell(value))
    return printable(text, CELL_CHARACTERS)


def _cell(value: Any) -> str | int | float | None:
    found = plain(value)
    if isinstance(found, bool):
        return "true" if found else "false"
    return _json(found) if isinstance(found, list | dict) else found


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
