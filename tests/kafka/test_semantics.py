"""`ingest semantics` on a real broker: each mode behaves as expected under each fault, and the command writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.delivery_modes import candidate, comparison, speed
from ingest.lab.delivery_modes.mode_fault import FAULTS, ModeFault
from ingest.lab.delivery_modes.mode_result import Trial
from ingest.lab.delivery_modes.stage import Stage

BY_NAME = {fault.name: fault for fault in FAULTS}
RECORDS, GROUP = 200, 20


@pytest.fixture
def played(broker: Broker, tmp_path: Path) -> Callable[[str, str], Trial]:
    """`played(fault, mode)` plays a fault on the session's broker. Not for faults that restart the broker."""

    def play(name: str, mode: str) -> Trial:
        fault: ModeFault = BY_NAME[name]
        with Stage(broker, tmp_path, mode, RECORDS, GROUP) as stage:
            struck = fault.play(stage, Random(7))
            verdict = stage.verdict(stage.source if fault.harms == "source" else stage.sink)
            return Trial(mode, name, RECORDS, struck, stage.restarts, 0.0, verdict)

    return play


def test_a_lost_reply_duplicates_only_if_the_broker_does_not_recognise_the_retry(played: Callable[[str, str], Trial]) -> None:
    found = {mode: played("reply_lost", mode) for mode in candidate.NAMES}
    harm = {mode: (trial.verdict.lost, trial.verdict.doubled > 0) for mode, trial in found.items()}
    assert harm == {"at_most_once": (0, False), "at_least_once": (0, True), "idempotent": (0, False), "exactly_once": (0, False)}
    assert found["at_least_once"].struck == 3 and found["exactly_once"].struck == 4, "a commit's reply is lost, too"
    assert not [trial for trial in found.values() if trial.broken]


@pytest.mark.slow  # the command test below plays it too
def test_a_killed_producer_loses_or_duplicates_records_depending_on_its_mode(played: Callable[[str, str], Trial]) -> None:
    found = {mode: played("producer_killed", mode) for mode in ("at_most_once", "idempotent", "exactly_once")}
    assert found["at_most_once"].verdict.lost > 0 and found["at_most_once"].verdict.doubled == 0
    assert found["idempotent"].verdict.lost == 0 and found["idempotent"].verdict.doubled >= GROUP, "a group that was not recorded as sent"
    assert found["exactly_once"].verdict == replace(found["exactly_once"].verdict, lost=0, doubled=0, reordered=0, lost_though_reported=0)
    assert not [trial for trial in found.values() if trial.broken]


@pytest.mark.slow  # the command test below plays it too
def test_a_consumer_killed_between_work_and_commit_repeats_the_work_except_in_a_transaction(played: Callable[[str, str], Trial]) -> None:
    found = {mode: played("consumer_killed", mode) for mode in ("idempotent", "exactly_once")}
    assert found["idempotent"].verdict.doubled > 0 and found["idempotent"].verdict.lost == 0
    assert (found["exactly_once"].verdict.lost, found["exactly_once"].verdict.doubled) == (0, 0)
    assert found["exactly_once"].verdict.hidden > 0, "its output was in the log, and aborted"


@pytest.mark.slow  # the command test below plays it too
def test_speed_is_measured_for_every_mode_with_and_without_groups(broker: Broker, tmp_path: Path) -> None:
    found = speed.measure(broker, tmp_path, sizes=(50,), seconds=0.2, rounds=1, seed=1, say=lambda text: None)
    assert [(one.group, one.mode) for one in found] == [(group, mode) for group in (None, 50) for mode in candidate.NAMES]
    for one in found:
        assert one.records_per_s > 0 and 0 < one.latency.p50_ms <= one.latency.p99_ms <= one.latency.max_ms
        assert one.latency.offered_per_s == pytest.approx(one.records_per_s / 2, rel=0.01)
    assert found[0].of_forget == found[0].of_same == found[4].of_same == 1.0


@pytest.mark.slow
def test_the_command_runs_all_trials_finds_every_guarantee_kept_and_draws_the_charts(tmp_path: Path) -> None:
    html, png = tmp_path / "new" / "page.html", tmp_path / "new" / "charts.png"
    command = [sys.executable, "-m", "ingest", "semantics", "--quick", "--seed", "3", "--json", "--html", str(html), "--png", str(png)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    document = json.loads(done.stdout)
    assert document["schema"] == "oncelake/semantics/1" and document["ok"] and document["seed"] == 3
    assert {(each["fault"], each["mode"]) for each in document["trials"]} == {(name, mode) for name in BY_NAME for mode in candidate.NAMES}
    assert [(each["group"], each["mode"]) for each in document["speeds"]] == [
        (group, mode) for group in (None, *comparison.QUICK.sizes) for mode in candidate.NAMES
    ]
    by_trial = {(each["fault"], each["mode"]): each for each in document["trials"]}
    assert by_trial["rebalance", "at_least_once"]["doubled"] > 0 and by_trial["consumer_killed", "at_most_once"]["lost"] > 0
    assert document["quick"] and "no measurements" in document["caveat"] and "no measurements" in html.read_text()
    assert html.read_text().count("<svg ") == 5 and png.read_bytes().startswith(b"\x89PNG")
