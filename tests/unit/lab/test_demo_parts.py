"""What the demo counts, and whose folders it removes."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from ingest.cli import demo
from ingest.lab.demo.demo_folder import IN_USE, run_folder
from ingest.lab.demo.demo_pipeline import Killed
from ingest.lab.demo.demo_sent import Sent, measure, read_manifest

pytestmark = pytest.mark.unit

SENT = Sent(
    ids={"a", "b", "c"},
    retries=1,
    aborted={"x"},
    poison={(0, 5): "tombstone", (0, 6): "rule_negative_amount", (1, 2): "number_as_text"},
    poison_ids={"n": "rule_negative_amount", "t": "number_as_text"},
)


def test_one_row_an_event_and_the_poison_in_quarantine_is_exact() -> None:
    outcome = measure(SENT, Counter({"a": 1, "b": 1, "c": 1}), [(0, 5), (0, 6), (1, 2)])
    assert outcome.exact
    assert (outcome.rows, outcome.distinct_ids, outcome.quarantined, outcome.allowed) == (3, 3, 3, 0)


def test_poison_that_a_contract_may_let_in_is_counted_and_still_exact() -> None:
    outcome = measure(SENT, Counter({"a": 1, "b": 1, "c": 1, "t": 1}), [(0, 5), (0, 6)])
    assert outcome.exact
    assert (outcome.allowed, outcome.allowed_kinds, outcome.poison_rows) == (1, ("number_as_text",), 0)


def test_each_kind_of_wrong_row_is_told_from_the_others() -> None:
    rows: Counter[str | None] = Counter({"a": 3, "b": 1, "x": 2, "n": 1, None: 4, "half": 1})
    outcome = measure(SENT, rows, [])
    assert not outcome.exact
    assert (outcome.rows, outcome.duplicates, outcome.lost, outcome.aborted) == (12, 2, 1, 2)
    assert (outcome.poison_rows, outcome.null_ids) == (6, 4)
    assert outcome.rows == 2 + outcome.duplicates + outcome.aborted + outcome.poison_rows + outcome.allowed


@pytest.mark.parametrize("quarantine", [[(0, 5), (0, 6)], [(0, 5), (0, 6), (1, 2), (2, 9)]], ids=["without a trace", "a good one"])
def test_poison_that_vanished_and_good_records_in_quarantine_are_not_exact(quarantine: list[tuple[int, int]]) -> None:
    assert not measure(SENT, Counter({"a": 1, "b": 1, "c": 1}), quarantine).exact


def test_an_attempt_that_failed_and_was_sent_again_is_committed_and_not_aborted(tmp_path: Path) -> None:
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


def test_the_next_demo_removes_folders_of_demos_that_have_ended_and_no_others(tmp_path: Path) -> None:
    with run_folder(tmp_path) as ended:
        (ended / "lake").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "busy").mkdir()
    with (tmp_path / "busy" / IN_USE).open("w") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        assert ended.exists()
        with run_folder(tmp_path) as fresh:
            # In the same second a process would choose the same name; what matters is that nothing of the old one is in it.
            assert not (ended / "lake").exists()
            assert fresh.exists()
    assert (tmp_path / "mine").exists()
    assert (tmp_path / "busy").exists()


@pytest.mark.parametrize(("verify_exit", "said"), [(0, "every record is accounted for"), (1, "the balance does NOT hold")])
def test_the_kill_the_lost_checkpoints_and_the_balance_are_told_in_one_line(verify_exit: int, said: str) -> None:
    kills = [Killed("by hand", 1, 2, 3.0, 4, ()), Killed("oncelake", 1, 2, 3.0, 31, ())]
    line = demo.survived(SimpleNamespace(kills=kills, verify_exit=verify_exit))  # type: ignore[arg-type]
    assert "SIGKILL" in line and "whole checkpoints folder (31 files) was deleted" in line and said in line and "\n" not in line


def test_what_the_check_said_is_shown_and_the_questions_so_that_they_can_be_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    output = ["12:00:00Z shop.payments batch 2: read 9", "shop.payments: FAILED (1 of 2)", "  ! critical: a set"]
    ours = SimpleNamespace(exit_code=1, output=output, contracts=[SimpleNamespace(name="shop.payments")])
    command = "ingest sql --question failed-expectations --table payments --lake demo/[1]/oncelake/lake"
    console = Console(width=demo.WIDTH, highlight=False, soft_wrap=True)
    demo._print_quality(console, SimpleNamespace(pipelines={"oncelake": ours}, answers={command: ["1 row"]}))  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines()[2:] == [
        "  shop.payments: FAILED (1 of 2)",
        "    ! critical: a set",
        "",
        f"`{command}`:",
        "  1 row",
    ]
