"""The package's layers: which subpackage may import which, in one list. CONTRIBUTING.md shows the same order."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import ingest
from ingest.cli import VERBS

pytestmark = pytest.mark.unit

PACKAGE = Path(ingest.__file__).parent
# From the lowest to the highest: a subpackage imports only those before it.
LAYERS = (
    *("runtime", "contract", "kafka", "decode", "delta", "delivery", "ledger", "verify", "recovery", "batch", "run", "repair"),
    *("quality", "scaffold", "sql", "observe", "lab", "cli"),
)
# Products of their own, with extras of their own (pyproject.toml): only these commands import them. The engine works without.
ALONE = {"delivery": {*VERBS["Beyond Kafka"].values()}, "lab": {*VERBS["Lab"].values()}}


def imports(file: Path) -> Iterator[str]:
    """The modules of the package that a file imports, including imports inside functions and imports for types only."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{name.name}" for name in node.names if node.module.split(".")[0] == "ingest")
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "ingest")


def files(layer: str) -> list[Path]:
    return sorted((PACKAGE / layer.replace(".", "/")).rglob("*.py"))


def test_the_package_contains_nothing_but_its_layers() -> None:
    assert {path.name for path in PACKAGE.glob("*.*")} == {"__init__.py", "__main__.py", "py.typed"}
    assert {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"} == {*LAYERS}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_layers_below_it(layer: str) -> None:
    below = {*LAYERS[: LAYERS.index(layer) + 1], "__version__"}
    for file in files(layer):
        assert {name.split(".")[1] for name in imports(file)} <= below, file


@pytest.mark.parametrize("room", ALONE)
def test_a_room_with_an_extra_of_its_own_is_imported_by_its_verbs_alone(room: str) -> None:
    found = {
        (layer, file.stem)
        for layer in LAYERS
        if layer not in (room, "lab")  # the lab has demos and faults of delivery
        for file in files(layer)
        if room in {name.split(".")[1] for name in imports(file)}
    }
    assert found == {("cli", verb) for verb in ALONE[room]}


def test_the_page_for_contributors_shows_the_same_order() -> None:
    page = " ".join((PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    assert f"From lowest to highest: {', '.join(LAYERS)}." in page


def test_every_subpackage_has_a_docstring() -> None:
    for folder in {file.parent for file in PACKAGE.rglob("*.py")}:
        assert (ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or "").endswith("."), folder


def test_no_two_modules_have_the_same_name() -> None:
    commands = {file.stem for file in files("cli")}
    names = Counter(file.stem for file in PACKAGE.rglob("*.py") if file.parent.name != "cli")
    assert {name for name, number in names.items() if number > 1} <= {"__init__"}
    assert commands & set(names) <= {"__init__"}


def test_the_oracle_imports_nothing_of_the_code_that_it_judges() -> None:
    modules = files("lab/oracle")
    assert len(modules) > 1
    for file in modules:
        assert all(name.startswith("ingest.lab.oracle.") for name in set(imports(file)) - {"ingest.decode.row_hash.row_hashes"}), file


def test_only_the_two_writers_write_delta() -> None:
    """A write outside of them would have no fence and no batch commit (I8): Spark's statements, and the direct writer's put."""
    writes = [".saveAsTable(", ".execute()", 'mode("append")', "write_deltalake(", "DeltaTable.create"]
    writes += [".executeCompaction(", ".vacuum(hours", ".merge(", ".create(table.path_of("]
    scratch = {"delta/delta_sql.py"}  # rows of a query, as a table in a temporary folder
    caches = [".create_checkpoint("]  # of the log: no commit
    product = [file for layer in LAYERS if layer != "lab" for file in files(layer)]

    def having(words: list[str]) -> set[str]:
        return {file.relative_to(PACKAGE).as_posix() for file in product if any(word in file.read_text(encoding="utf-8") for word in words)}

    spark = {"delta/table_writer.py", "delta/writer.py"}
    assert having(writes) - scratch == {"delta/put.py", *spark} and having(caches) == {"delta/log_checkpoint.py"}
