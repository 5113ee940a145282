"""What a run tells of its work; the command's displays override what they show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.pipeline.batch import BatchReport


class Display:
    """Shows nothing; called from one thread."""

    @property
    def gone(self) -> bool:
        """Whether nobody reads what is shown any more."""
        return False

    def ready(self, tables: Sequence[str], log: Path) -> None:
        """Spark is up, the queries have started."""

    def batch(self, report: BatchReport, lag: int | None) -> None:
        """A batch is done; `lag` is how many offsets of the topic are still to be read, None if the broker does not say."""

    def tick(self) -> None:
        """Time passes."""

    def stopping(self) -> None:
        """A stop was asked for; the batches at hand are ended first."""

    def note(self, text: str) -> None:
        """Something that the user should know and that stops nothing."""
