"""Validation runs inside `ingest run --check`: when they are due, and how a critical failure affects the run.

During the run new rows are checked once a minute, as often as the ledger is appended to. Bad rows should not stay unnoticed until
somebody stops the run, and a check after every batch would cost more than the batch. Expectations that cover the whole table (unique ids,
row counts) cost more every day as the table grows, so they run at the end of `run --once` or in a scheduled `ingest check`. A signal that
stops the run lets the current check finish and prevents any other: the next run covers the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingest.batch.batch import BatchReport
from ingest.ledger.projection import APPEND_EVERY_S
from ingest.quality.suite import Suite
from ingest.quality.validation import Checked, check
from ingest.quality.validation_result import sample_ids
from ingest.runtime import spark
from ingest.runtime.errors import IngestError, RunStopped
from ingest.runtime.places import Places
from ingest.runtime.printable import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The longest pause while an expectation of the suite cannot be evaluated: until it is fixed, every check costs more than the last.
BROKEN_EVERY_S = 3600.0


@dataclass
class CheckSchedule:
    """The checks of one run, called from the run's main thread. `suites` are by `pipeline.table`; other tables are not checked.

    `found` contains the validation runs of each table in order. `on_missed` gets table and error code of a check that failed to run.
    """

    suites: Mapping[str, Suite]
    on_checked: Callable[[Checked], None]
    on_missed: Callable[[str, str], None]
    every_s: float = APPEND_EVERY_S
    found: dict[str, list[Checked]] = field(default_factory=dict)
    _new: set[str] = field(default_factory=set)
    _at: dict[str, float] = field(default_factory=dict)
    _every_s: dict[str, float] = field(default_factory=dict)

    def saw(self, report: BatchReport) -> None:
        """A batch is done."""
        if report.inserted:
            self._new.add(report.table)
            self._at.setdefault(report.table, time.monotonic())

    def due(self, table: str) -> bool:
        """Whether the table has new rows and the interval has passed."""
        every_s = self._every_s.get(table, self.every_s)
        return table in self.suites and table in self._new and time.monotonic() - self._at[table] >= every_s

    def check(self, session: SparkSession, places: Places, *, at_work: bool) -> IngestError | None:
        """Check a table; returns the error that must end its run, if any.

        That is RunStopped QUALITY_STOP if the contract says so. After the query's end it is also the error of a check that could not be
        done, such as CHECK_FAILED. During the run such a check (its lock is taken, for example) is tried again after the next interval.
        """
        suite = self.suites.get(places.name)
        if suite is None:
            return None
        try:
            checked = check(lambda: session, suite, places, at_work=at_work)
        except Exception as error:
            if spark.jvm_exit(session) is not None:
                raise
            self._at[places.name] = time.monotonic()
            failure = error if isinstance(error, IngestError) else not_done(suite, error)
            if at_work:
                self.on_missed(places.name, str(failure.code))
                return None
            return failure
        self._new.discard(places.name)
        self._at[places.name] = time.monotonic()
        # After an expectation that could not be evaluated the next check covers the same rows again (docs/how-to/quality.md), and more
        # with every minute, or the whole table.
        broken = any(row.exception for row in checked.rows)
        former_s = self._every_s.get(places.name, self.every_s)
        self._every_s[places.name] = min(2 * former_s, max(BROKEN_EVERY_S, self.every_s)) if broken else self.every_s
        self.found.setdefault(places.name, []).append(checked)
        self.on_checked(checked)
        return _stop(checked) if checked.critical and suite.contract.quality == "stop" else None

    @property
    def failed(self) -> bool:
        """Whether a critical expectation has failed in any check."""
        return any(checked.critical for each in self.found.values() for checked in each)


def _stop(checked: Checked) -> RunStopped:
    first = checked.critical[0]
    ids = ", ".join(sample_ids(first)[:3])
    more = f" and {len(checked.critical) - 1} more" if len(checked.critical) > 1 else ""
    on = f" on {first.column}" if first.column else ""
    where = checked.page or "the table `quality`"
    return RunStopped(
        "QUALITY_STOP",
        f"{checked.table}: {first.expectation}{on}{more} failed at version {checked.scope.version}"
        + (f", rows such as {ids}." if ids else "."),
        expected="no failed critical expectation (`quality: stop` in the contract). The rows are in the table; no batch reads them again.",
        remedy=f"read {where}; fix the producer and the rows, then run again (`ingest check {checked.table} --all` checks all rows).",
    )


def not_done(suite: Suite, error: Exception) -> RunStopped:
    """Turn an unexpected error in a check into CHECK_FAILED. If columns are sensitive it names only the error's class: the text may quote
    values."""
    table = suite.contract.name
    said = "" if suite.sensitive else next(iter(printable(line)[:300] for line in str(error).splitlines() if line.strip()), "")
    return RunStopped(
        "CHECK_FAILED",
        f"{table}: the check was not done: {type(error).__name__}{f': {said}' if said else ''}.",
        expected="a validation run that completes; the rows themselves are in the table.",
        remedy=f"read Spark's log, then `ingest check {table}`.",
    )
