"""`ingest demo`: kill Oncelake and a pipeline written by hand, delete their checkpoints, and count the events in their tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ingest.cli.app import app, print_json
from ingest.cli.options import PROJECT_DEFAULT, Json, Project

FOLDER_DEFAULT = Path("demo")
Folder = Annotated[Path, typer.Option("--folder", help="Folder for demos. A new demo deletes those that have ended.")]
Events = Annotated[int, typer.Option("--events", min=1000, help="Distinct orders and payments to send.")]
Seed = Annotated[int, typer.Option("--seed", help="Another seed gives other events.")]
Full = Annotated[bool, typer.Option("--full", help="Print every batch and every check, not only the summary.")]


@app.command()
def demo(
    project: Project = PROJECT_DEFAULT,
    folder: Folder = FOLDER_DEFAULT,
    events: Events = 100_000,
    seed: Seed = 1,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Kill this pipeline and one written by hand, and count both tables. It deletes their checkpoints, too.
    Exit 1: not exactly once.
    """
    from ingest.lab.demo.demo_run import run
    from ingest.lab.demo.demo_screen import document, print_report
    from ingest.lab.demo.story import Story

    with Story("silent" if as_json else "full" if full else "live" if sys.stdout.isatty() else "lines") as story:
        report = run(folder, project, events, seed, story.say)
    if as_json:
        print_json("demo", ok=report.ok, **document(report, story.seconds))
    else:
        print_report(report, story.seconds, full=full)
    if not report.ok:
        sys.exit(1)
