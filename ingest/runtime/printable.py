"""Text as it is shown to people: ids and values that a producer sent, and columns."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence


def printable(text: str, characters_max: int | None = None) -> str:
    """On one line, and without what would steer a terminal; what is longer ends with an ellipsis."""
    end = None if characters_max is None else characters_max + 1
    shown = "".join(letter if letter.isprintable() else "·" for letter in itertools.islice(text, end))
    return shown if end is None or len(shown) < end else f"{shown[: end - 2]}…"


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """A line a row, its columns below each other; those with these numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{'>' if at in right else '<'}{widths[at]}}" for at, cell in enumerate(row)).rstrip() for row in rows]
