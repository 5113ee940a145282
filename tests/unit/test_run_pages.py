"""The pages of runs: a run becomes a line, and the totals are those of the lines."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pytest

from scripts import chaos, model
from scripts.page import END, RUNS, TOTAL, with_run
from tests.model.explore import Explored

PAGES = {"chaos": chaos, "model": model}


@pytest.mark.parametrize("name", PAGES)
def test_the_totals_of_a_page_are_those_of_its_lines(name: str) -> None:
    page = PAGES[name].PAGE.read_text(encoding="utf-8")
    lines = [line for line in page.split(RUNS)[1].split(END)[0].splitlines() if line.startswith("| 2")]
    less = page.replace(f"{lines[-1]}\n", "")
    assert less != page and with_run(less, lines[-1], PAGES[name].total) == page


def test_schedules_that_were_played_become_a_line_with_what_was_found() -> None:
    day, page = dt.date(2026, 1, 31), f"{TOTAL}\n**0**\n\n{RUNS}\n| day |\n{END}\n"
    clean = model.row(7, Explored(1000, 9000, Counter(), Counter({"stands-by-another": 2})), day, "abc1234")
    assert clean == "| 2026-01-31 | abc1234 | 7 | 1,000 | 9,000 | no promise broken | stands-by-another 2 |"
    page = with_run(page, clean, model.total)
    assert "**1 runs, 1,000 schedules, 9,000 operations; none with something new.**" in page
    bad = model.row(8, Explored(500, 100, Counter({"LOST": 1, "I2": 2}), Counter()), day, "abc1234")
    page = with_run(page, bad, model.total)
    assert "| I2 2, LOST 1 | – |" in page and "**2 runs, 1,500 schedules, 9,100 operations; 1 with something new.**" in page
