"""`ingest chaos`: inject random faults into runs on scratch copies of the project's tables. The oracle judges the result."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.app import app, print_json
from ingest.cli.options import PROJECT_DEFAULT, Json, Project
from ingest.runtime.output import err_line, out_line

if TYPE_CHECKING:
    from ingest.lab.chaos.chaos_run import ChaosReport

SEED_DEFAULT = 1
RATE_DEFAULT = 4000


@app.command()
def chaos(
    tables: Annotated[list[str] | None, typer.Argument(help="Tables (name or pipeline.name); default: all of tables/.")] = None,
    project: Project = PROJECT_DEFAULT,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.1, help="Minutes of fault injection. Reading to the end and judging take extra time.")
    ] = 2.0,
    seed: Annotated[int, typer.Option("--seed", help="The same seed injects the same faults in the same order.")] = SEED_DEFAULT,
    faults: Annotated[
        str | None, typer.Option("--faults", help="Comma-separated names (default: all). docs/explanation/chaos.md lists them.")
    ] = None,
    rate: Annotated[int, typer.Option("--rate", min=0, help="Records per second that the producer writes; 0: no limit.")] = RATE_DEFAULT,
    samples: Annotated[
        Path | None, typer.Option("--samples", help="Folder of sample events: <table>.jsonl, one JSON object per line. Ids are replaced.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", help="Parent of the scratch folder (default: the system's). If there are findings, the scratch folder is kept."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Inject random faults into a real run and judge the result. It has an embedded broker, a producer
    and a scratch lake of its own. Exit 1: findings.

    Example: ingest chaos orders --minutes 10 --seed 7
    """
    from ingest.contract.definition import load_contracts
    from ingest.lab.chaos.chaos_run import Options, run
    from ingest.lab.chaos.schedule import chosen

    options = Options(load_contracts(project, tables or []), minutes, seed, chosen(faults), rate, folder, samples)
    began = time.monotonic()

    def say(who: str, what: str) -> None:
        line = f"{time.monotonic() - began:7.1f} s  {who:<15}| {what}"
        err_line(line) if as_json else out_line(line, flush=True)

    report = run(options, say)
    if as_json:
        rows = [{"table": name, "records": counts.records, "batches": counts.batches} for name, counts in report.tables.items()]
        print_json("chaos", ok=report.ok, tables=rows, **_more(report))
    else:
        _print(report, _command(tables or [], project, report))
    if report.broken_off:
        raise KeyboardInterrupt
    if not report.ok:
        sys.exit(1)


def _command(tables: list[str], project: Path, report: ChaosReport) -> str:
    """The command that repeats this run."""
    used = report.options
    words = ["ingest", "chaos", *tables, "--minutes", f"{used.minutes:g}", "--seed", str(used.seed), "--faults", ",".join(used.faults)]
    words += ["--rate", str(used.rate)]
    words += ["--project", str(project)] if project != PROJECT_DEFAULT else []
    words += ["--samples", str(used.samples)] if used.samples else []
    return shlex.join(words)


def _print(report: ChaosReport, command: str) -> None:
    counts = report.counts
    out_line("", f"seed {report.options.seed}, {report.rounds} round(s), {report.seconds:.0f} s in total")
    out_line(f"  injected  {', '.join(f'{name} {times}' for name, times in sorted(counts.injected.items())) or 'none'}")
    out_line(f"  SIGKILLs  {counts.sigkills}")
    out_line(f"  starts    ingest run {counts.starts}, producer {counts.writers}")
    out_line(f"  own exits {', '.join(f'{end} ×{times}' for end, times in sorted(counts.ends.items())) or 'none'}")
    out_line(f"  batches   {counts.batches}")
    out_line(f"  records   {counts.records:,}")
    for fault, reason in report.left_out.items():
        out_line(f"  skipped   {fault}: {reason}")
    for note in report.notes:
        out_line(f"  note      {note}")
    if report.broken_off:
        out_line(f"interrupted: these figures do not include round {report.rounds + 1}")
    if report.ok:
        out_line("verdict: clean. Every record is accounted for; no id is lost or stored twice.")
        return
    out_line(f"verdict: {len(report.findings)} finding(s)")
    for finding in report.findings:
        out_line(f"  {finding}")
    out_line(f"kept:  {report.folder}")
    out_line(f"again: {command}")


def _more(report: ChaosReport) -> dict[str, Any]:
    used = report.options
    return {
        "seed": used.seed,
        "minutes": used.minutes,
        "rate": used.rate,
        "faults": [fault for fault in used.faults if fault not in report.left_out],
        "left_out": report.left_out,
        "rounds": report.rounds,
        "broken_off": report.broken_off,
        "seconds": round(report.seconds, 1),
        "seconds_of_faults": round(report.dealt_s, 1),
        "counts": report.counts.as_dict(),
        "findings": report.findings,
        "notes": report.notes,
        "folder": str(report.folder) if report.folder else None,
    }
