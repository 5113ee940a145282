"""Everything that a command prints goes through ingest/runtime/output.py, so that no text of others controls a terminal."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ingest

pytestmark = pytest.mark.unit

PACKAGE = Path(ingest.__file__).parent
# Processes whose output another process reads, not a person.
PROCESSES = {
    *("lab/delivery_modes/crash_point.py", "lab/delivery_modes/mode_worker.py", "lab/delivery_modes/reader.py"),
    *("lab/chaos/event_writer.py", "lab/demo/by_hand.py"),
}
# What may be done with a stream without printing on it.
HARMLESS = {"isatty", "flush"}


def files() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        if (name := file.relative_to(PACKAGE).as_posix()) not in {"runtime/output.py", *PROCESSES}:
            yield name, ast.parse(file.read_text(encoding="utf-8"))


def is_stream(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.strip("_") in ("stdout", "stderr") and ast.unparse(node.value) == "sys"


def ways(tree: ast.AST) -> Iterator[str]:
    """The calls that print, and every use of stdout or stderr that might."""
    harmless: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in HARMLESS:
            harmless.add(node.value)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("unread", "poll.register"):
                harmless |= {*node.args}
            elif called in ("print", "Console", "typer.echo", "typer.secho", "traceback.print_exc"):
                yield called
            elif called == "Live" and "console" not in {each.arg for each in node.keywords}:
                yield "Live on a console of its own"
    yield from (ast.unparse(node) for node in ast.walk(tree) if is_stream(node) and node not in harmless)


def test_nothing_is_printed_any_other_way() -> None:
    found = {(name, way) for name, tree in files() for way in ways(tree)}
    # `main` replaces a stream that the caller has closed, and guards stderr.
    assert found == {("cli/app.py", "sys.stdout"), ("cli/app.py", "sys.stderr")}


@pytest.mark.parametrize(
    "line",
    [
        "print(x)",
        "sys.stdout.write(x)",
        "csv.writer(sys.stderr)",
        "typer.echo(x)",
        "Console().print(x)",
        "Live()",
        "sys.__stdout__.write(x)",
    ],
)
def test_another_way_is_noticed(line: str) -> None:
    assert [*ways(ast.parse(line))]
