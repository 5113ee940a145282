"""`ingest run`: the main job, which moves events from Kafka into Delta tables."""

from __future__ import annotations

import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_error, print_json
from ingest.cli.check import as_row, print_checked, say_unchecked
from ingest.run.writer_setting import Writer
from ingest.runtime.output import err_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ingest.contract.definition import Contract
    from ingest.quality.validation import Checked
    from ingest.quality.watch import CheckSchedule
    from ingest.run.display import Display


class LogFormat(StrEnum):
    """How a run reports its progress."""

    TEXT = "text"
    JSON = "json"


@o.verb(app, "checkpoints", "bootstrap_servers", "master")
def run(
    env: o.Environment,
    tables: o.Tables = None,
    once: Annotated[bool, typer.Option("--once", help="Read up to the current end of the topics, then exit.")] = False,
    every: Annotated[
        str | None, typer.Option("--every", help="Interval at which micro-batches start, such as 5s or 2m (default: no pause).")
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max-records-per-batch", min=1, help="Maximum offsets per micro-batch (default: the contract's).")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Validate new rows with the tables' suites: once a minute, and in full at the end of --once.")
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            envvar="INGEST_METRICS",
            metavar="[HOST:]PORT",
            help="Serve Prometheus metrics there (default host: 127.0.0.1).",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", envvar="INGEST_LOG_FORMAT", help="Progress as text, or as one JSON object per line.")
    ] = LogFormat.TEXT,
    maintain_every: Annotated[
        str | None,
        typer.Option(
            "--maintain-every",
            envvar="INGEST_MAINTAIN_EVERY",
            help="Interval of a whole maintenance of each table, such as 1h (default: a continuous run only merges small files).",
        ),
    ] = None,
    writer: Annotated[
        Writer,
        typer.Option("--writer", envvar="INGEST_WRITER", help="Who writes the tables: the workers, or Delta in Spark."),
    ] = Writer.AUTO,
    as_json: o.Json = False,
) -> None:
    """Move events from Kafka into Delta tables, exactly once. With --once it ends when all is read; otherwise it runs
    until SIGTERM or Ctrl-C.

    Example: ingest run orders --check --metrics 9464 --log-format json
    """
    # Importing Spark takes a second. A SIGTERM in that second also ends with exit code 0.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    from ingest.cli.progress import unread
    from ingest.contract.parts import BATCH_RECORDS_MAX
    from ingest.repair.caretaker import Caretaker
    from ingest.run.application import Application
    from ingest.run.table_query import Trigger
    from ingest.runtime.errors import InvalidInput, most_severe

    if once and every is not None:
        raise InvalidInput(
            "OPTIONS_CONTRADICT",
            f"--once and --every {every} were given together.",
            expected="--once (read to the end, then exit) or --every (run until it is stopped).",
            remedy="leave one of them out.",
        )
    if max_records is not None and max_records > BATCH_RECORDS_MAX:
        raise typer.BadParameter(f"{max_records} is not in the range 1 to {BATCH_RECORDS_MAX}.", param_hint="--max-records-per-batch")
    contracts = env.contracts(tables)
    trigger = Trigger(once=once, every_s=seconds(every or "0s"))
    watch = _watch(env.project, contracts, log_format, quiet=as_json) if check else None
    upkeep = Caretaker(seconds(maintain_every, "--maintain-every") if maintain_every else None, compacts=not once)
    job = Application(contracts, env.lake, env.checkpoints, env.kafka, env.master, trigger, max_records, watch, upkeep, writer=writer)
    with _display(log_format, quiet=as_json) as shown, _measured(metrics, contracts, shown, watch) as measured:
        results = job.execute(measured)
    errors = [result.error for result in results if result.error is not None]
    with unread(sys.stdout, sys.stderr):  # the exit code carries the result too
        if as_json:
            rows: list[dict[str, Any]] = [{**vars(r), "error": r.error.as_dict() if r.error else None} for r in results]
            if watch is not None:
                rows = [{**row, "checks": [as_row(each) for each in watch.found.get(row["table"], [])]} for row in rows]
            print_json("run", ok=not errors and not (watch and watch.failed), tables=rows, error=errors[0] if errors else None)
        elif log_format is LogFormat.TEXT:
            for error in errors:
                print_error(error)
    if errors or (watch and watch.failed):
        sys.exit(most_severe([*(error.exit_code for error in errors), *([1] if watch and watch.failed else [])]))
    if job.interrupted == signal.SIGINT:
        sys.exit(130)


def _display(log_format: LogFormat, *, quiet: bool) -> AbstractContextManager[Display]:
    from ingest.cli.json_log import json_display
    from ingest.cli.progress import display

    return json_display(quiet=quiet) if log_format is LogFormat.JSON else display(quiet=quiet)


def _measured(
    address: str | None, contracts: Sequence[Contract], shown: Display, watch: CheckSchedule | None
) -> AbstractContextManager[Display]:
    """With --metrics, a display that also counts for the metrics, which are served until it is closed; else the display itself."""
    if address is None:
        return nullcontext(shown)
    from ingest.observe.metrics.endpoint import served

    return served(address, [contract.name for contract in contracts], shown, watch.found if watch is not None else {})


def _watch(project: Path, contracts: Sequence[Contract], log_format: LogFormat = LogFormat.TEXT, *, quiet: bool) -> CheckSchedule:
    """The schedule of checks; it reads the suites before Spark starts.

    As text, a check is printed if something failed, and at the end of --once; as JSON always.
    """
    from ingest.cli.json_log import JsonLines
    from ingest.cli.progress import unread
    from ingest.quality.suite import load_suites
    from ingest.quality.watch import CheckSchedule

    suites = {suite.contract.name: suite for suite in load_suites(project, contracts)}
    if log_format is LogFormat.JSON:
        lines = JsonLines(quiet=quiet)
        lines.unchecked(contract.name for contract in contracts if not contract.suite)
        return CheckSchedule(suites, lines.checked, lines.missed)
    with unread(sys.stderr):
        say_unchecked(contracts)

    def show(checked: Checked) -> None:
        if not quiet and (checked.failed or checked.page):
            with unread(sys.stdout):
                print_checked(checked)

    def say_missed(table: str, code: str) -> None:
        with unread(sys.stderr):
            err_line(f"note: {table} was not checked ({code}); the run tries again in a minute")

    return CheckSchedule(suites, show, say_missed)


def seconds(text: str, option: str = "--every") -> float:
    """Parse the duration of an option: `5s` → 5.0, `2m` → 120.0. Raises InvalidInput DURATION_INVALID."""
    from ingest.runtime.errors import InvalidInput

    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
    number = text.rstrip("msdh")
    unit = text[len(number) :] or "s"
    if unit not in units or not number.replace(".", "", 1).isdecimal():
        raise InvalidInput(
            "DURATION_INVALID", f"{option} {text!r}.", expected="a number and a unit: 500ms, 5s, 2m, 1h, 7d.", remedy=f"correct {option}."
        )
    return float(number) * units[unit]
