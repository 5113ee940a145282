"""`ingest run`: the main job."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_error, print_json


@app.command()
def run(
    tables: Annotated[list[str] | None, typer.Argument(help="Tables (name or pipeline.name); all of tables/ if none is named.")] = None,
    project: o.Project = o.PROJECT_DEFAULT,
    lake: o.Lake = o.LAKE_DEFAULT,
    checkpoints: o.Checkpoints = o.CHECKPOINTS_DEFAULT,
    bootstrap_servers: o.BootstrapServers = o.BOOTSTRAP_DEFAULT,
    master: o.Master = o.MASTER_DEFAULT,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then end.")] = False,
    every: Annotated[
        str | None, typer.Option("--every", help="Start a micro-batch every so often: 5s, 2m; without it one follows the other.")
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max-records-per-batch", min=1, help="Offsets that a micro-batch takes at most; else the contract's.")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Move events from Kafka into the Delta tables, exactly once, until all is read (--once) or it is told to stop."""
    from ingest.cli.progress import display
    from ingest.contract import load_contracts
    from ingest.errors import InvalidInput, most_severe
    from ingest.kafka_options import KafkaOptions
    from ingest.stream.query import Trigger
    from ingest.stream.run import Run

    if once and every is not None:
        raise InvalidInput(
            "OPTIONS_CONTRADICT",
            f"--once and --every {every} were given together.",
            expected="--once (read what is there, then end) or --every (go on until told to stop).",
            remedy="leave one of them out.",
        )
    contracts = load_contracts(project, tables or [])
    trigger = Trigger(once=once, every_s=seconds(every or "0s"))
    job = Run(contracts, lake, checkpoints, KafkaOptions.from_environment(bootstrap_servers), master, trigger, max_records)
    with display(quiet=as_json) as shown:
        results = job.execute(shown)
    errors = [result.error for result in results if result.error is not None]
    if as_json:
        rows: list[dict[str, Any]] = [{**vars(r), "error": r.error.as_dict() if r.error else None} for r in results]
        print_json("run", ok=not errors, tables=rows, error=errors[0] if errors else None)
    else:
        for error in errors:
            print_error(error)
    if errors:
        sys.exit(most_severe([error.exit_code for error in errors]))
    if job.interrupted == signal.SIGINT:
        sys.exit(130)


def seconds(text: str) -> float:
    """`5s` → 5.0, `2m` → 120.0. Raises InvalidInput."""
    from ingest.errors import InvalidInput

    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    number = text.rstrip("msh")
    unit = text[len(number) :] or "s"
    if unit not in units or not number.replace(".", "", 1).isdecimal():
        raise InvalidInput(
            "DURATION_INVALID",
            f"--every {text!r}.",
            expected="a number and a unit: 500ms, 5s, 2m, 1h.",
            remedy="correct --every.",
        )
    return float(number) * units[unit]
