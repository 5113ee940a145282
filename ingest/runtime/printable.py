"""Text for display: ids and values that a producer sent, and aligned columns."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence


def printable(text: str, characters_max: int | None = None) -> str:
    """The text on one line, with `·` for unprintable characters such as terminal control codes; longer text ends with an ellipsis."""
    end = None if characters_max is None else characters_max + 1
    shown = "".join(letter if letter.isprintable() else "·" for letter in itertools.islice(text, end))
    return shown if end is None or len(shown) < end else f"{shown[: end - 2]}…"


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """One line per row, with aligned columns; the columns whose indexes are in `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{'>' if at in right else '<'}{widths[at]}}" for at, cell in enumerate(row)).rstrip() for row in rows]
