"""A display that counts what a run reports, and passes everything on to the display that the user sees."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.observe.metrics.board import COUNTERS, Board
from ingest.run.display import Display
from ingest.runtime.errors import IngestError

if TYPE_CHECKING:
    from ingest.batch.batch import BatchReport
    from ingest.quality.validation import Checked


class Measured(Display):
    """Fills a board. `checks` are the validation runs of each table, which the run appends to.

    The run never waits for a scrape, and never fails because of a metric: an error is shown once and the run goes on.
    """

    def __init__(self, board: Board, tables: Sequence[str], shown: Display, checks: Mapping[str, Sequence[Checked]]) -> None:
        self._board = board
        self._shown = shown
        self._checks = checks
        self._seen: dict[str, int] = {}
        self._said = False
        for table in tables:
            board.at("oncelake_run_up", table).set(0)

    @property
    def gone(self) -> bool:
        return self._shown.gone

    def ready(self, tables: Sequence[str], log: Path) -> None:
        self._shown.ready(tables, log)
        with self._harmless():
            for table in tables:
                self._board.at("oncelake_run_up", table).set(1)
                # A counter that starts at zero shows its first increase.
                for name in (*COUNTERS.values(), "oncelake_batches_total", "oncelake_epochs_reopened_total"):
                    self._board.at(name, table).inc(0)

    def batch(self, report: BatchReport, lag: int | None) -> None:
        self._shown.batch(report, lag)
        with self._harmless():
            at, table = self._board.at, report.table
            for count, counter in COUNTERS.items():
                at(counter, table).inc(getattr(report, count))
            at("oncelake_batches_total", table).inc()
            at("oncelake_batch_seconds", table).observe(report.seconds)
            for step, seconds in report.steps.items():
                at("oncelake_batch_step_seconds_total", table, step).inc(seconds)
            if lag is None:
                self._board.forget("oncelake_lag_offsets", table)
            else:
                at("oncelake_lag_offsets", table).set(lag)
            at("oncelake_last_commit_timestamp_seconds", table).set(time.time())
            at("oncelake_epoch", table).set(report.epoch)
            at("oncelake_batch", table).set(report.number)
            at("oncelake_target_version", table).set(report.target_version)

    def tick(self) -> None:
        self._shown.tick()
        with self._harmless():
            for table, runs in self._checks.items():
                if len(runs) != self._seen.get(table) and runs[-1].rows:
                    self._seen[table] = len(runs)
                    self._board.quality(table, len(runs[-1].failed), len(runs[-1].critical), time.time())

    def stopping(self) -> None:
        self._shown.stopping()

    def note(self, text: str) -> None:
        self._shown.note(text)

    def healed(self, table: str, text: str) -> None:
        self._shown.healed(table, text)

    def reopened(self, table: str, text: str) -> None:
        self._shown.reopened(table, text)
        with self._harmless():
            self._board.at("oncelake_epochs_reopened_total", table).inc()

    def ended(self, table: str, error: IngestError | None) -> None:
        self._shown.ended(table, error)
        with self._harmless():
            self._board.at("oncelake_run_up", table).set(0)
            self._board.error(table, error.code if error is not None else None)

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._said:
                self._said = True
                self._shown.note(f"a metric was not updated ({type(error).__name__}: {error}); the run continues without it")
