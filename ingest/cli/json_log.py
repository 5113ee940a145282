"""The display of `ingest run --log-format json`: one JSON object per line, for log collectors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.cli.progress import Silent, unread
from ingest.runtime.errors import IngestError
from ingest.runtime.output import err_line, out_line

if TYPE_CHECKING:
    from ingest.batch.batch import BatchReport
    from ingest.quality.validation import Checked


class JsonLines(Silent):
    """Writes events to stdout, and notes and errors to stderr, as the text display does. `quiet`: everything to stderr.

    docs/how-to/observe.md lists the events and their fields.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def ready(self, tables: Sequence[str], log: Path) -> None:
        for table in tables:
            self.write("start", table, spark_log=str(log))

    def batch(self, report: BatchReport, lag: int | None) -> None:
        names = ("epoch", "number", "records_read", "inserted", "duplicate", "quarantined", "target_version")
        fields = {"batch" if name == "number" else name: getattr(report, name) for name in names}
        steps = {step: round(seconds, 3) for step, seconds in report.steps.items()}
        self.write("batch", report.table, **fields, lag=lag, seconds=round(report.seconds, 3), steps=steps)

    def stopping(self) -> None:
        self.write("stopping", message="finishing the current batch first")

    def note(self, text: str) -> None:
        self.write("note", message=text)

    def healed(self, table: str, text: str) -> None:
        self.write("healed", table, level="warning", message=text)

    def reopened(self, table: str, text: str) -> None:
        self.write("reopened", table, level="warning", message=text)

    def ended(self, table: str, error: IngestError | None) -> None:
        self.failed(error, table) if error is not None else self.write("stopped", table)

    def failed(self, error: IngestError, table: str | None = None) -> None:
        """An error that ended a table's query, or the whole run."""
        self.write("error", table, level="error", exit_code=error.exit_code, **error.as_dict())

    def checked(self, checked: Checked) -> None:
        """A validation run is done."""
        level = "error" if checked.critical else "warning" if checked.failed else "info"
        counts = {"expectations": len(checked.rows), "failed": len(checked.failed), "critical": len(checked.critical)}
        page = str(checked.page) if checked.page else None
        self.write(
            "check",
            checked.table,
            level=level,
            **counts,
            target_version=checked.scope.version,
            seconds=round(checked.seconds, 3),
            page=page,
        )

    def missed(self, table: str, code: str) -> None:
        """A validation run could not be done; the run tries again."""
        self.write("check", table, level="warning", code=code, message="not done; the run tries again in a minute")

    def unchecked(self, tables: Iterable[str]) -> None:
        """Tables that no check covers, so that nobody mistakes their silence for a pass."""
        for table in tables:
            self.write("check", table, level="warning", message="never checked: the contract names no suite")

    def write(self, event: str, table: str | None = None, *, level: str = "info", **fields: Any) -> None:
        """Write one line. `table` is `pipeline.table`; the line has both parts, as the ledger has."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        pipeline, _, name = (table or "").partition(".")
        place = {"pipeline": pipeline, "table": name} if table else {}
        line = json.dumps({"time": now, "level": level, "event": event, **place, **fields}, default=str)
        if self._quiet or level != "info" or event == "note":
            with unread(sys.stderr):
                err_line(line)
        else:
            with unread(sys.stdout):
                out_line(line, flush=True)


@contextmanager
def json_display(*, quiet: bool) -> Iterator[JsonLines]:
    """The display; an error that ends the whole run becomes a line, not the usual text."""
    shown = JsonLines(quiet=quiet)
    try:
        yield shown
    except IngestError as error:
        if quiet:
            raise  # --json prints it in its document
        shown.failed(error)
        sys.exit(error.exit_code)
