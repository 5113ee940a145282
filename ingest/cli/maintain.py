"""`ingest maintain`: compact small files, delete old ones, and remove old settled records from the quarantine."""

from __future__ import annotations

import dataclasses
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
    wait: Annotated[str, typer.Option("--wait", help="How long to wait for a process that must be alone with the table.")] = "10m",
    project: o.Project = o.PROJECT_DEFAULT,
    lake: o.Lake = o.LAKE_DEFAULT,
    checkpoints: o.Checkpoints = o.CHECKPOINTS_DEFAULT,
    master: o.Master = o.MASTER_DEFAULT,
    as_json: o.Json = False,
) -> int:
    """Compact small files, and delete what nobody needs any more. That includes old settled records of the quarantine.
    No row changes, and the balance still holds.

    It works beside a run and starts no JVM, unless a table needs Delta in Spark: then it waits until no run holds the table.
    The ledger loses no row: starts and `ingest verify` need all of them.

    Example: ingest maintain orders --keep-quarantine 30d
    """
    from ingest.cli.run import seconds
    from ingest.contract.definition import load_contracts
    from ingest.repair.maintenance import Settings
    from ingest.runtime import spark
    from ingest.runtime.errors import IngestError
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
    return print_verdict("maintain", found, errors, as_json=as_json, as_row=as_row, show=print_maintained)


def _maintain(places: Places, settings: Settings, session: Callable[[], SparkSession], wait_s: float, *, dry_run: bool) -> Maintained:
    """Maintain one table: without Spark beside a run, or through Spark alone. Waits for whoever commits alone.

    Raises Refused LOCKED, and the errors of `Maintenance.do`.
    """
    from ingest.repair.maintenance import Maintenance
    from ingest.runtime.errors import Refused
    from ingest.runtime.files import is_local

    if dry_run:
        return Maintenance(None, places, settings, session=None if is_local(places.lake) else session()).do()
    deadline, waits = time.monotonic() + wait_s, False
    while True:
        try:
            return _maintained(places, settings, session)
        except Refused as error:
            if error.code != "LOCKED":
                raise
            if not waits and (idle := _nothing_to_do(places, settings)) is not None:
                return idle
            if time.monotonic() > deadline:
                remedy = "let the run do it (`ingest run --maintain-every 1h`), wait longer (--wait 1h), or stop it first."
                raise Refused(error.code, error.found, expected=error.expected, remedy=remedy) from error
            if not waits:
                err_line(f"note: {places.name} waits up to {wait_s:g} s: {error.found}")
            waits = True
        time.sleep(POLL_S)


def _maintained(places: Places, settings: Settings, session: Callable[[], SparkSession]) -> Maintained:
    """Maintain one table now. Raises as `_maintain`."""
    from pathlib import Path

    from ingest.delta.direct_writer import DirectWriter
    from ingest.delta.id_index import IdIndex
    from ingest.delta.table_upkeep import DirectUpkeep, SparkUpkeep
    from ingest.repair.maintenance import Maintenance
    from ingest.run import platform, table_lock
    from ingest.run.writer_choice import refuse_unfit_tables
    from ingest.run.writer_setting import Writer, writer_setting
    from ingest.runtime import crash_points, spark
    from ingest.runtime.errors import InvalidInput
    from ingest.runtime.files import is_local

    if writer_setting() is not Writer.SPARK:
        try:
            refuse_unfit_tables(places)
            # A run may still need the files that a short retention deletes.
            with table_lock.holding(None, places) if settings.force else table_lock.beside_a_run(places):
                crash_points.arm(Path(places.lake), None)
                return Maintenance(DirectUpkeep(DirectWriter(ids=IdIndex.of(places))), places, settings).do()
        except InvalidInput as error:
            if error.code != "DIRECT_UNFIT":
                raise
    if is_local(places.lake):  # before a JVM starts for nothing
        if (who := table_lock.held_by(places)) is not None:
            raise who
        if (idle := _nothing_to_do(places, settings)) is not None:
            return idle
    platform.ensure(session(), places.lake)
    with table_lock.holding(session(), places):
        if is_local(places.lake):
            crash_points.arm(Path(places.lake), spark.jvm_pid(session()))
        return Maintenance(SparkUpkeep(session()), places, settings).do()


def _nothing_to_do(places: Places, settings: Settings) -> Maintained | None:
    """The result for a local table of which nothing is to be compacted or deleted; None for any other. It needs no Spark and no lock."""
    from contextlib import suppress
    from dataclasses import replace

    from ingest.delta.delta_sql import Unreadable
    from ingest.repair.maintenance import Maintenance

    with suppress(Unreadable):  # then Spark looks
        looked = Maintenance(None, places, settings).do()
        if not any(each.did_something for each in looked.tables):
            return replace(looked, dry_run=False)
    return None


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
    return {"table": done.table, "dry_run": done.dry_run, "delta": [dataclasses.asdict(each) for each in done.tables]}


def print_maintained(done: Maintained) -> None:
    """Print what was done to each Delta table."""
    from ingest.repair.caretaker import lines

    out_line(f"{done.table}: {'dry run, nothing was changed' if done.dry_run else 'maintained'}")
    for line in lines(done):
        out_line(f"  {line}")
