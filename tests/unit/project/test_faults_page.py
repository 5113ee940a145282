"""docs/explanation/faults.md is checked against the tests: named tests exist and run where it says; each mutant is listed."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.faults.code_mutants import CAUGHT, MUTANTS

pytestmark = pytest.mark.unit

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs/explanation/faults.md"
FAULTS = (*range(1, 36), 43)
# Modules without a fault of the matrix: the secured listener, and the mutants.
NOT_OF_THE_MATRIX = {"test_secure.py", "test_mutants.py"}


def rows(header: str) -> list[list[str]]:
    """The cells of the table that starts with this header."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines[lines.index(header) + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def matrix() -> list[list[str]]:
    return rows("| # | fault | expected result | in `make test` | in `make faults` | note |")


def named(cell: str) -> list[tuple[str, str]]:
    return re.findall(r"`([\w/]+\.py)::(\w+)`", cell)


@cache
def collected(path: str) -> dict[str, bool]:
    """The tests of a module as pytest collects them, and whether all of each are slow."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    marked = [ast.unparse(n.value) for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"]
    module = any("pytest.mark.slow" in text for text in marked)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    slow = {"pytest.mark.slow", "slow"}
    return {f.name: module or not slow.isdisjoint(map(ast.unparse, f.decorator_list)) for f in functions}


def test_every_fault_is_in_the_matrix_once() -> None:
    assert [int(row[0]) for row in matrix()] == list(FAULTS)


@pytest.mark.parametrize("number", FAULTS)
def test_a_fault_has_tests_that_exist_and_run_where_the_page_says_or_is_not_covered(number: int) -> None:
    _, fault, expected, quick, slow, note = matrix()[FAULTS.index(number)]
    assert fault and expected
    for cell, all_slow in ((quick, False), (slow, True)):
        assert named(cell) or cell == "–"
        for path, name in named(cell):
            assert name in collected(path), f"{path} has no test {name}"
            assert collected(path)[name] == all_slow, f"{path}::{name} is {'not ' if all_slow else ''}in make test"
    assert named(quick + slow) or note.startswith("Not covered: ")


@pytest.mark.parametrize("number", [number for number in FAULTS if number not in (30, 43)])
def test_each_fault_has_a_test_in_a_module_that_uses_the_oracle(number: int) -> None:
    paths = {path for path, _ in named("".join(matrix()[FAULTS.index(number)][3:5]))}
    assert any("judge(" in (TESTS / path).read_text(encoding="utf-8") for path in paths if path.startswith("faults/"))


def test_every_module_of_fault_tests_is_in_the_matrix() -> None:
    paths = {path for row in matrix() for path, _ in named(row[3] + row[4])}
    modules = {path.name for path in (TESTS / "faults").glob("test_*.py")}
    assert {f"faults/{name}" for name in modules - NOT_OF_THE_MATRIX} <= paths


def test_every_mutant_is_listed_with_the_check_that_finds_it() -> None:
    by_oracle = [(name, promise, finding) for name, promise, _, finding in rows("| bug | breaks | scenario | the oracle says |")]
    assert by_oracle == [(name, bug.promise, f"… {bug.found} …") for name, bug in MUTANTS.items()]
    by_test = rows("| bug | breaks | caught by |")
    assert by_test == [[name, bug.promise, f"`{bug.test}`"] for name, bug in CAUGHT.items()]


@pytest.mark.parametrize("name", CAUGHT)
def test_the_test_that_catches_a_mutant_exists(name: str) -> None:
    path, test = CAUGHT[name].test.split("::")
    assert test in collected(path)


def test_there_are_at_least_44_mutants_and_the_oracle_finds_half_of_them() -> None:
    assert len(MUTANTS) + len(CAUGHT) >= 44 and len(MUTANTS) >= 22 and not MUTANTS.keys() & CAUGHT.keys()
