"""A run as one self-contained HTML file with tables and charts; it loads nothing from the network."""

from __future__ import annotations

from html import escape

from ingest.lab.delivery_modes.chart import charts, svg
from ingest.lab.delivery_modes.mode_result import ModeResult
from ingest.lab.delivery_modes.mode_table import TextTable, tables

_STYLE = """
body { font: 15px/1.5 sans-serif; color: #222; background: #fff; margin: 2em auto; max-width: 70em; padding: 0 1em; }
table { border-collapse: collapse; margin: .5em 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
.broken { color: #b00020; font-weight: bold; }
.wide { overflow-x: auto; }
p.note { color: #555; white-space: pre-line; }
svg { max-width: 100%; height: auto; }
"""


def page(result: ModeResult) -> str:
    """The whole document, with all texts of the run escaped."""
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    parts = [
        "<h1>Guarantees and cost of each delivery mode</h1>",
        f"<p>{escape(f'Seed {result.seed}; {machine}. Measured by `ingest semantics` on an embedded broker.')}</p>",
        *([f'<p class="broken">{escape(result.caveat[:1].upper() + result.caveat[1:])}.</p>'] if result.caveat else []),
        *(f'<figure class="wide">{svg(chart)}</figure>' for chart in charts(result)),
        *map(_table, tables(result)),
    ]
    head = f'<meta charset="utf-8"><title>Delivery modes</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _table(table: TextTable) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in table.heads)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return (
        f'<h2>{escape(table.title)}</h2><div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="note">{escape(table.note)}</p>'
    )


def _cell(text: str) -> str:
    return f'<td class="broken">{escape(text)}</td>' if text.startswith("BROKEN") else f"<td>{escape(text)}</td>"
