"""`ingest chaos` as a user runs it: it finds nothing in a correct engine, it finds a mutant, and it cleans up when interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ingest.lab.chaos.schedule import FAULTS
from tests.faults.code_mutants import MUTANTS, copy_with
from tests.faults.driver import REPOSITORY, left, until
from tests.faults.pipeline import CONTRACT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one table. Chaos overrides its quarantine limit and batch size."""
    folder = tmp_path / "project" / "tables"
    folder.mkdir(parents=True)
    (folder / "orders.yml").write_text(CONTRACT.format(table="orders", topic="orders", batch=100, max_share=0.01), encoding="utf-8")
    return folder.parent


@contextmanager
def chaos(project: Path, scratch: Path, *more: str, code: Path = REPOSITORY) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "ingest", "chaos", "--project", str(project), "--folder", str(scratch), "--rate", "1500", *more]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(code)},
        cwd=code,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate()
    assert out, err
    report = json.loads(out)
    assert isinstance(report, dict)
    return {**report, "err": err, "exit": process.returncode}


def test_a_short_chaos_run_with_all_faults_finds_nothing_and_leaves_nothing_behind(project: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    with chaos(project, scratch, "--minutes", "1", "--seed", "5", "--json") as running:
        report = ended(running)
    assert (report["exit"], report["findings"], report["schema"]) == (0, [], "oncelake/chaos/1"), report["err"]
    assert report["ok"] is True
    assert set(report["faults"]) | report["left_out"].keys() == set(FAULTS)
    assert report["counts"]["sigkills"] >= 1
    assert report["counts"]["batches"] >= 2
    (table,) = report["tables"]
    assert table["table"] == "shop.orders" and table["records"] > 5000
    assert report["folder"] is None
    assert list(scratch.iterdir()) == []
    assert left(scratch) == []


def test_chaos_finds_a_bug_in_the_engine_and_keeps_the_folder_and_the_command_to_repeat_it(project: Path, tmp_path: Path) -> None:
    code, scratch = copy_with(MUTANTS["no deduplication inside a batch"], tmp_path / "mutant"), tmp_path / "scratch"
    options = ("--minutes", "0.2", "--seed", "3", "--faults", "kill-producer")
    with chaos(project, scratch, *options, code=code) as running:
        out, err = running.communicate()
        assert running.returncode == 1, out + err
    assert re.search(r"id \('.+',\) is in the target \d+ times \(a\)", out), out
    assert "again: ingest chaos --minutes 0.2 --seed 3 --faults kill-producer --rate 1500" in out
    (kept,) = scratch.iterdir()
    assert f"kept:  {kept}" in out
    assert list(kept.glob("round-1/lake/shop/orders/target/_delta_log/*.json"))
    assert left(scratch) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_an_interrupted_chaos_run_leaves_no_process_and_no_file(project: Path, tmp_path: Path, number: signal.Signals) -> None:
    scratch = tmp_path / "scratch"
    with chaos(project, scratch, "--minutes", "2", "--faults", "second-driver,disk-full") as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "| round 1" in line or "| fault" in line:
                break
        until(lambda: any("ingest.lab.chaos.event_writer" in words for words in left(scratch)), "a producer is running")
        running.send_signal(number)
        running.communicate()
        assert running.returncode == (130 if number == signal.SIGTERM else -9)
    until(lambda: not left(scratch), lambda: f"all processes have ended; left: {left(scratch)}")
    until(lambda: not list(scratch.iterdir()), lambda: f"the folder is empty; left: {list(scratch.iterdir())}")
