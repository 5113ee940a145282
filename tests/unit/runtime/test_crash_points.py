"""Crash points act only if the lake is marked as scratch and the environment names exactly this point and batch."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ingest.runtime import crash_points
from ingest.runtime.errors import InvalidInput
from tests.polling import until

pytestmark = pytest.mark.unit

JVM = 2**22 + 1  # no such process


@pytest.fixture(autouse=True)
def disarmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_points, "_armed", None)
    monkeypatch.setattr(crash_points, "_victims", ())
    monkeypatch.delenv("INGEST_FAULT", raising=False)


def lake(folder: Path, *, scratch: bool) -> Path:
    folder.mkdir()
    if scratch:
        (folder / crash_points.SCRATCH).touch()
    return folder


def arm(folder: Path) -> None:
    crash_points.arm(folder, JVM)
    crash_points.watch(folder / "checkpoint", folder / "target")


def injects(point: str, batch: int) -> bool:
    try:
        crash_points.at(point, batch)
    except crash_points.InjectedFault:
        return True
    return False


def test_a_fault_is_injected_only_at_its_point_in_its_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_FAULT", "after_target:raise@3")
    arm(lake(tmp_path / "lake", scratch=True))
    assert [(point, batch) for point in crash_points.INSIDE for batch in range(6) if injects(point, batch)] == [("after_target", 3)]


@pytest.mark.parametrize("text", ["after_target:raise@3", "during_target:kill@3", "no fault at all"])
def test_no_fault_is_injected_into_a_lake_that_is_not_scratch_and_no_watcher_starts(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGEST_FAULT", text)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a watcher was started"))
    arm(lake(tmp_path / "lake", scratch=False))
    assert not any(injects(point, 3) for point in crash_points.INSIDE)


def test_no_fault_is_injected_into_a_scratch_lake_unless_the_environment_asks_for_it(tmp_path: Path) -> None:
    arm(lake(tmp_path / "lake", scratch=True))
    assert not any(injects(point, batch) for point in crash_points.INSIDE for batch in range(6))


def test_the_page_of_faults_names_every_crash_point() -> None:
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "faults.md").read_text(encoding="utf-8")
    section = page.split("## Crash points")[1].split("## ")[0]
    assert sorted(re.findall(r"`(staged|[a-z]+(?:_[a-z]+)+)`", section)) == sorted(crash_points.INSIDE + crash_points.WATCHED)


def test_a_fault_armed_for_a_scratch_lake_is_not_injected_into_another_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_FAULT", "after_target:raise@3")
    arm(lake(tmp_path / "scratch", scratch=True))
    arm(lake(tmp_path / "lake", scratch=False))
    assert not injects("after_target", 3)


@pytest.mark.parametrize(
    "text", ["after_target", "after_target:kill", "after_target:kill@x", "nowhere:kill@1", "after_target:jump@1", "during_target:raise@1"]
)
def test_an_invalid_fault_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="FAULT_INVALID"):
        crash_points.parse(text)


SLEEPER = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"


@pytest.mark.parametrize("leads", [True, False])
def test_a_kill_hits_the_whole_process_group_if_python_leads_one_else_only_the_processes(leads: bool) -> None:
    """A JVM in its own group is killed in both cases. Children (Spark's Python workers) are killed with their group."""
    with (
        subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True, start_new_session=leads) as python,
        subprocess.Popen(["sleep", "60"], start_new_session=True) as jvm,
    ):
        assert python.stdout is not None
        child = psutil.Process(int(python.stdout.readline()))
        try:
            crash_points._inject((jvm.pid, python.pid), "kill")
            assert (jvm.wait(30), python.wait(30)) == (-9, -9)
            deadline = time.monotonic() + 30
            while leads and child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert leads or child.is_running()
        finally:
            with suppress(psutil.NoSuchProcess):
                child.kill()


def test_a_thread_that_hangs_does_nothing_more_before_the_process_has_stopped(tmp_path: Path) -> None:
    """Thirty times. A batch runs in a thread, and the kernel lets the main thread take the stop, as soon as that one gets a processor."""
    done = tmp_path / "done"
    code = (
        "import os, sys, threading, time; from ingest.runtime import crash_points\n"
        "crash_points.STOPS_WITHIN_S = 0.05\n"
        "def work():\n"
        "    for _ in range(30):\n"
        "        crash_points._inject((os.getpid(),), 'hang')\n"
        "        os.write(file, b'.')\n"
        "file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "one = threading.Thread(target=work); one.start()\n"
        "while one.is_alive(): time.sleep(0.01)\n"
    )
    with psutil.Popen([sys.executable, "-c", code, str(done)]) as process:
        for number in range(30):
            until(lambda: process.status() == psutil.STATUS_STOPPED, "the process has stopped", 30)
            assert done.stat().st_size == number
            process.resume()
            until(lambda number=number: done.stat().st_size > number, "the thread goes on", 30)  # type: ignore[misc]
        assert process.wait(30) == 0
