"""Runs the Python pieces of a page: ```python, and behind it the output that it prints as ```text."""

from __future__ import annotations

import codeop
import contextlib
import io
import re
from pathlib import Path
from typing import Any

_PIECE = re.compile(r"```python\n(?P<code>.*?)```\n(?:```text\n(?P<printed>.*?)```)?", re.DOTALL)


def run_guide(page: Path) -> int:
    """Run all pieces in one session and compare what each prints with the page. Returns the number of pieces."""
    text = page.read_text(encoding="utf-8")
    pieces = list(_PIECE.finditer(text))
    assert sum(piece["printed"] is not None for piece in pieces) == text.count("```text\n")
    session: dict[str, Any] = {"__name__": "guide"}
    for piece in pieces:
        line = text.count("\n", 0, piece.start()) + 2
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (line - 1) + piece["code"], str(page), "exec"), session)
        assert out.getvalue() == (piece["printed"] or ""), f"{page.name}, line {line}"
    return len(pieces)


def typed_line_by_line(page: Path) -> None:
    """Assert that every piece can be typed into Python's prompt, where an empty line ends a block. Without it, the block goes on."""
    text = page.read_text(encoding="utf-8")
    for piece in _PIECE.finditer(text):
        typed: list[str] = []
        for number, line in enumerate([*piece["code"].splitlines(), ""], text.count("\n", 0, piece.start()) + 2):
            typed.append(line)
            try:
                whole = codeop.compile_command("\n".join(typed), symbol="single")
            except SyntaxError as error:
                raise AssertionError(f"{page.name}, line {number}: {error}") from error
            if whole is not None:
                typed = []
        assert not "".join(typed), f"{page.name}, line {number}: {typed[0]!r} has no end"
