"""What the demo shows while it runs: a live table on a terminal, otherwise one line per event."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, Protocol

from ingest.runtime.output import console, out_line

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

Mode = Literal["live", "lines", "full", "silent"]
# Refreshes per second; more would take processor time from the pipelines.
REFRESHES = 2


class Say(Protocol):
    """Reports an event. `detail` marks what only `--full` and the live table show."""

    def __call__(self, who: str, what: str, *, detail: bool = False) -> None: ...


class Story:
    """Prints the events of a demo; a context manager."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.began = time.monotonic()
        self._latest: dict[str, tuple[float, str]] = {}
        self._live: Live | None = None

    def __enter__(self) -> Story:
        if self.mode == "live":
            from rich.live import Live

            self._live = Live(console=console(), get_renderable=self._table, refresh_per_second=REFRESHES, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def say(self, who: str, what: str, *, detail: bool = False) -> None:
        """Show an event."""
        line = f"{self.seconds:5.0f} s  {who:<8}  {what}"
        if self.mode == "full" or (self.mode == "lines" and not detail):
            out_line(line, flush=True)
        elif self._live is not None:
            self._latest[who] = self.seconds, what
            if not detail:
                self._live.console.print(line, soft_wrap=True)

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE, title=f"{self.seconds:.0f} s", title_justify="left")
        table.add_column("")
        table.add_column("since", justify="right")
        table.add_column("now", no_wrap=True, overflow="ellipsis")
        for who, (at, what) in self._latest.items():
            table.add_row(who, f"{at:.0f} s", Text(what))  # a Text, because an output line may contain [brackets]
        return table
