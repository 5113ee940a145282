"""`ingest maintain`: compact small files, delete old ones, and remove old settled records from the quarantine."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_verdict
from ingest.runtime.output import err_line, out_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ingest.repair.maintenance import Maintained, Settings
    from ingest.runtime.errors import IngestError
    from ingest.runtime.places import Places

POLL_S = 0.1


@app.command()
def maintain(
    tables: Annotated[list[str] | None, typer.Argument(help="Tables (name or pipeline.name); default: all of tables/.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    vacuum_retention: Annotated[
        str | None,
        typer.Option("--vacuum-retention", help="Delete files that no version of this time needs (default: 7d).", metavar="7d"),
    ] = None,
    force_retention: Annotated[
        str, typer.Option("--force-retention", help="Allow less than 7 days; the reason is kept in the commit.", metavar="REASON")
    ] = "",
    keep_quarantine: Annotated[
        str, typer.Option("--keep-quarantine", help="Keep settled (replayed or dropped) quarantined records this long.")
    ] = "90d",
    open_too: Annotated[
        bool, typer.Option("--open-too", help="Also remove old quarantined records that nobody has settled. Their bytes are lost.")
    ] = False,
    wait: Annotated[str, typer.Option("--wait", help="How long to wait for the run that holds the table.")] = "10m",
    project: o.Project = o.PROJECT_DEFAULT,
    lake: o.Lake = o.LAKE_DEFAULT,
    checkpoints: o.Checkpoints = o.CHECKPOINTS_DEFAULT,
    master: o.Master = o.MASTER_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """Compact small files, and delete what nobody needs any more. That includes old settled records of the quarantine.
    No row changes, and the balance still holds.

    On a local disk, the run that holds a table does the work between two batches; this command waits for its answer.
    Without a run, the command does it. The ledger loses no row: starts and `ingest verify` need all of them.

    Example: ingest maintain orders --keep-quarantine 30d
    """
    from ingest.cli.run import seconds
    from ingest.contract.definition import load_contracts
    from ingest.repair.maintenance import Settings
    from ingest.runtime import spark
    from ingest.runtime.errors import IngestError, most_severe
    from ingest.runtime.places import Places, spark_log

    contracts = load_contracts(project, tables or [])
    short = None if vacuum_retention is None else seconds(vacuum_retention, "--vacuum-retention")
    settings = Settings(short, seconds(keep_quarantine, "--keep-quarantine"), open_too, force_retention)
    wait_s = seconds(wait, "--wait")
    sessions: list[SparkSession] = []

    def session() -> SparkSession:
        if not sessions:
            sessions.append(spark.start(master, spark_log(lake, "maintain"), short=True))
        return sessions[0]

    found: list[Maintained] = []
    errors: dict[str, IngestError] = {}
    try:
        for contract in contracts:
            try:
                places = Places(lake, checkpoints, contract.pipeline, contract.table)
                found.append(_maintain(places, settings, session, wait_s, dry_run=dry_run))
            except IngestError as error:
                errors[contract.name] = error
            except Exception as error:
                if any(spark.jvm_exit(started) is not None for started in sessions):
                    raise
                errors[contract.name] = _failed(contract.name, error)
    finally:
        for started in sessions:
            spark.end(started)
    print_verdict("maintain", found, errors, ok=not errors, as_json=as_json, as_row=as_row, show=print_maintained)
    if errors:
        sys.exit(most_severe([error.exit_code for error in errors.values()]))


def _maintain(places: Places, settings: Settings, session: Callable[[], SparkSession], wait_s: float, *, dry_run: bool) -> Maintained:
    """Maintain one table: here, or by the run that holds its lock.

    Raises Refused LOCKED or MAINTAIN_UNANSWERED, and the errors of `Maintenance.do`.
    """
    from contextlib import suppress
    from dataclasses import replace
    from pathlib import Path

    from ingest.delta.delta_sql import Unreadable
    from ingest.delta.table_writer import SparkWriter
    from ingest.ledger.projection import complete
    from ingest.repair.maintenance import Maintenance
    from ingest.run import platform, table_lock
    from ingest.run.lock_file import holder
    from ingest.runtime import crash_points, spark
    from ingest.runtime.errors import Refused
    from ingest.runtime.files import is_local

    local = is_local(places.lake)
    if dry_run:
        return Maintenance(None if local else session(), places, settings, dry_run=True).do()
    deadline = time.monotonic() + wait_s
    while True:
        if local and holder(places.root) is not None:
            done = _by_the_run(places, settings, deadline)
            if done is not None:
                return done
        if local:
            with suppress(Unreadable):  # then Spark looks
                looked = Maintenance(None, places, settings, dry_run=True).do()
                if not any(each.did_something for each in looked.tables):  # so an hourly job without work takes a second
                    return replace(looked, dry_run=False)
        else:
            platform.ensure(session(), places.lake)
        try:
            with table_lock.holding(session(), places):
                if local:
                    crash_points.arm(Path(places.lake), spark.jvm_pid(session()))
                complete(SparkWriter(session()), places)  # counts by file, which compaction and VACUUM may take away
                return Maintenance(session(), places, settings).do()
        except Refused as error:  # a run has taken the lock meanwhile
            if error.code != "LOCKED" or time.monotonic() > deadline:
                raise


def _by_the_run(places: Places, settings: Settings, deadline: float) -> Maintained | None:
    """Ask the process that holds the lock, and wait for its answer; None if it has ended without one.

    Raises Refused MAINTAIN_UNANSWERED, RunStopped MAINTAIN_FAILED.
    """
    from ingest.repair import requests
    from ingest.run.lock_file import holder
    from ingest.runtime.errors import Refused, RunStopped

    who = holder(places.root)
    err_line(f"note: {places.name} is held by {who}, which maintains it between two batches")
    request = requests.send(places, settings, deadline - time.monotonic())
    try:
        while True:
            free = holder(places.root) is None
            answer = requests.answered(places, request)
            if isinstance(answer, str):
                raise RunStopped(
                    "MAINTAIN_FAILED",
                    f"the run could not maintain {places.name}: {answer}",
                    expected="a maintenance without an error. The run itself goes on.",
                    remedy="read the run's log, fix the cause and try again: what was done stays done.",
                )
            if answer is not None or free:
                return answer
            if time.monotonic() > deadline:
                begun = not requests.withdraw(places, request)
                raise Refused(
                    "MAINTAIN_UNANSWERED",
                    f"{who}, which holds {places.name}, " + ("has begun and is not done yet." if begun else "has not begun."),
                    expected="an `ingest run` that answers between two batches; other commands hold the lock only for a short time.",
                    remedy="wait longer (--wait 1h), or try again later.",
                )
            time.sleep(POLL_S)
    finally:
        requests.withdraw(places, request)


def _failed(name: str, error: Exception) -> IngestError:
    from ingest.runtime.errors import RunStopped
    from ingest.runtime.files import environment_error

    text = str(error).strip().splitlines()
    return environment_error(error) or RunStopped(
        "MAINTAIN_FAILED",
        f"{name}: {type(error).__name__}: {text[0][:500] if text else 'no message'}",
        expected="a maintenance without an error.",
        remedy="read Spark's log, fix the cause and try again: what was done stays done.",
    )


def as_row(done: Maintained) -> dict[str, Any]:
    """The table's entry in the JSON document; `delta` has one entry for each of its Delta tables."""
    return {"table": done.table, "dry_run": done.dry_run, "by": done.by, "delta": [dataclasses.asdict(each) for each in done.tables]}


def print_maintained(done: Maintained) -> None:
    """Print what was done to each Delta table."""
    from ingest.repair.caretaker import lines

    out_line(f"{done.table}: {'dry run, nothing was changed' if done.dry_run else f'maintained by {done.by}'}")
    for line in lines(done):
        out_line(f"  {line}")
