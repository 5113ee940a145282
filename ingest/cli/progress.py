"""The progress display of a run: a live panel on a terminal, otherwise one plain line per batch."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ingest.run.display import Display
from ingest.runtime.output import console, err_line, out_line

if TYPE_CHECKING:
    from rich.live import Live

    from ingest.batch.batch import BatchReport


class Silent(Display):
    """Prints only notes, on stderr. `--json` prints one document at the end."""

    @property
    def gone(self) -> bool:
        return bool(_unread)

    def note(self, text: str) -> None:
        with unread(sys.stderr):
            err_line(f"note: {text}")


class Lines(Silent):
    """Prints one line per batch, for logs and pipes."""

    def ready(self, tables: Sequence[str], log: Path) -> None:
        _say(f"running: {', '.join(tables) or 'nothing'} · Spark's output: {log}")

    def batch(self, report: BatchReport, lag: int | None) -> None:
        what = f"read {report.records_read} · inserted {report.inserted} · duplicate {report.duplicate}"
        what += f" · quarantined {report.quarantined} · {rate(report):,.0f} rows/s"
        lag_text = "unknown" if lag is None else str(lag)
        _say(f"{clock()} {report.table} batch {report.number}: {what} · lag {lag_text} · version {report.target_version}")

    def stopping(self) -> None:
        _say("stopping: finishing the current batch first")


@dataclass
class _Row:
    batch: int = -1
    read: int = 0
    inserted: int = 0
    duplicate: int = 0
    quarantined: int = 0
    rows_per_s: float = 0.0
    lag: int | None = None
    committed_at: str = "–"


class Panel(Silent):
    """A table that is redrawn in place."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._rows: dict[str, _Row] = {}
        self._note = "starting Spark …"

    def ready(self, tables: Sequence[str], log: Path) -> None:
        self._rows = {name: _Row() for name in tables}
        self._note = f"Spark's output: {log} · Ctrl-C stops after the current batch"
        self._draw()

    def batch(self, report: BatchReport, lag: int | None) -> None:
        row = self._rows[report.table]
        row.batch, row.lag, row.committed_at = report.number, lag, clock()
        row.rows_per_s = rate(report)
        row.read += report.records_read
        row.inserted += report.inserted
        row.duplicate += report.duplicate
        row.quarantined += report.quarantined
        self._draw()

    def stopping(self) -> None:
        self._note = "stopping: finishing the current batch first"
        self._draw()

    def _draw(self) -> None:
        from rich.table import Table

        table = Table(caption=self._note, caption_justify="left")
        for title in ("table", "batch", "read", "inserted", "duplicate", "quarantined", "rows/s", "lag", "last commit"):
            table.add_column(title, justify="left" if title == "table" else "right")
        for name, r in self._rows.items():
            cells = (r.batch, r.read, r.inserted, r.duplicate, r.quarantined)
            lag = "unknown" if r.lag is None else f"{r.lag:,}"
            table.add_row(name, *(f"{cell:,}" if cell >= 0 else "–" for cell in cells), f"{r.rows_per_s:,.0f}", lag, r.committed_at)
        self._live.update(table, refresh=True)


# File descriptors whose reader has closed the pipe (`ingest run | head -1`).
_unread: set[int] = set()


@contextmanager
def unread(*streams: TextIO) -> Iterator[None]:
    """Discard what the block prints if the reader has closed the pipe.

    The streams then go to /dev/null. Otherwise Python would report the broken pipe once more at exit.
    """
    try:
        yield
        for stream in streams:
            stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in streams:
            os.dup2(nowhere, stream.fileno())
            _unread.add(stream.fileno())
        os.close(nowhere)


def _say(text: str) -> None:
    with unread(sys.stdout):
        out_line(text, flush=True)


@contextmanager
def display(*, quiet: bool) -> Iterator[Display]:
    """The display that fits stdout: a panel on a terminal, else lines. `quiet` prints only notes."""
    if quiet:
        yield Silent()
    elif sys.stdout.isatty():
        from rich.live import Live

        with Live(console=console(), auto_refresh=False) as live:
            yield Panel(live)
    else:
        yield Lines()


def rate(report: BatchReport) -> float:
    """Records per second of the batch, from the choice of its offset range to its last commit."""
    return report.records_read / report.seconds if report.seconds else 0.0


def clock() -> str:
    """The current time of day in UTC."""
    return datetime.fromtimestamp(time.time(), UTC).strftime("%H:%M:%SZ")
