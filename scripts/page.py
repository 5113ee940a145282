"""Runs on a page of docs/: a table that a script appends to, and totals counted anew from all its lines."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

PROJECT = Path(__file__).parents[1]
# What stands between these lines is the script's.
TOTAL, RUNS, END = "<!-- total -->", "<!-- runs -->", "<!-- end -->"
PAGES = ("docs/explanation/chaos.md", "docs/explanation/model.md")


def with_run(page: str, line: str, total: Callable[[Sequence[Sequence[str]]], str]) -> str:
    """The page with one more run; `total` gets the cells of all of them."""
    before, rest = page.split(RUNS)
    table, after = rest.split(END)
    table = table.rstrip("\n") + f"\n{line}\n"
    head, old = before.split(TOTAL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| 2")]
    return f"{head}{TOTAL}\n{total(rows)}{old[old.index(chr(10) * 2) :]}{RUNS}{table}{END}{after}"


def commit() -> str:
    """The commit at hand; with a + where the working copy differs from it in more than these pages."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    changed = [line for line in git("status", "--porcelain", "--untracked-files=no").splitlines() if not line.endswith(PAGES)]
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
