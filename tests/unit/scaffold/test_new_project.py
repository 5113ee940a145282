"""The files of a new project: complete, accepted by the loaders, equal to this repository's own bundle, and never written over others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ingest.contract.definition import load_contracts
from ingest.quality.suite import load_suites
from ingest.runtime.errors import InvalidInput
from ingest.scaffold import new_project
from ingest.scaffold.draft import EXAMPLE, Draft, identifier, scalar
from tests import bundle
from tests.command import exit_code
from tests.unit.project.test_pages import command_of

pytestmark = pytest.mark.unit

make_is_installed = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def init(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object]]:
    code = exit_code("init", *words, "--json")
    return code, json.loads(capsys.readouterr().out)


def test_a_new_folder_is_a_project_that_the_loaders_accept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "My Shop"
    code, document = init(capsys, str(folder))
    assert (code, document["ok"], document["schema"]) == (0, True, "oncelake/init/1")
    (contract,) = load_contracts(folder)
    assert contract.name == "my_shop.events"
    assert load_suites(folder, [contract])
    assert {str(file) for file in folder.rglob("*") if file.is_file()} == set(map(str, document["files"]))  # type: ignore[call-overload]
    for file in folder.rglob("*.yml"):
        assert "[[" not in file.read_text(encoding="utf-8")
        yaml.safe_load(file.read_text(encoding="utf-8"))


def test_a_folder_that_contains_anything_is_refused_and_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    for target in (tmp_path, tmp_path / "mine"):
        code, document = init(capsys, str(target))
        assert code == 2
        assert document["error"]["code"] == "FOLDER_NOT_EMPTY"  # type: ignore[index]
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_this_repositorys_bundle_is_what_the_templates_say() -> None:
    """So a new project gets a bundle that tests/unit/project/test_bundle.py has checked."""
    values = {"name": "oncelake", "build": bundle.load()["artifacts"]["wheel"]["build"]}
    for path, template in new_project.FILES.items():
        if path == "databricks.yml" or path.startswith("resources/"):
            assert new_project.render(template, **values) == (bundle.ROOT / path).read_text(encoding="utf-8"), path
    assert {path for path in new_project.FILES if path.startswith("resources/")} == {
        f"resources/{file.name}" for file in (bundle.ROOT / "resources").glob("*.*")
    }


def test_every_command_of_the_makefile_and_the_workflow_exists(tmp_path: Path) -> None:
    new_project.write(tmp_path / "new", "shop", [EXAMPLE], "broker1:9092")
    workflow = yaml.safe_load((tmp_path / "new/.github/workflows/contracts.yml").read_text(encoding="utf-8"))
    steps = [step["run"] for step in workflow["jobs"]["compare"]["steps"] if "run" in step]
    make = (tmp_path / "new/Makefile").read_text(encoding="utf-8")
    lines = [step for step in steps if step.startswith("ingest ")]
    lines += [line.replace("\t@$(INGEST)", "ingest") for line in make.splitlines() if line.startswith("\t@$(INGEST)")]
    assert len(lines) == 5
    for line in lines:
        command, rest = command_of(line.split()[1:])
        command.make_context("ingest", rest)
    assert new_project.BUILD == "make wheel" and "\nwheel:" in make


@make_is_installed
def test_make_alone_prints_the_verbs(tmp_path: Path) -> None:
    new_project.write(tmp_path / "new", "shop", [EXAMPLE], "broker1:9092")
    printed = subprocess.run(["make"], cwd=tmp_path / "new", capture_output=True, text=True, check=True).stdout
    assert "make verify" in printed


@make_is_installed
@pytest.mark.parametrize("verb", ["setup", "wheel"])
def test_make_asks_for_the_source_of_a_package_that_no_index_has(verb: str, tmp_path: Path) -> None:
    new_project.write(tmp_path / "new", "shop", [EXAMPLE], "broker1:9092")
    command = ["make", "--dry-run", verb]
    environment = {name: value for name, value in os.environ.items() if name != "ONCELAKE"}
    asked = subprocess.run(command, cwd=tmp_path / "new", capture_output=True, text=True, check=False, env=environment)
    assert (
        asked.returncode == 2
        and f"Oncelake is not on PyPI. Name its source, a path, a wheel or a URL: make {verb} ONCELAKE=" in asked.stderr
    )
    named = subprocess.run(
        command, cwd=tmp_path / "new", capture_output=True, text=True, check=True, env={**environment, "ONCELAKE": "../it"}
    )
    assert '"../it"' in named.stdout


def test_the_workflow_asks_for_the_source_too(tmp_path: Path) -> None:
    new_project.write(tmp_path / "new", "shop", [EXAMPLE], "broker1:9092")
    workflow = yaml.safe_load((tmp_path / "new/.github/workflows/contracts.yml").read_text(encoding="utf-8"))
    (step,) = (step for step in workflow["jobs"]["compare"]["steps"] if "ONCELAKE" in step.get("env", {}))
    script = step["run"].replace("python -m pip", "echo")
    for source, code in (("", 1), ("git+https://git.example/oncelake", 0)):
        done = subprocess.run(["bash", "-ec", script], env={"ONCELAKE": source}, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == bool(code)
        assert source in done.stdout if source else "repository variable ONCELAKE" in done.stderr


def test_a_clone_without_files_is_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")
    assert init(capsys, ".")[0] == 0
    assert load_contracts(tmp_path / "shop")[0].name == "shop.events"


def test_a_contract_that_the_loader_refuses_leaves_no_folder_behind(tmp_path: Path) -> None:
    twice = Draft("events", "t", (*EXAMPLE.columns, EXAMPLE.columns[0]), "key")
    with pytest.raises(InvalidInput, match="CONTRACT_INVALID"):
        new_project.write(tmp_path / "new", "shop", [twice], "broker1:9092")
    assert not (tmp_path / "new").exists()


def test_the_next_step_goes_to_the_broker_of_the_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The Makefile knows the broker that init was given; a bare `ingest run` would ask the default one."""
    folder = tmp_path / "my shop"
    assert exit_code("init", str(folder), "--bootstrap-servers", "broker1:9092") == 0
    (verbs,) = re.findall(rf"cd '{folder}' && make ([a-z ]+)\n", capsys.readouterr().out)
    make = (folder / "Makefile").read_text(encoding="utf-8")
    assert "INGEST_BOOTSTRAP_SERVERS ?= broker1:9092" in make
    assert all(f"\n{verb}:" in make for verb in verbs.split())


@pytest.mark.parametrize("draft", [Draft("events", "t", (), "position", format="raw"), Draft("events", "t", EXAMPLE.columns, "key")])
def test_the_first_suite_fits_every_kind_of_event_id(draft: Draft, tmp_path: Path) -> None:
    new_project.write(tmp_path / "new", "shop", [draft], "broker1:9092")
    assert load_suites(tmp_path / "new", load_contracts(tmp_path / "new"))


@pytest.mark.parametrize(
    ("text", "name"), [("Shop-2", "shop_2"), ("2shop", "t_2shop"), ("docs", "docs_events"), ("OrderLines", "order_lines"), ("é", "events")]
)
def test_any_text_becomes_a_name_that_a_contract_allows(text: str, name: str) -> None:
    assert identifier(text) == name


@pytest.mark.parametrize("text", ["no", "a: b", "x # y", "", "- x", "12", 'say "x"', "trailing ", "plain text"])
def test_a_scalar_is_the_same_text_when_yaml_reads_it(text: str) -> None:
    assert yaml.safe_load(f"{{key: {scalar(text)}}}") == {"key": text}
