"""`ingest demo`: kill Oncelake and what is written by hand in its place, and count what both hold."""

from __future__ import annotations

import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ingest.cli.app import app, print_json
from ingest.cli.options import PROJECT_DEFAULT, Json, Project


class Scenario(StrEnum):
    """`lake`: from Kafka to Delta tables. `payments`: from an application's database through Kafka to an API and the lake."""

    LAKE = "lake"
    PAYMENTS = "payments"


FOLDER_DEFAULT = Path("demo")
EVENTS_DEFAULT = {Scenario.LAKE: 100_000, Scenario.PAYMENTS: 1_000}
Chosen = Annotated[Scenario, typer.Argument(help="lake: Kafka to Delta tables. payments: a database, Kafka, an API and the lake.")]
Folder = Annotated[Path, typer.Option("--folder", help="Folder for demos. A new demo deletes those that have ended.")]
Events = Annotated[int | None, typer.Option("--events", min=100, help="Distinct events (default: 100,000; payments: 1,000).")]
Seed = Annotated[int, typer.Option("--seed", help="Another seed gives other events.")]
Full = Annotated[bool, typer.Option("--full", help="Print every batch and every check, not only the summary.")]


@app.command()
def demo(
    scenario: Chosen = Scenario.LAKE,
    project: Project = PROJECT_DEFAULT,
    folder: Folder = FOLDER_DEFAULT,
    events: Events = None,
    seed: Seed = 1,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Kill this pipeline and one written by hand, and count both tables. It deletes their checkpoints, too.
    Exit 1: not exactly once.

    Example: ingest demo payments --seed 7
    """
    from ingest.lab.demo.story import Story

    number = EVENTS_DEFAULT[scenario] if events is None else events
    with Story("silent" if as_json else "full" if full else "live" if sys.stdout.isatty() else "lines") as story:
        if scenario is Scenario.LAKE:
            from ingest.lab.demo.demo_run import run
            from ingest.lab.demo.demo_screen import document, print_report

            report = run(folder, project, number, seed, story.say)
            ok, fields, show = report.ok, document(report, story.seconds), partial(print_report, report, story.seconds, full=full)
        else:
            from ingest.lab.payments import payments_run, payments_screen

            paid = payments_run.run(folder, number, seed, story.say)
            ok, fields = paid.ok, payments_screen.document(paid, story.seconds)
            show = partial(payments_screen.print_report, paid, story.seconds)
    if as_json:
        print_json("demo", ok=ok, **fields)
    else:
        show()
    if not ok:
        sys.exit(1)
