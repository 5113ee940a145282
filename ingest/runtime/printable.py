"""Text for display: ids and values that a producer sent, and aligned columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

# How an unprintable character is shown if not as `·`: as in most languages.
ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str, characters_max: int | None = None) -> str:
    """The text on one line. A line break is shown as `\\n`, a terminal control code as `·`; longer text ends with an ellipsis."""
    end = None if characters_max is None else characters_max + 1
    shown = _shown(text[:end], ESCAPES)
    return shown if characters_max is None or len(shown) <= characters_max else f"{shown[: characters_max - 1]}…"


def marked(text: str) -> str:
    """The text with `·` for each unprintable character but line breaks and tabs."""
    return _shown(text, {"\n": "\n", "\t": "\t"})


def _shown(text: str, escapes: Mapping[str, str]) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else escapes.get(letter, "·") for letter in text)


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """One printable line per row, with aligned columns; the columns whose indexes are in `right` are right-aligned."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  ".join(f"{cell:{'>' if at in right else '<'}{widths[at]}}" for at, cell in enumerate(row)).rstrip() for row in shown]
