"""The progress of a run. The displays of the command override these methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.batch.batch import BatchReport
    from ingest.runtime.errors import IngestError


class Display:
    """Shows nothing. Its methods are called from one thread."""

    @property
    def gone(self) -> bool:
        """Whether the reader of the output has gone."""
        return False

    def ready(self, tables: Sequence[str], log: Path) -> None:
        """Spark is up and the queries have started; `log` is Spark's log file."""

    def batch(self, report: BatchReport, lag: int | None) -> None:
        """A batch is done; `lag` is the number of offsets still to be read, None if the broker does not report the ends."""

    def tick(self) -> None:
        """Called regularly while the run is active."""

    def stopping(self) -> None:
        """A stop was requested; the current batches are finished first."""

    def note(self, text: str) -> None:
        """Show a note for the user; the run continues."""

    def healed(self, table: str, text: str) -> None:
        """The start of a table's query has repaired something by itself."""
        self.note(text)

    def reopened(self, table: str, text: str) -> None:
        """A new epoch continues a table after an error that may be temporary."""
        self.note(text)

    def ended(self, table: str, error: IngestError | None) -> None:
        """A table is no longer read; `error` is the reason, None if everything was read or a stop was requested."""
