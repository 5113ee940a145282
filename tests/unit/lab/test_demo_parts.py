"""The demo's counts and screens, and the folders that it removes."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from ingest.lab.demo.demo_folder import IN_USE, run_folder, words
from ingest.lab.demo.demo_pipeline import KILLS
from ingest.lab.demo.demo_run import DemoResult
from ingest.lab.demo.demo_screen import WIDTH, print_report
from ingest.lab.demo.demo_sent import Sent, measure, read_manifest
from ingest.lab.demo.story import Mode, Story

pytestmark = pytest.mark.unit

SENT = Sent(
    ids={"a", "b", "c"},
    retries=1,
    aborted={"x"},
    poison={(0, 5): "tombstone", (0, 6): "rule_negative_amount", (1, 2): "number_as_text"},
    poison_ids={"n": "rule_negative_amount", "t": "number_as_text"},
)


def test_one_row_per_event_and_all_poison_in_quarantine_is_exact() -> None:
    outcome = measure(SENT, Counter({"a": 1, "b": 1, "c": 1}), [(0, 5), (0, 6), (1, 2)])
    assert outcome.exact
    assert (outcome.rows, outcome.distinct_ids, outcome.quarantined, outcome.allowed) == (3, 3, 3, 0)


def test_poison_that_a_contract_may_accept_is_counted_and_the_result_is_still_exact() -> None:
    outcome = measure(SENT, Counter({"a": 1, "b": 1, "c": 1, "t": 1}), [(0, 5), (0, 6)])
    assert outcome.exact
    assert (outcome.allowed, outcome.allowed_kinds, outcome.poison_rows) == (1, ("number_as_text",), 0)


def test_each_kind_of_wrong_row_is_counted_separately() -> None:
    rows: Counter[str | None] = Counter({"a": 3, "b": 1, "x": 2, "n": 1, None: 4, "half": 1})
    outcome = measure(SENT, rows, [])
    assert not outcome.exact
    assert (outcome.rows, outcome.duplicates, outcome.lost, outcome.aborted) == (12, 2, 1, 2)
    assert (outcome.poison_rows, outcome.null_ids) == (6, 4)
    assert outcome.rows == 2 + outcome.duplicates + outcome.aborted + outcome.poison_rows + outcome.allowed


@pytest.mark.parametrize(
    "quarantine", [[(0, 5), (0, 6)], [(0, 5), (0, 6), (1, 2), (2, 9)]], ids=["poison vanished", "good record quarantined"]
)
def test_vanished_poison_or_a_good_record_in_quarantine_is_not_exact(quarantine: list[tuple[int, int]]) -> None:
    assert not measure(SENT, Counter({"a": 1, "b": 1, "c": 1}), quarantine).exact


def test_a_failed_attempt_that_was_resent_counts_as_committed_and_not_as_aborted(tmp_path: Path) -> None:
    def lists(*ids: str) -> dict[str, Any]:
        return {"orders": {"ids": list(ids), "hashes": [""] * len(ids), "partitions": [0] * len(ids)}}

    poison = [{"kind": "tombstone", "topic": "orders", "partition": 0, "id": None, "hash": None}]
    lines: list[dict[str, Any]] = [
        {"event": "sample", "topics": {"orders": 1}},
        {"event": "begin", "txn": 1, "attempt": 1, "intent": "commit", "topics": lists("a", "b", "a"), "poison": poison},
        {"event": "aborted", "txn": 1, "attempt": 1, "poison_at": []},
        {"event": "begin", "txn": 1, "attempt": 2, "intent": "commit", "topics": lists("a", "b", "a"), "poison": poison},
        {"event": "begin", "txn": 2, "attempt": 1, "intent": "abort", "topics": lists("x"), "poison": []},
        {"event": "committed", "txn": 1, "attempt": 2, "poison_at": [["tombstone", "orders", 0, 7]]},
        {"event": "aborted", "txn": 2, "attempt": 1, "poison_at": []},
    ]
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert read_manifest(manifest) == {"orders": Sent({"a", "b"}, 1, {"x"}, {(0, 7): "tombstone"}, {})}


def test_a_demo_removes_the_folders_of_ended_demos_and_no_others(tmp_path: Path) -> None:
    with run_folder(tmp_path) as ended:
        (ended / "lake").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "busy").mkdir()
    with (tmp_path / "busy" / IN_USE).open("w") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        assert ended.exists()
        with run_folder(tmp_path) as fresh:
            # Within the same second a demo chooses the same folder name. The folder must not contain old files.
            assert not (ended / "lake").exists()
            assert fresh.exists()
    assert (tmp_path / "mine").exists()
    assert (tmp_path / "busy").exists()


VERIFIED = ["shop.payments: BALANCED (5 batches of 3 epochs)", "  offsets  9 = read 8 + gap 1", "  read  8 = inserted 8", "  in target  8"]
RAN = ["12:00:00Z shop.payments batch 2: read 9", "shop.payments: FAILED (1 of 2)", "  ! critical: a set", "      page: file:///p.html"]


def report(verify_exit: int = 0) -> Any:
    """A report of one table, with the fields that are printed."""
    outcome = measure(SENT, Counter({"a": 1, "b": 1, "c": 1}), [(0, 5), (0, 6), (1, 2)])
    worse = measure(SENT, Counter({"a": 3, "b": 1}), [])
    ours = SimpleNamespace(
        exit_code=1, output=RAN, contracts=[SimpleNamespace(name="shop.payments")], lake=Path("demo/[old]/lake"), project=Path.cwd()
    )
    return SimpleNamespace(
        results=[DemoResult("shop.payments", "oncelake", outcome), DemoResult("shop.payments", "by hand", worse)],
        sent_to=lambda table: SENT,
        pipelines={"oncelake": ours},
        verify_exit=verify_exit,
        verify_output=VERIFIED,
        answer=("ingest sql ...", ["payments", "3", "1 row"]),
        seconds={"broker": 1.0},
        ok=verify_exit == 0,
    )


def test_the_last_screen_shows_what_was_sent_each_table_the_balance_the_check_and_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report(), 88.4, full=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    table = [line.split() for line in lines[:7] if "payments" in line or line.startswith("  ")]
    assert table[0] == ["shop.payments", "sent", "3", "0", "0", "0", "0", "3"]
    assert [row[-6:] for row in table[1:]] == [["3", "0", "0", "0", "0", "3"], ["4", "2", "1", "0", "0", "0"]]
    assert [line for line in lines if "BALANCED" in line or "offsets" in line or "read  8" in line] == [
        f"  {line}" for line in VERIFIED[:3]
    ]
    assert "  shop.payments: FAILED (1 of 2)" in lines and "    ! critical: a set" in lines and "  3" in lines
    assert "1 row" not in "".join(lines) and "Try next, with --lake 'demo/[old]/lake':" in lines
    assert lines[-1] == "Oncelake holds every committed event exactly once. 88 s."
    # A second table adds two rows and three lines of balance. With the story, the screen stays below forty lines.
    assert len(lines) <= 21 and max(map(len, lines)) <= WIDTH


def test_the_table_of_a_full_demo_fits_a_terminal_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    shown = report()
    sent = Sent(ids={str(number) for number in range(66_000)}, poison={(0, number): "tombstone" for number in range(33)})
    worse = replace(measure(sent, Counter(), []), rows=172_345, duplicates=100_345, lost=0, aborted=5_123, quarantined=33)
    shown.results, shown.sent_to = [DemoResult("shop.payments", "by hand", worse)], lambda table: sent
    print_report(shown, 88.4, full=False)
    lines = capsys.readouterr().out.splitlines()[1:5]
    assert lines[0].split()[-6:] == ["rows", "duplicates", "lost", "aborted", "broken", "quarantined"]
    assert lines[3].split()[-6:] == ["172,345", "100,345", "0", "5,123", "0", "33"] and max(len(line.rstrip()) for line in lines) <= 80


def test_an_answer_that_is_an_error_is_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    shown = report()
    shown.answer = ("ingest sql ...", ["ingest: SQL_FAILED: no", "  expected: yes", "  to mend:  so"])
    print_report(shown, 88.4, full=False)
    assert "to mend:  so" in capsys.readouterr().out


def test_the_suggested_options_of_a_demo_in_another_folder_use_full_paths(tmp_path: Path) -> None:
    assert words(tmp_path, tmp_path / "a lake") == ["--project", str(tmp_path), "--lake", str(tmp_path / "a lake")]
    assert words(Path.cwd(), Path.cwd() / "demo") == ["--lake", "demo"]


def test_a_demo_whose_balance_fails_is_not_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report(verify_exit=1), 88.4, full=True)
    out = capsys.readouterr().out
    assert "exit code 1)" in out and "NOT EXACT" in out and "page: file:///p.html" in out and "in target  8" in out


def test_a_story_line_about_a_kill_fits_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    with Story("lines") as story:
        for who, kills in KILLS.items():
            for _, words_of_it in kills:
                story.say(who, f"KILLED {words_of_it}")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= WIDTH


def test_the_live_story_does_not_interpret_brackets_as_markup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with Story("live") as story:
        story.say("broker", "files: demo/[old]/1")
        story.say("oncelake", "note: [/tmp/x] is gone", detail=True)
        Console(markup=True).print(story._table())
    out = capsys.readouterr().out
    assert out.count("demo/[old]/1") >= 2 and "note: [/tmp/x] is gone" in out


def test_the_story_has_one_line_per_event_and_details_in_full_mode_only(capsys: pytest.CaptureFixture[str]) -> None:
    modes: tuple[Mode, ...] = ("lines", "full", "silent")
    for mode in modes:
        with Story(mode) as story:
            story.say("oncelake", "KILLED")
            story.say("oncelake", "batch 2", detail=True)
    assert [line.split("  ")[-1] for line in capsys.readouterr().out.splitlines()] == ["KILLED", "KILLED", "batch 2"]
