"""`ingest demo`: the main job with a kill and the loss of all checkpoints, beside the pipeline that people write by hand."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.app import app, print_json
from ingest.cli.options import PROJECT_DEFAULT, Json, Project

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ingest.lab.demo.show import DemoReport

# A table of this width fits a log; a terminal says its own.
WIDTH = 140

FOLDER_DEFAULT = Path("demo")
Folder = Annotated[Path, typer.Option("--folder", help="Where demos go, a subfolder each; those that have ended are removed by the next.")]
Events = Annotated[int, typer.Option("--events", min=1000, help="Distinct orders and payments to send.")]
Seed = Annotated[int, typer.Option("--seed", help="Another seed gives other events.")]


@app.command()
def demo(
    project: Project = PROJECT_DEFAULT, folder: Folder = FOLDER_DEFAULT, events: Events = 100_000, seed: Seed = 1, as_json: Json = False
) -> None:
    """Ingest sample events, be killed, lose all checkpoints, go on, verify; beside it a pipeline by hand (exit 1: not exact)."""
    from ingest.lab.demo.show import run

    began = time.monotonic()

    def say(who: str, what: str) -> None:
        if not as_json:
            print(f"{time.monotonic() - began:6.1f} s  {who:<9}| {what}", flush=True)

    if not as_json:
        print(INTRODUCTION, flush=True)
    report = run(folder, project, events, seed, say)
    if as_json:
        print_json("demo", ok=report.ok, tables=_rows(report), **_more(report, time.monotonic() - began))
    else:
        _print(report, time.monotonic() - began)
    if not report.ok:
        sys.exit(1)


INTRODUCTION = """\
A producer writes orders and payments into a Kafka broker, as real ones do: with retries, aborted transactions and garbage. Two
pipelines then read the same topics into Delta tables, side by side: `oncelake` (this project) and `by hand` (append in foreachBatch,
as tutorials show it). Both get SIGKILL in the midst, right after a Delta commit, then lose all their checkpoints, and are started again.
"""


def _print(report: DemoReport, seconds: float) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, soft_wrap=True)
    console.print(f"\nWhat `ingest verify` says of Oncelake's tables (exit code {report.verify_exit}):", style="bold")
    for line in report.verify_output:
        print(f"  {line}")
    console.print(
        "\nWhat was sent, and what each pipeline made of it (the ids in the Delta tables against the producer's manifest):", style="bold"
    )
    console.print(_table(report))
    for line in _notes(report):
        print(line)
    phases = ", ".join(f"{phase} {each:.0f} s" for phase, each in report.seconds.items())
    verdict = "Every committed event is in Oncelake's tables exactly once" if report.ok else "NOT EXACT: see above"
    style = "bold green" if report.ok else "bold red"
    console.print(f"\n{verdict}. {seconds:.0f} s in all ({phases}); none of its processes is left.", style=style)
    print(survived(report))
    _print_quality(console, report)
    ours, theirs = report.pipelines["oncelake"], report.pipelines["by hand"]
    print("To look at, until the next demo:")
    print(f"  Oncelake's tables  {ours.lake}")
    print(f"  those by hand      {theirs.lake}")
    print(f"  what was sent      {report.folder / 'manifest.jsonl'}")
    print(f"  the topics         ingest broker start --port 0 --data {report.folder / 'broker'}")
    print(f"  the proof again    ingest verify --project {report.project} --lake {ours.lake} --checkpoints {ours.checkpoints}")


def survived(report: DemoReport) -> str:
    """What happened to Oncelake, in one plain line."""
    killed = next(kill for kill in report.kills if kill.pipeline == "oncelake")
    balance = "every record is accounted for" if report.verify_exit == 0 else "the balance does NOT hold"
    return (
        f"Its driver was killed with SIGKILL in the midst, its whole checkpoints folder ({killed.checkpoint_files} files) was deleted, "
        f"it was started again and went on where its tables end: {balance} (`ingest verify`: exit code {report.verify_exit})."
    )


def _print_quality(console: Console, report: DemoReport) -> None:
    """The last part: rows that the contract lets pass and the suite does not, and what an analyst asks."""
    ours = report.pipelines["oncelake"]
    console.print(
        f"\nData quality: of the 20 odd payments `ingest run --once --check` says (exit code {ours.exit_code}; 1 is what a critical "
        "expectation that fails makes):",
        style="bold",
    )
    names = tuple(f"{contract.name}: " for contract in ours.contracts)
    for line in ours.output:
        if line.startswith((*names, "  ")):
            print(f"  {line}")
    for command, answer in report.answers.items():
        console.print(f"\n`{command}`:", style="bold", markup=False)
        for line in answer:
            print(f"  {line}")


def _table(report: DemoReport) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("table", "", "rows", "distinct ids", "duplicates", "lost", "aborted let in", "poison in quarantine", "poison among rows"):
        table.add_column(title, justify="left" if title in ("table", "") else "right")
    shown = ""
    for result in report.results:
        sent, made = report.sent_to(result.table), result.outcome
        if result.table != shown:
            count = f"{len(sent.ids):,}"
            table.add_row(result.table, "should be", count, count, "0", "0", "0", str(len(sent.poison)), "0")
        shown = result.table
        cells = [f"{made.rows:,}", f"{made.distinct_ids:,}", f"{made.duplicates:,}", f"{made.lost:,}", f"{made.aborted:,}"]
        cells += [f"{made.quarantined:,}", f"{made.poison_rows + made.allowed:,}"]
        table.add_row("", result.pipeline, *cells, style="green" if made.exact else "red", end_section=result.pipeline == "by hand")
    return table


def _notes(report: DemoReport) -> list[str]:
    """What the figures are made of, as far as they need a word."""
    notes = []
    for result in report.results:
        sent, made, who = report.sent_to(result.table), result.outcome, f"{result.table}, {result.pipeline}"
        if made.allowed and result.pipeline == "oncelake":
            notes.append(f"{who}: {made.allowed} of the poison is of a kind that a contract may let in: {', '.join(made.allowed_kinds)}.")
        if result.pipeline == "by hand" and made.duplicates:
            again = made.duplicates - sent.retries
            twice = f", {again:,} were appended twice, without its checkpoints" if again > 0 else ""
            nulls = f"; {made.null_ids} rows have no id at all" if made.null_ids else ""
            notes.append(f"{who}: {sent.retries:,} of the duplicates are the producer's retries{twice}{nulls}.")
        if made.wronged or made.vanished:
            notes.append(f"{who}: {made.wronged} good records are in quarantine, {made.vanished} poison records left no trace.")
    return notes


def _rows(report: DemoReport) -> list[dict[str, Any]]:
    rows = []
    for result in report.results:
        sent = report.sent_to(result.table)
        expected = {"events": len(sent.ids), "retries": sent.retries, "aborted": len(sent.aborted), "poison": len(sent.poison)}
        made = dataclasses.asdict(result.outcome)
        rows.append({"table": result.table, "pipeline": result.pipeline, "exact": result.outcome.exact, "sent": expected, **made})
    return rows


def _more(report: DemoReport, seconds: float) -> dict[str, Any]:
    ours = report.pipelines["oncelake"]
    return {
        "seconds": round(seconds, 1),
        "phases": {phase: round(each, 1) for phase, each in report.seconds.items()},
        "produced": dataclasses.asdict(report.produced),
        "kills": [dataclasses.asdict(kill) for kill in report.kills],
        "check": {"exit_code": ours.exit_code, "output": ours.output},
        "answers": report.answers,
        "verify": {"exit_code": report.verify_exit, "output": report.verify_output},
        "places": {"folder": str(report.folder), "lake": str(ours.lake), "checkpoints": str(ours.checkpoints)},
    }
