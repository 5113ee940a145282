"""The demo's last screen, and its JSON document."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ingest.lab.demo.demo_folder import words
from ingest.lab.demo.demo_quality import METHOD
from ingest.runtime import output
from ingest.runtime.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

    from ingest.lab.demo.demo_run import DemoReport

# Fits a terminal of 100 columns, and a log.
WIDTH = 100


def print_report(report: DemoReport, seconds: float, *, full: bool) -> None:
    """Print what was sent, what each pipeline holds, the balance, the failed expectation, an answer in SQL, and what to try next."""
    console = output.console(width=None if sys.stdout.isatty() else WIDTH, soft_wrap=True)
    console.print()
    console.print(_table(report))
    for line in notes(report) if full else ():
        console.print(line)
    verify = f"`ingest verify`, exit code {report.verify_exit}"
    console.print(f"Balance ({verify}):", style="bold")
    for line in report.verify_output if full else balance(report.verify_output):
        console.print(f"  {line}")
    ours = report.pipelines["oncelake"]
    console.print(f"Quality (`ingest run --check`, exit code {ours.exit_code}; {METHOD!r} passes every row rule):", style="bold")
    for line in checks(report, full=full):
        console.print(f"  {line if full else printable(line, WIDTH - 2)}")
    command, answer = report.answer
    console.print(f"SQL (`{command}`):" if full else "SQL (`ingest sql`, no Spark):", style="bold")
    for line in answer:
        if not re.fullmatch(r"\d+ rows?", line):
            console.print(f"  {line}")
    console.print(f"Try next, with {shlex.join(words(ours.project, ours.lake))}:", style="bold")
    console.print("  ingest sql --question quarantine-by-reason --table orders")
    console.print("  ingest verify orders payments")
    console.print("  docs/tutorial/first-table.md leads to a table of your own; `ingest demo --full` shows every batch")
    phases = f" ({', '.join(f'{phase} {each:.0f} s' for phase, each in report.seconds.items())})" if full else ""
    verdict = "Oncelake holds every committed event exactly once" if report.ok else "NOT EXACT: see above"
    console.print(f"{verdict}. {seconds:.0f} s{phases}.", style="bold green" if report.ok else "bold red")


def _table(report: DemoReport) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)  # 80 columns
    for title in ("table", "", "rows", "duplicates", "lost", "aborted", "broken", "quarantined"):
        table.add_column(title, justify="left" if title in ("table", "") else "right")
    shown_table = ""
    for result in report.results:
        sent, made = report.sent_to(result.table), result.outcome
        if result.table != shown_table:
            table.add_row(result.table, "sent", f"{len(sent.ids):,}", "0", "0", "0", "0", str(len(sent.poison)))
        shown_table = result.table
        cells = [f"{made.rows:,}", f"{made.duplicates:,}", f"{made.lost:,}", f"{made.aborted:,}"]
        cells += [f"{made.poison_rows + made.allowed:,}", f"{made.quarantined:,}"]
        table.add_row("", result.pipeline, *cells, style="green" if made.exact else "red")
    return table


def balance(verify_output: list[str]) -> Iterator[str]:
    """The first lines of verify's output for each table: the verdict and its two sums."""
    for number, line in enumerate(verify_output):
        if not line.startswith(" "):
            yield from (line, *verify_output[number + 1 : number + 3])
        elif line.lstrip().startswith("!"):
            yield line


def checks(report: DemoReport, *, full: bool) -> Iterator[str]:
    """The check's lines in the last run's output; without `full` only the failed expectations."""
    ours = report.pipelines["oncelake"]
    names = tuple(f"{contract.name}: " for contract in ours.contracts)
    for line in ours.output:
        if (full and line.startswith((*names, "  "))) or line.lstrip().startswith("! ") or (line.startswith(names) and "FAILED" in line):
            yield line


def notes(report: DemoReport) -> Iterator[str]:
    """What some of the figures consist of."""
    for result in report.results:
        sent, made, who = report.sent_to(result.table), result.outcome, f"{result.table}, {result.pipeline}"
        if made.allowed and result.pipeline == "oncelake":
            yield f"{who}: {made.allowed} of the broken records are of a kind that a contract may accept: {', '.join(made.allowed_kinds)}."
        if result.pipeline == "by hand" and made.duplicates:
            again = made.duplicates - sent.retries
            twice = f", {again:,} were appended twice by a restart" if again > 0 else ""
            nulls = f"; {made.null_ids} rows have no id" if made.null_ids else ""
            yield f"{who}: {sent.retries:,} of the duplicates are the producer's retries{twice}{nulls}."
        if made.wronged or made.vanished:
            yield f"{who}: {made.wronged} good records are in quarantine, {made.vanished} broken records are in neither table."


def document(report: DemoReport, seconds: float) -> dict[str, Any]:
    """The fields of the JSON document."""
    ours = report.pipelines["oncelake"]
    return {
        "tables": list(_rows(report)),
        "seconds": round(seconds, 1),
        "phases": {phase: round(each, 1) for phase, each in report.seconds.items()},
        "produced": dataclasses.asdict(report.produced),
        "kills": [dataclasses.asdict(kill) for pipeline in report.pipelines.values() for kill in pipeline.kills],
        "check": {"exit_code": ours.exit_code, "output": ours.output},
        "answer": {"command": report.answer[0], "output": report.answer[1]},
        "verify": {"exit_code": report.verify_exit, "output": report.verify_output},
        "places": {"folder": str(report.folder), "lake": str(ours.lake), "checkpoints": str(ours.checkpoints)},
    }


def _rows(report: DemoReport) -> Iterator[dict[str, Any]]:
    for result in report.results:
        sent = report.sent_to(result.table)
        expected = {"events": len(sent.ids), "retries": sent.retries, "aborted": len(sent.aborted), "poison": len(sent.poison)}
        made = dataclasses.asdict(result.outcome)
        yield {"table": result.table, "pipeline": result.pipeline, "exact": result.outcome.exact, "sent": expected, **made}
