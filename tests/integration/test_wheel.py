"""The wheel that the bundle deploys: built, installed into a new environment, and called as Databricks calls it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import ingest
from tests import bundle
from tests.requirements import required
from tests.unit.verify.proof_lake import CONTRACT, Lake

pytestmark = pytest.mark.integration

# Like a python_wheel_task: calls the package's entry point of this name, with the parameters as arguments.
CALL = """
import sys
from importlib.metadata import distribution
package, entry_point, *sys.argv[1:] = sys.argv[1:]
(found,) = distribution(package).entry_points.select(name=entry_point)
found.load()()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built offline from a copy of its sources, so that no build files are left in the checkout."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    shutil.copytree(bundle.ROOT / "ingest", source / "ingest", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "LICENSE"):
        shutil.copy(bundle.ROOT / file, source / file)
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), ".", cwd=source)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with the package from the wheel and the dependencies of the current environment."""
    interpreter, packages = _installed(wheel, tmp_path_factory.mktemp("clean") / "venv")
    # A folder from a .pth file comes last on sys.path, and its own .pth files are ignored. So an editable install there is invisible.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return interpreter


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and its core dependencies alone."""
    interpreter, packages = _installed(wheel, tmp_path_factory.mktemp("core") / "venv")
    for name in required():
        for file in distribution(name).files or ():
            if (top := file.parts[0]) not in ("..", "__pycache__") and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution(name).locate_file(top))).resolve())
    return interpreter


def _installed(wheel: Path, folder: Path) -> tuple[Path, Path]:
    """The interpreter and the site-packages of a new environment that has the wheel and nothing else."""
    venv.create(folder, with_pip=False, symlinks=True)
    interpreter = folder / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--quiet", "--python", str(interpreter), "install", "--no-deps", "--no-index", str(wheel), cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    return interpreter, packages


def test_the_wheel_contains_the_packages_data_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    there = {str(file.relative_to(bundle.ROOT)) for file in (bundle.ROOT / "ingest").rglob("*") if file.is_file()}
    there = {name for name in there if "__pycache__" not in name}
    # py.typed: without it, mypy treats ingest.delivery.kafka as Any in services that use it.
    assert {"ingest/contract/contract.schema.json", "ingest/runtime/jars.lock", "ingest/py.typed"} <= inside
    assert there <= inside, "the wheel lacks files of ingest/: see package-data in pyproject.toml"
    assert not {name for name in inside if name.startswith(("tests", "scripts", "tables"))}


def test_the_wheel_requires_spark_only_as_an_extra(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    required = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    assert f"\nVersion: {ingest.__version__}\n" in metadata
    assert not [one for one in required if re.match(r"(pyspark|delta-spark|py4j)\b", one) and "extra ==" not in one]
    assert any(one.startswith("pyspark==") and 'extra == "local"' in one for one in required)


def test_the_package_is_imported_from_the_wheel_with_our_version(python: Path) -> None:
    code = "import ingest, importlib.metadata as m; print(ingest.__file__); print(ingest.__version__, m.version('oncelake'))"
    file, versions = _run(str(python), "-c", code, cwd=python.parent).splitlines()
    assert Path(file).is_relative_to(python.parents[1])
    assert versions == f"{ingest.__version__} {ingest.__version__}"


@pytest.mark.parametrize("call", bundle.calls(), ids=lambda call: call.job)
def test_each_jobs_command_and_options_exist_in_the_wheel(call: bundle.Call, python: Path) -> None:
    help_text = _help(python, call.package, call.entry_point)
    assert _has(help_text, call.verb)
    of_verb = _help(python, call.package, call.entry_point, call.verb)
    assert len(call.options) == len(call.values), "an option has no value"
    assert [option for option in call.options if not _has(of_verb, option)] == []


def test_an_option_that_does_not_exist_would_be_found(python: Path) -> None:
    assert not _has(_help(python, "oncelake", "ingest", "run"), "--catalog")
    ended = subprocess.run(
        [python, "-c", CALL, "oncelake", "ingest", "run", "--catalog", "main"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "--catalog" in ended.stderr


def test_the_console_script_is_installed_too(python: Path) -> None:
    assert "verify" in _run(str(python.parent / "ingest"), "--help", cwd=python.parent)


def test_the_core_alone_plans_and_verifies_a_table(core: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.batch(0, 10, range(10))
    lake.verified()  # writes its ledger, too
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/orders.yml").write_text(CONTRACT.to_json(), encoding="utf-8")
    places = ("--project", str(tmp_path), "--lake", lake.places.lake, "--checkpoints", str(tmp_path / "checkpoints"))
    ingest_of = str(core.parent / "ingest")
    assert "verify" in _run(ingest_of, "--help", cwd=tmp_path)
    planned = subprocess.run([ingest_of, "plan", *places, "--json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert planned.returncode == 3 and "_ingested_at" in planned.stdout  # the fixture's tables lack columns that the contract wants
    assert "BALANCED" in _run(ingest_of, "verify", *places, cwd=tmp_path)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("run", "--once"), "local"),
        (("report",), "local"),
        (("verify", "--spark"), "local"),
        (("broker", "start"), "lab"),
        (("outbox", "status"), "delivery"),
        (("lineage", "--out", "events"), "lineage"),
        (("postgres", "start", "--data", "pg"), "lab"),
    ],
)
def test_a_verb_whose_extra_is_missing_names_it_and_the_command_that_adds_it(
    words: tuple[str, ...], extra: str, core: Path, tmp_path: Path
) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/orders.yml").write_text(CONTRACT.to_json(), encoding="utf-8")
    empty = {**os.environ, "INGEST_CACHE": str(tmp_path / "cache")}
    ended = subprocess.run([core.parent / "ingest", *words], cwd=tmp_path, env=empty, capture_output=True, text=True, check=False)
    assert ended.returncode == 4 and f"the extra `{extra}`" in ended.stderr and "Traceback" not in ended.stderr
    assert f"{core} -m pip install 'oncelake[{extra}]=={ingest.__version__}'" in ended.stderr


def test_pip_takes_the_installed_package_for_its_extra(core: Path, tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "pip", "--python", str(core), "install", "--dry-run", "--no-index", "--no-deps"]
    assert "already satisfied" in _run(*asked, f"oncelake[lab]=={ingest.__version__}", cwd=tmp_path)


def _help(python: Path, *words: str) -> str:
    return _run(str(python), "-c", CALL, *words, "--help", cwd=python.parent)


def _has(help_text: str, word: str) -> bool:
    return re.search(rf"^\s+{re.escape(word)}\b", help_text, re.MULTILINE) is not None


def _run(*command: str, cwd: Path) -> str:
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout
