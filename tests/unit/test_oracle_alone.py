"""The oracle shares no code with what it judges: it imports nothing of `ingest` but itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ingest.oracle

MODULES = sorted(Path(ingest.oracle.__file__).parent.rglob("*.py"))


def imported(tree: ast.AST) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names += [f"{base}.{alias.name}" for alias in node.names]
    return names


def test_it_has_modules() -> None:
    assert {"judge.py", "sources.py", "tables.py"} <= {path.name for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_of_the_oracle_imports_no_other_module_of_the_package(path: Path) -> None:
    ours = [name for name in imported(ast.parse(path.read_text(encoding="utf-8"))) if name.startswith((".", "ingest", "tests"))]
    assert [name for name in ours if not name.startswith("ingest.oracle")] == []
