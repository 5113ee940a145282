"""The pages of runs: each run becomes a line, and the totals are computed from the lines."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pytest

from ingest.lab.chaos.schedule import FAULTS
from scripts import chaos, model
from scripts.page import END, RUNS, TOTAL, with_run
from tests.model.explore import Explored

PAGES = {"chaos": chaos, "model": model}


@pytest.mark.parametrize("name", PAGES)
def test_the_totals_of_a_page_are_computed_from_its_lines(name: str) -> None:
    page = PAGES[name].PAGE.read_text(encoding="utf-8")
    lines = [line for line in page.split(RUNS)[1].split(END)[0].splitlines() if line.startswith("| 2")]
    less = page.replace(f"{lines[-1]}\n", "")
    assert less != page and with_run(less, lines[-1], PAGES[name].total) == page


def test_a_run_of_the_model_becomes_a_line_with_its_findings() -> None:
    day, page = dt.date(2026, 1, 31), f"{TOTAL}\n**0**\n\n{RUNS}\n| day |\n{END}\n"
    clean = model.row(7, Explored(1000, 9000, Counter(), Counter({"stands-by-another": 2})), day, "abc1234")
    assert clean == "| 2026-01-31 | abc1234 | 7 | 1,000 | 9,000 | no promise broken | stands-by-another 2 |"
    page = with_run(page, clean, model.total)
    assert "**1 runs, 1,000 schedules, 9,000 operations; none with something new.**" in page
    bad = model.row(8, Explored(500, 100, Counter({"LOST": 1, "I2": 2}), Counter()), day, "abc1234")
    page = with_run(page, bad, model.total)
    assert "| I2 2, LOST 1 | – |" in page and "**2 runs, 1,500 schedules, 9,100 operations; 1 with something new.**" in page


def report(ok: bool = True, faults: tuple[str, ...] = FAULTS) -> dict[str, object]:
    counts = {"sigkills": 12, "batches": 34, "records": 56_789, "ends": {}}
    fields = {"seed": 7, "seconds_of_faults": 121.3, "faults": list(faults), "ok": ok, "findings": [] if ok else ["a", "b"]}
    return {**fields, "counts": counts, "rounds": 4, "broken_off": False}


def test_a_chaos_run_becomes_a_line_and_the_totals_are_computed_from_all_lines() -> None:
    page = chaos.PAGE.read_text(encoding="utf-8")
    head, rest = page.split(RUNS)
    empty = head.split(TOTAL)[0] + f"{TOTAL}\n**0 runs**\n\ntext\n\n" + RUNS
    table, after = rest.split(END)
    empty += "\n".join(line for line in table.splitlines() if not line.startswith("| 2")) + "\n" + END + after
    line = chaos.row(report(), dt.date(2026, 1, 31), "abc1234")
    assert line == "| 2026-01-31 | abc1234 | 7 | 2.0 | all | 12 | 34 | 56,789 | clean |"
    once = with_run(empty, line, chaos.total)
    assert "**1 runs, 2 minutes of faults, 12 SIGKILLs, 34 batches, 56,789 records; none with findings.**" in once
    broken = chaos.row({**report(), "broken_off": True}, dt.date(2026, 1, 31), "abc1234")
    assert broken.endswith("| 56,789 | clean; broken off after round 4 |")
    assert "; none with findings.**" in with_run(once, broken, chaos.total)
    bad = chaos.row(report(ok=False, faults=FAULTS[:-1]), dt.date(2026, 1, 31), "abc1234")
    twice = with_run(once, bad, chaos.total)
    assert f"| all but {FAULTS[-1]} | 12 | 34 | 56,789 | 2 findings |" in twice
    assert "**2 runs, 4 minutes of faults, 24 SIGKILLs, 68 batches, 113,578 records; 1 with findings.**" in twice
    assert twice.count("SIGKILLs, ") == 1 and twice.index(line) < twice.index(bad) and "text" in twice
    assert twice.split(END)[1] == after
    assert "\n\n\n" not in twice
