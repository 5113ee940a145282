"""Chaos: its schedule, clock, workers, guard, small disk and counts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import psutil
import pytest

from ingest.lab.chaos import chaos_run, clock
from ingest.lab.chaos.guard import marked
from ingest.lab.chaos.injected_faults import INJECTIONS
from ingest.lab.chaos.scene import Scene, SceneCounts
from ingest.lab.chaos.schedule import FAULTS, HOLD_S_MAX, WEIGHTS, WORK_S_MAX, chosen, schedule
from ingest.lab.worker import MARK, Worker
from ingest.runtime.errors import InvalidInput
from tests.polling import until

pytestmark = pytest.mark.unit

WITHIN_S = 30

PROJECT = Path(__file__).parents[3]


def test_the_same_seed_gives_the_same_schedule_and_another_seed_a_different_one() -> None:
    first, again, other = (list(islice(schedule(seed, FAULTS), 200)) for seed in ("7", "7", "8"))
    assert first == again
    assert [fault.name for fault in first] != [fault.name for fault in other]
    assert [fault.number for fault in first] == list(range(200))
    assert all(0 <= fault.wait_s <= WORK_S_MAX and 0 <= fault.hold_s <= HOLD_S_MAX and 0 <= fault.chance < 1 for fault in first)


def test_only_chosen_faults_are_scheduled_by_weight_and_independent_of_their_order() -> None:
    assert {fault.name for fault in islice(schedule("1", ("clock", "kill-jvm")), 300)} == {"clock", "kill-jvm"}
    one, other = (list(islice(schedule("1", names), 50)) for names in (("clock", "kill-jvm"), ("kill-jvm", "clock")))
    assert one == other
    counted = Counter(fault.name for fault in islice(schedule("1", FAULTS), 5000))
    assert counted.keys() == set(FAULTS)
    assert counted["kill-driver"] > 3 * counted["clock"]


def test_every_fault_has_a_weight_an_injection_and_a_line_on_the_page() -> None:
    page = (PROJECT / "docs/explanation/chaos.md").read_text(encoding="utf-8")
    assert set(FAULTS) == WEIGHTS.keys() == INJECTIONS.keys()
    assert not [name for name in FAULTS if f"| {name} |" not in page]


def test_faults_are_chosen_by_name_and_an_unknown_one_is_refused() -> None:
    assert chosen(None) == FAULTS
    assert chosen("clock, kill-driver") == ("kill-driver", "clock")
    for text in ("kill", "", "kill-driver,clok"):
        with pytest.raises(InvalidInput) as refused:
            chosen(text)
        assert refused.value.code == "CHAOS_FAULT"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_our_library_shifts_the_wall_clock_and_not_the_monotonic_one(tmp_path: Path) -> None:
    library = clock.library(tmp_path)
    assert library == tmp_path / "clock_shift.so"
    program = "import time, datetime; print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"
    environment = {**os.environ, **clock.moved(library, 0.25)}
    out = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    wall, day, monotonic = map(float, out.split())
    moved = (wall + clock.DAY_S / 2 - time.time(), day - wall, monotonic - time.monotonic())
    assert max(map(abs, moved)) < 60, moved


SLEEPER = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"


def test_a_worker_is_killed_with_all_its_child_processes(tmp_path: Path) -> None:
    worker = Worker([sys.executable, "-c", SLEEPER], output=tmp_path / "out", environment={})
    until(lambda: len(worker.members()) == 2, "the worker and its child", WITHIN_S)
    worker.kill()
    assert worker.poll() == -9
    assert not worker.members()


STOPPING = """\
import signal, sys, time
signal.signal(15, lambda *_: (print({says!r}, flush=True), sys.exit({code})))
print('ready', flush=True)
time.sleep(600)
"""
REWOUND, WITHOUT_CODE = 105, 205
OUTPUTS = {4: "ingest: BROKER_UNREACHABLE: no answer", 5: "ingest: JVM_GONE: killed", 70: "ingest: BUG: none"}
OUTPUTS |= {REWOUND: "ingest: JVM_GONE: killed\ningest: TABLE_REWOUND: restored", WITHOUT_CODE: "Killed"}


class Stopping(Scene):
    """A scene whose drivers end with these exit codes, in this order, when they are asked to stop."""

    def __init__(self, folder: Path, *codes: int) -> None:
        self.folder, self.codes = folder, list(codes)
        self.contracts, self.findings, self.counts, self.driver = (), [], SceneCounts(), None
        self._fruitless = self._done_at_start = 0

    def tend(self) -> None:
        if self.driver is None:
            code = self.codes.pop(0)
            words = [sys.executable, "-c", STOPPING.format(code=code % 100, says=OUTPUTS.get(code, ""))]
            self.driver = Worker(words, output=self.folder / f"{len(self.codes)}", environment={})

    def working(self) -> bool:
        return self.driver is not None and "ready" in self.driver.said


@pytest.mark.parametrize(
    ("codes", "found"),
    [
        ((0,), []),
        ((5, 0), []),
        ((4, 0), []),
        ((5, 4, 5), ["asked to stop, ingest run ended with 5"]),
        ((70, 0), ["ingest run ended with exit code 70, which no fault explains"]),
        ((REWOUND, 0), ["ingest run ended with exit code 5, which no fault explains"]),
        ((WITHOUT_CODE, 0), ["ingest run ended with exit code 5, which no fault explains"]),
    ],
    ids=["stops at once", "fault", "fault at its start", "three faults", "a bug", "unexplained TABLE_REWOUND", "no error code"],
)
def test_a_run_that_its_last_fault_ends_is_no_finding_if_the_next_run_stops_cleanly(
    codes: tuple[int, ...], found: list[str], tmp_path: Path
) -> None:
    scene = Stopping(tmp_path, *codes)
    scene._stop_driver()
    assert [finding.partition(":")[0] for finding in scene.findings] == found
    assert scene.driver is None and scene.counts.ends.total() == len([code for code in codes if code])


def test_the_guard_kills_all_marked_processes_even_paused_ones_and_removes_the_folder(tmp_path: Path) -> None:
    mark, folder = f"unit-{time.monotonic_ns()}", tmp_path / "scratch"
    folder.mkdir()
    worker = Worker([sys.executable, "-c", SLEEPER], output=tmp_path / "out", environment={MARK: mark})
    until(lambda: len(marked(mark)) == 2, "two processes with the mark", WITHIN_S)
    psutil.Process(worker.pid).suspend()
    guard = subprocess.Popen([sys.executable, "-m", "ingest.lab.chaos.guard", mark, str(folder)], stdin=subprocess.PIPE, cwd=PROJECT)
    guard.communicate(b"")  # the pipe closes without a message, as if its owner was killed
    assert not marked(mark) and not folder.exists()
    worker.kill()
    dismissed = subprocess.Popen([sys.executable, "-m", "ingest.lab.chaos.guard", mark, str(tmp_path)], stdin=subprocess.PIPE, cwd=PROJECT)
    dismissed.communicate(b"done")
    assert tmp_path.exists(), "a guard that is dismissed removes nothing"


def test_counts_of_rounds_are_added_up_and_become_json() -> None:
    one = SceneCounts(injected=Counter({"kill-jvm": 2}), sigkills=2, records=10)
    one.add(SceneCounts(injected=Counter({"kill-jvm": 1, "clock": 1}), sigkills=3, batches=4, ends=Counter({"5 JVM_GONE": 3})))
    document = json.loads(json.dumps(one.as_dict()))
    assert (document["injected"], document["ends"]) == ({"kill-jvm": 3, "clock": 1}, {"5 JVM_GONE": 3})
    assert (document["sigkills"], document["starts"], document["batches"], document["records"]) == (5, 0, 4, 10)


@pytest.mark.parametrize("whole", [0, 2])
def test_an_interrupted_run_reports_the_rounds_judged_so_far_and_leaves_no_files(
    whole: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Ctrl-C in the last minute must not lose the results of an hour."""
    folders = []

    def one(report: chaos_run.ChaosReport, folder: Path, *_: object) -> None:
        folders.append(folder)
        if len(folders) > whole:
            raise KeyboardInterrupt
        report.counts.add(SceneCounts(sigkills=3, records=10))

    monkeypatch.setattr(chaos_run, "_round", one)
    options = chaos_run.Options((), 30, 1, FAULTS, 0, tmp_path)
    if not whole:
        with pytest.raises(KeyboardInterrupt):
            chaos_run.run(options, lambda *_: None)
    else:
        report = chaos_run.run(options, lambda *_: None)
        assert (report.broken_off, report.ok, report.rounds, report.folder) == (True, True, 2, None)
        assert (report.counts.sigkills, report.counts.records) == (6, 20)
    assert len(folders) == whole + 1
    assert not list(tmp_path.iterdir())
