"""Tests of the tests: the oracle or a test finds each mutant (tests/faults/code_mutants.py) in a copy of the engine.

The engine's own checks may stop such a run. Whether they do is not tested here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.faults.code_mutants import (
    BYPASSED,
    CAUGHT,
    MUTANTS,
    copy_with,
    killed_after_target,
    plant,
    read_again_kindly,
    read_again_strictly,
)
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import REPOSITORY
from tests.faults.pipeline import Pipeline, ranges

pytestmark = pytest.mark.timeout(900)

UNIT = [name for name, bug in CAUGHT.items() if bug.test.startswith("unit/")]
INTEGRATED = [name for name, bug in CAUGHT.items() if bug.test.startswith("integration/")]
OF_A_FAULT = [name for name in CAUGHT if name not in (*UNIT, *INTEGRATED)]
# `make test` inserts one mutant for each invariant, of those that a unit test finds; `make faults` inserts all.
QUICK = list({CAUGHT[name].promise: name for name in UNIT}.values())
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in CAUGHT if name not in QUICK]


@pytest.fixture(autouse=True)
def by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of these mutants are in the code that lets Delta in Spark write. Those of the direct writer are found by unit tests."""
    monkeypatch.setenv("INGEST_WRITER", "spark")


def of_batches_done(lake: Pipeline, findings: Sequence[str]) -> list[str]:
    """The findings without those about unread records: positions after the end offsets of the target's batches."""
    ends: dict[int, int] = {}
    for commit in lake.batches():
        ends |= {partition: max(end, ends.get(partition, 0)) for partition, (_, end) in ranges(commit).items()}
    places = [re.search(r"partition (\d+) offset (\d+)", finding) for finding in findings]
    return [f for f, at in zip(findings, places, strict=True) if at is None or int(at[2]) < ends.get(int(at[1]), 0)]


def copy_of(folder: Path) -> Path:
    """Copy the part of the repository that the tests in CAUGHT need."""
    for name in ("ingest", "tests", "tables"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return folder


def ran(folder: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy, inside the copy."""
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder}/pytest"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([*command, *tests], cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", sorted(MUTANTS.keys() | CAUGHT.keys() | BYPASSED.keys()))
def test_each_mutant_still_fits_the_code(name: str, tmp_path: Path) -> None:
    copy_with((BYPASSED | MUTANTS | CAUGHT)[name], tmp_path)


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_the_named_test_fails_on_its_mutant(name: str, tmp_path: Path) -> None:
    bug = CAUGHT[name]
    folder = copy_of(tmp_path)
    plant(bug, folder)
    ended = ran(folder, f"tests/{bug.test}")
    assert ended.returncode == 1 and f"FAILED tests/{bug.test}" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("names", [UNIT, INTEGRATED, OF_A_FAULT], ids=["unit", "integration", "faults"])
def test_the_same_tests_pass_on_a_copy_without_a_mutant(names: Sequence[str], tmp_path: Path) -> None:
    """Otherwise a test could fail because the copy lacks a file, and not because of the mutant."""
    ended = ran(copy_of(tmp_path), *(f"tests/{CAUGHT[name].test}" for name in names))
    assert ended.returncode == 0 and "passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_oracle_finds_each_mutant(name: str, pipeline: PipelineFactory, tmp_path: Path) -> None:
    bug = MUTANTS[name]
    lake = pipeline(batch=1500, code=copy_with(bug, tmp_path / "mutant"))
    lake.produce(3200, **{"poison": 40, **bug.mix})
    bug.scenario(lake)
    findings = of_batches_done(lake, lake.judge().findings)
    assert any(bug.found in finding for finding in findings), "\n".join([*findings, *(driver.said for driver in lake.drivers)])


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [killed_after_target, read_again_strictly, read_again_kindly], ids=lambda scenario: scenario.__name__)
def test_the_oracle_finds_nothing_without_a_mutant(scenario: Callable[[Pipeline], None], pipeline: PipelineFactory) -> None:
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    scenario(lake)
    lake.judge(valid_in_quarantine=True).assert_clean()
