"""The files for Airflow and Dagster, without either of them: their commands exist, and refusals are final."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.project.test_pages import command_of

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]
FILES = ("airflow_dag.py", "dagster_definitions.py")


def tree(name: str) -> ast.Module:
    return ast.parse((PROJECT / "docs/how-to" / name).read_text(encoding="utf-8"), name)


def commands(name: str) -> set[tuple[str, ...]]:
    """The arguments of every call `ingest("run", …)` and `ingest.override(…)("run", …)`."""
    found = set()
    for node in ast.walk(tree(name)):
        if (isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("ingest(", "ingest.override("))) or _is_plain(node):
            words = [word.value for word in getattr(node, "args", ()) if isinstance(word, ast.Constant)]
            found.add(tuple(map(str, words)))
    return found - {()}


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ingest"


@pytest.mark.parametrize("name", FILES)
def test_every_command_exists_with_its_options(name: str) -> None:
    assert {words[0] for words in commands(name)} >= {"run", "check", "verify"}
    for words in commands(name):
        command, rest = command_of(list(words))
        command.make_context("ingest", rest)
    assert ("run", "--once") in commands(name), "a scheduled run must end"


@pytest.mark.parametrize("name", FILES)
def test_a_refused_start_is_final_and_a_run_that_stopped_itself_may_be_retried(name: str) -> None:
    (final,) = (
        ast.literal_eval(node.value) for node in tree(name).body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FINAL"
    )
    assert final == {1, 2, 3, 70}
