"""docs/tutorial/delivery.md runs from top to bottom in one session and prints the output that it shows."""

from __future__ import annotations

import codeop
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from ingest.lab.broker.embedded_broker import Broker

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "delivery.md"
_PIECE = re.compile(r"```python\n(?P<code>.*?)```\n(?:```text\n(?P<printed>.*?)```)?", re.DOTALL)


def test_every_example_on_the_page_runs_and_prints_the_output_shown(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.chdir(PAGE.parents[2])
    text = PAGE.read_text(encoding="utf-8")
    pieces = list(_PIECE.finditer(text))
    assert len(pieces) >= 12 and sum(piece["printed"] is not None for piece in pieces) == text.count("```text\n")
    session: dict[str, Any] = {"__name__": "guide"}
    for piece in pieces:
        line = text.count("\n", 0, piece.start()) + 2
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (line - 1) + piece["code"], str(PAGE), "exec"), session)
        assert out.getvalue() == (piece["printed"] or ""), f"{PAGE.name}, line {line}"


@pytest.mark.unit
def test_every_example_can_be_typed_into_the_python_prompt_line_by_line() -> None:
    """In the prompt an empty line ends a block. Without it, the block swallows the following lines."""
    text = PAGE.read_text(encoding="utf-8")
    for piece in _PIECE.finditer(text):
        typed: list[str] = []
        for number, line in enumerate([*piece["code"].splitlines(), ""], text.count("\n", 0, piece.start()) + 2):
            typed.append(line)
            try:
                whole = codeop.compile_command("\n".join(typed), symbol="single")
            except SyntaxError as error:
                raise AssertionError(f"{PAGE.name}, line {number}: {error}") from error
            if whole is not None:
                typed = []
        assert not "".join(typed), f"{PAGE.name}, line {number}: {typed[0]!r} has no end"
