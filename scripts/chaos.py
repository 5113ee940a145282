"""Run `ingest chaos --json` with the arguments given and append the run to docs/explanation/chaos.md; the totals there are counted anew.

Ctrl-C and SIGTERM break the run off; what the rounds judged by then came to is a line all the same.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ingest.lab.chaos.schedule import FAULTS
from scripts.page import PROJECT, commit, with_run

PAGE = PROJECT / "docs" / "explanation" / "chaos.md"
BROKEN_OFF = 130  # the exit code


def main(arguments: Sequence[str]) -> int:
    with subprocess.Popen([sys.executable, "-m", "ingest", "chaos", "--json", *arguments], stdout=subprocess.PIPE, text=True) as chaos:
        signal.signal(signal.SIGINT, lambda *_: None)  # it goes to both; this one has a line to write yet
        signal.signal(signal.SIGTERM, lambda *_: chaos.terminate())
        told, _ = chaos.communicate()
    if chaos.returncode not in (0, 1, BROKEN_OFF) or not told.strip():
        print(told, end="")
        return chaos.returncode
    report = json.loads(told)
    line = row(report, dt.datetime.now(dt.UTC).date(), commit())
    PAGE.write_text(with_run(PAGE.read_text(encoding="utf-8"), line, total), encoding="utf-8")
    print(line)
    print("ends of `ingest run` by itself:", json.dumps(report["counts"]["ends"]))
    for finding in report["findings"]:
        print(f"finding: {finding}")
    if report["folder"]:
        print(f"kept in {report['folder']}")
    return chaos.returncode


def row(report: dict[str, Any], day: dt.date, commit: str) -> str:
    """A run as a line of the table; its minutes are those in which faults were dealt."""
    counts = report["counts"]
    found = len(report["findings"])
    verdict = "clean" if report["ok"] else f"{found} finding{'s' * (found > 1)}"
    verdict += f"; broken off after round {report['rounds']}" if report["broken_off"] else ""
    figures = [
        f"{report['seconds_of_faults'] / 60:.1f}",
        named(report["faults"]) + (", by Spark" if os.environ.get("INGEST_WRITER") == "spark" else ""),
        counts["sigkills"],
        counts["batches"],
        f"{counts['records']:,}",
        verdict,
    ]
    return f"| {day} | {commit} | {report['seed']} | " + " | ".join(map(str, figures)) + " |"


def named(faults: Sequence[str]) -> str:
    """`all`, `all but clock`, or the names."""
    missing = [fault for fault in FAULTS if fault not in faults]
    if not missing:
        return "all"
    return f"all but {', '.join(missing)}" if len(missing) <= len(FAULTS) // 2 else ", ".join(faults)


def total(rows: Sequence[Sequence[str]]) -> str:
    """The sums over the table's lines."""
    minutes = sum(float(cells[3]) for cells in rows)
    sums = [sum(int(cells[number].replace(",", "")) for cells in rows) for number in (5, 6, 7)]
    bad = sum(not cells[8].startswith("clean") for cells in rows)
    return (
        f"**{len(rows)} runs, {minutes:g} minutes of faults, {sums[0]:,} SIGKILLs, {sums[1]:,} batches, {sums[2]:,} records; "
        f"{bad or 'none'} with findings.**"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
