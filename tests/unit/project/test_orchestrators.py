"""The files for Airflow and Dagster, without either of them: their commands exist, and refusals are final."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

from ingest.run.table_lock import WAIT_VARIABLE
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


def assigned(name: str, variable: str, environ: dict[str, str]) -> object:
    """The value of a module's variable where `os.environ` is `environ`."""
    (node,) = (each for each in tree(name).body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == variable)
    return eval(ast.unparse(node.value), {"os": SimpleNamespace(environ=environ)})


@pytest.mark.parametrize("name", FILES)
def test_a_refused_start_is_final_and_a_run_that_stopped_itself_may_be_retried(name: str) -> None:
    assert assigned(name, "FINAL", {}) == {1, 2, 3, 70}


@pytest.mark.parametrize("name", FILES)
def test_a_run_outwaits_the_nightly_maintenance_unless_the_environment_says_otherwise(name: str) -> None:
    """The refusal of a held lock is final, and a maintenance may take longer than the minute that a start waits by default."""
    assert assigned(name, "ENVIRONMENT", {"HOME": "/home/ada"}) == {"HOME": "/home/ada", WAIT_VARIABLE: "3600"}
    assert assigned(name, "ENVIRONMENT", {WAIT_VARIABLE: "5"}) == {WAIT_VARIABLE: "5"}
