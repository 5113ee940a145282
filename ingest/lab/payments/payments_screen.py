"""The last screen of the demo of money, and its JSON document."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

from ingest.lab.demo.demo_folder import shown
from ingest.lab.demo.demo_screen import WIDTH
from ingest.lab.payments.money import Held
from ingest.lab.payments.payments_run import PaymentsReport
from ingest.runtime import output
from ingest.runtime.printable import printable


def print_report(report: PaymentsReport, seconds: float) -> None:
    """Print what each stage of both chains holds, the trail of one payment, and what to try next."""
    from rich import box
    from rich.table import Table

    console = output.console(width=None if sys.stdout.isatty() else WIDTH, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for title in ("chain", "stage", "payments", "lost", "doubled", "copies", "EUR", "off by"):
        table.add_column(title, justify="left" if title in ("chain", "stage") else "right")
    for name, stages in report.chains.items():
        for number, each in enumerate(stages):
            table.add_row("" if number else name, *cells(each), style="green" if each.exact else "red")
    console.print()
    console.print(table)
    console.print("copies: records in Kafka that carry an event id once more; every reader behind them recognises it")
    payment_id, trail = report.trail
    console.print(f"The way of one payment (as `ingest trace {payment_id}` shows it):", style="bold")
    for seen in trail:
        console.print(printable(f"  {seen.place:<10} {seen.name:<17} {seen.summary}", WIDTH))
        for step in seen.history:
            console.print(printable(f"  {'':<28} {step}", WIDTH))
    console.print("Try next:", style="bold")
    console.print(f"  ingest postgres start --data {shown(report.postgres)} --port 0     # then, with its URL:")
    console.print("  ingest effects status --database-url '…'        ingest sink status --database-url '…'")
    console.print("  docs/how-to/beyond-kafka.md has each pattern, its guarantees and its limits")
    kills = f"{report.kills['oncelake']} kills of our chain, {report.kills['naive']} of the naive one"
    verdict = "Every stage holds every payment once, to the cent" if report.ok else "NOT EXACT: see above"
    console.print(f"{verdict} ({kills}). {seconds:.0f} s.", style="bold green" if report.ok else "bold red")


def cells(each: Held) -> Iterator[str]:
    """A stage's row: counts, the sum, and how far it is off."""
    yield each.stage
    yield from (f"{number:,}" for number in (each.payments, each.lost, each.doubled, each.copies))
    yield f"{each.cents / 100:,.2f}"
    off = each.cents - each.expected_cents
    yield "0.00" if off == 0 else f"{off / 100:+,.2f}"


def document(report: PaymentsReport, seconds: float) -> dict[str, Any]:
    """The fields of the JSON document. Amounts are in cents."""
    payment_id, trail = report.trail
    return {
        "payments": report.payments,
        "chains": {name: [{**dataclasses.asdict(each), "exact": each.exact} for each in stages] for name, stages in report.chains.items()},
        "kills": report.kills,
        "effects": report.effects,
        "trail": {"payment_id": payment_id, "sightings": [dataclasses.asdict(each) for each in trail]},
        "verify": {"exit_code": report.verify_exit, "output": report.verify_output},
        "seconds": round(seconds, 1),
        "places": {"folder": str(report.folder), "lake": str(report.lake.lake), "postgres": str(report.postgres)},
    }
