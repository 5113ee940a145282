"""Play schedules of the model (tests/model/explore.py) and append the run, with new totals, to docs/explanation/model.md."""

from __future__ import annotations

import argparse
import datetime as dt
import fcntl
import sys
from collections.abc import Sequence

from scripts.page import PROJECT, commit, with_run
from tests.model.explore import CLEAN, Explored, counted, explore

PAGE = PROJECT / "docs" / "explanation" / "model.md"
SHOWN = 3  # violations that are made as small as can be


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    options = parser.parse_args()
    at = commit()
    explored = explore(options.seed, range(options.schedules), SHOWN)
    line = row(options.seed, explored, dt.datetime.now(dt.UTC).date(), at)
    with PAGE.open("r+", encoding="utf-8") as page:
        fcntl.flock(page, fcntl.LOCK_EX)  # several seeds may be played at a time
        text = with_run(page.read(), line, total)
        page.seek(0)
        page.truncate()
        page.write(text)
    print(line)
    return 1 if explored.found else 0


def row(seed: int, explored: Explored, day: dt.date, commit: str) -> str:
    """A run as a line of the table."""
    found = counted(explored.found) or CLEAN
    known = counted(explored.known) or "–"
    return f"| {day} | {commit} | {seed} | {explored.schedules:,} | {explored.operations:,} | {found} | {known} |"


def total(rows: Sequence[Sequence[str]]) -> str:
    """The sums over the table's lines."""
    schedules, operations = (sum(int(cells[number].replace(",", "")) for cells in rows) for number in (3, 4))
    bad = sum(cells[5] != CLEAN for cells in rows)
    return f"**{len(rows)} runs, {schedules:,} schedules, {operations:,} operations; {bad or 'none'} with something new.**"


if __name__ == "__main__":
    sys.exit(main())
