"""Text as it is shown to people: ids and values are what a producer sent."""

from __future__ import annotations

import itertools


def printable(text: str, characters_max: int | None = None) -> str:
    """On one line, and without what would steer a terminal; what is longer ends with an ellipsis."""
    end = None if characters_max is None else characters_max + 1
    shown = "".join(letter if letter.isprintable() else "·" for letter in itertools.islice(text, end))
    return shown if end is None or len(shown) < end else f"{shown[: end - 2]}…"
