"""Chaos without processes: the schedule, the events, the lines of docs/chaos.md."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from ingest.chaos import clock
from ingest.chaos import run as chaos_run
from ingest.chaos.blows import BLOWS
from ingest.chaos.events import Events, bodies, compared_columns, refuse_unfit, refused_kinds
from ingest.chaos.guard import clear
from ingest.chaos.scene import Counts, Scene
from ingest.chaos.schedule import FAULTS, HOLD_S_MAX, MEANINGS, WEIGHTS, WORK_S_MAX, chosen, schedule
from ingest.chaos.worker import MARK, Worker, marked
from ingest.contract import Contract, load_contracts
from ingest.errors import InvalidInput
from ingest.oracle.sources import decode
from scripts import chaos as script
from scripts import page as page_of
from tests.polling import until

pytestmark = pytest.mark.unit

WITHIN_S = 30

PROJECT = Path(__file__).parents[2]
CONTRACT: dict[str, Any] = {
    "pipeline": "club",
    "table": "members",
    "source": {"topic": "members", "format": "json"},
    "columns": [
        {"name": "club", "type": "DATE", "nullable": False},
        {"name": "number", "type": "BIGINT", "nullable": False},
        {"name": "name", "type": "STRING"},
        {"name": "fee", "type": "DECIMAL(10,2)", "nullable": False},
        {"name": "tags", "type": "ARRAY<STRING>"},
        {"name": "at", "type": "TIMESTAMP"},
        {"name": "raw", "type": "BINARY"},
        {"name": "more", "type": "STRUCT<a: INT, b: MAP<STRING, DOUBLE>>"},
    ],
    "event_id": ["club", "number"],
}


def contract(**changes: object) -> Contract:
    return Contract.from_json(json.dumps({**CONTRACT, **changes}))


def test_the_same_seed_gives_the_same_schedule_and_another_seed_another() -> None:
    first, again, other = (list(islice(schedule(seed, FAULTS), 200)) for seed in ("7", "7", "8"))
    assert first == again
    assert [blow.fault for blow in first] != [blow.fault for blow in other]
    assert [blow.number for blow in first] == list(range(200))
    assert all(0 <= blow.wait_s <= WORK_S_MAX and 0 <= blow.hold_s <= HOLD_S_MAX and 0 <= blow.chance < 1 for blow in first)


def test_only_the_chosen_faults_strike_as_often_as_their_weights_say_in_whatever_order_they_are_named() -> None:
    assert {blow.fault for blow in islice(schedule("1", ("clock", "kill-jvm")), 300)} == {"clock", "kill-jvm"}
    one, other = (list(islice(schedule("1", names), 50)) for names in (("clock", "kill-jvm"), ("kill-jvm", "clock")))
    assert one == other
    counted = Counter(blow.fault for blow in islice(schedule("1", FAULTS), 5000))
    assert counted.keys() == set(FAULTS)
    assert counted["kill-driver"] > 3 * counted["clock"]


def test_every_fault_has_a_weight_a_meaning_a_blow_and_a_line_on_the_page() -> None:
    page = (PROJECT / "docs/chaos.md").read_text(encoding="utf-8")
    assert set(FAULTS) == WEIGHTS.keys() == MEANINGS.keys() == BLOWS.keys()
    assert not [name for name in FAULTS if f"| {name} |" not in page]


def test_faults_are_chosen_by_name_and_an_unknown_one_is_refused() -> None:
    assert chosen(None) == FAULTS
    assert chosen("clock, kill-driver") == ("kill-driver", "clock")
    for text in ("kill", "", "kill-driver,clok"):
        with pytest.raises(InvalidInput) as refused:
            chosen(text)
        assert refused.value.code == "CHAOS_FAULT"


def test_events_of_the_repositorys_contracts_are_the_shops_with_ids_of_their_own() -> None:
    for each in load_contracts(PROJECT):
        pool = bodies(each, "1", None)
        assert pool.origin == f"the shop's {each.table}"
        source = Events([pool], "1", "0")
        events = list(source.events(500))
        assert len({event.event_id for event in events}) == 500
        for event in events:
            record = decode(event.value, each.event_id.columns, compared_columns(each))
            assert record.event_id == (event.event_id,)
            assert not [c.name for c in each.columns if not c.nullable and json.loads(event.value).get(c.name) is None]


def test_two_writers_never_share_an_id_and_a_writer_that_is_started_again_repeats_its_own() -> None:
    pool = bodies(contract(), "1", None)
    ids = {name: [e.event_id for e in Events([pool], "1", name).events(300)] for name in ("0", "1", "aborted/0", "aborted/1")}
    assert len(set().union(*ids.values())) == 1200
    again = [event.value for event in Events([pool], "1", "1").events(300)]
    assert again == [event.value for event in Events([pool], "1", "1").events(300)]


def test_events_made_from_the_types_are_what_the_oracle_reads_from_them() -> None:
    each = contract()
    pool = bodies(each, "1", None)
    assert pool.origin == "the column types"
    assert compared_columns(each) == ("name", "fee", "at")
    for event in Events([pool], "1", "3").events(200):
        record = decode(event.value, each.event_id.columns, ("fee",))
        assert record.event_id == tuple(event.event_id.split("\x1f"))
        assert json.loads(event.value).keys() == {column.name for column in each.columns}


def test_samples_of_a_file_keep_all_but_their_ids(tmp_path: Path) -> None:
    (tmp_path / "members.jsonl").write_text('{"club": "2025-01-01", "number": 1, "name": "Ida", "fee": 12.50}\n', encoding="utf-8")
    pool = bodies(contract(), "1", tmp_path)
    values = [json.loads(event.value) for event in Events([pool], "1", "0").events(20)]
    assert {value["name"] for value in values} == {"Ida"}
    assert len({value["number"] for value in values}) == 20
    assert '"fee":12.50' in pool.texts[0]


@pytest.mark.parametrize("text", ['{"fee": 1', '{"name": "Ida"}', "[1]", ""])
def test_a_file_of_samples_that_does_not_fit_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "members.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        bodies(contract(), "1", tmp_path)
    assert refused.value.code == "CHAOS_SAMPLE"
    assert "members.jsonl" in refused.value.found


@pytest.mark.parametrize("event_id", ["key", ["club"], ["raw", "number"]])
def test_a_contract_that_cannot_be_judged_is_refused(event_id: object) -> None:
    columns = [{**column, "nullable": False} for column in CONTRACT["columns"]]
    with pytest.raises(InvalidInput) as refused:
        refuse_unfit(contract(event_id=event_id, columns=columns))
    assert refused.value.code == "CHAOS_CONTRACT"


def test_poison_goes_through_all_kinds_and_what_has_no_readable_id_has_none_for_the_oracle_either() -> None:
    each = contract()
    source = Events([bodies(each, "1", None)], "1", "0")
    kinds = set()
    for number in range(60):
        broken = source.poison(number)
        kinds.add(broken.kind)
        record = decode(broken.value, each.event_id.columns, ())
        assert (record.event_id is None) == (broken.event_id is None), broken
    assert {"tombstone", "not_utf8", "id_null", "object_for_fee"} <= kinds


def test_the_oracle_is_told_which_of_the_broken_events_no_contract_lets_in() -> None:
    assert refused_kinds(contract()) == {"object_for_fee", "object_for_tags", "object_for_at"}
    source = Events([bodies(contract(), "7", None)], "7", "0")
    made = {broken.kind for broken in map(source.poison, range(20)) if broken.event_id is not None}
    assert made == refused_kinds(contract())


def test_a_moved_clock_is_up_to_a_day_off() -> None:
    library = Path("/lib/x.so")
    assert [clock.moved(library, chance)["FAKETIME"] for chance in (0, 0.5, 1)] == ["-86400", "+0", "+86400"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_our_library_moves_the_wall_clock_and_not_the_monotonic_one(tmp_path: Path) -> None:
    library = clock.library(tmp_path)
    assert library == tmp_path / "clock_shift.so"
    look = "import time, datetime; print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"
    environment = {**os.environ, **clock.moved(library, 0.25)}
    out = subprocess.run([sys.executable, "-c", look], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    wall, day, monotonic = map(float, out.split())
    assert abs(wall + clock.DAY_S / 2 - time.time()) < 60
    assert abs(day - wall) < 60
    assert abs(monotonic - time.monotonic()) < 60


def test_libfaketime_is_where_the_variable_says_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_CHAOS_LIBFAKETIME", str(tmp_path / "none.so"))
    assert clock.library(tmp_path) is None
    (tmp_path / "none.so").touch()
    assert clock.library(tmp_path) == tmp_path / "none.so"


SLEEPER = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"


def test_a_worker_is_killed_with_all_below_it(tmp_path: Path) -> None:
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
REWOUND, NAMELESS = 105, 205
SAID = {4: "ingest: BROKER_UNREACHABLE: no answer", 5: "ingest: JVM_GONE: killed", 70: "ingest: BUG: none"}
SAID |= {REWOUND: "ingest: JVM_GONE: killed\ningest: TABLE_REWOUND: restored", NAMELESS: "Killed"}


class Stopping(Scene):
    """A scene whose drivers end with these exit codes, one after the other, when they are asked to stop."""

    def __init__(self, folder: Path, *codes: int) -> None:
        self.folder, self.codes = folder, list(codes)
        self.contracts, self.findings, self.counts, self.driver = (), [], Counts(), None
        self._fruitless = self._done_at_start = 0

    def tend(self) -> None:
        if self.driver is None:
            code = self.codes.pop(0)
            words = [sys.executable, "-c", STOPPING.format(code=code % 100, says=SAID.get(code, ""))]
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
        ((NAMELESS, 0), ["ingest run ended with exit code 5, which no fault explains"]),
    ],
    ids=["at once", "struck", "struck at its start", "thrice", "a bug", "rows missed that nobody took", "without a name"],
)
def test_a_run_that_ends_by_its_last_blow_when_asked_to_stop_is_no_finding_if_the_next_one_stops(
    codes: tuple[int, ...], found: list[str], tmp_path: Path
) -> None:
    scene = Stopping(tmp_path, *codes)
    scene._stop_driver()
    assert [finding.partition(":")[0] for finding in scene.findings] == found
    assert scene.driver is None and scene.counts.ends.total() == len([code for code in codes if code])


def test_the_guard_ends_what_carries_the_mark_stopped_ones_too_and_removes_the_folder(tmp_path: Path) -> None:
    mark, folder = f"unit-{time.monotonic_ns()}", tmp_path / "scratch"
    folder.mkdir()
    worker = Worker([sys.executable, "-c", SLEEPER], output=tmp_path / "out", environment={MARK: mark})
    until(lambda: len(marked(mark)) == 2, "two processes with the mark", WITHIN_S)
    psutil.Process(worker.pid).suspend()
    guard = subprocess.Popen([sys.executable, "-m", "ingest.chaos.guard", mark, str(folder)], stdin=subprocess.PIPE, cwd=PROJECT)
    guard.communicate(b"")  # the pipe ends without a word, as when its owner is killed
    assert not marked(mark)
    assert not folder.exists()
    worker.kill()


def test_a_guard_that_is_dismissed_removes_nothing(tmp_path: Path) -> None:
    guard = subprocess.Popen([sys.executable, "-m", "ingest.chaos.guard", "no-mark", str(tmp_path)], stdin=subprocess.PIPE, cwd=PROJECT)
    guard.communicate(b"done")
    assert tmp_path.exists()
    clear("no-mark", str(tmp_path / "missing"))


def test_counts_of_rounds_are_added_up_and_become_json() -> None:
    one, other = Counts(sigkills=2, records=10), Counts(sigkills=3, batches=4)
    one.strikes.update({"kill-jvm": 2})
    other.strikes.update({"kill-jvm": 1, "clock": 1})
    other.ends.update({"5 JVM_GONE": 3})
    one.add(other)
    assert json.loads(json.dumps(one.as_dict())) == {
        "strikes": {"kill-jvm": 3, "clock": 1},
        "sigkills": 5,
        "starts": 0,
        "writers": 0,
        "batches": 4,
        "records": 10,
        "ends": {"5 JVM_GONE": 3},
    }


def report(ok: bool = True, faults: tuple[str, ...] = FAULTS) -> dict[str, object]:
    counts = {"sigkills": 12, "batches": 34, "records": 56_789, "ends": {}}
    return {
        "seed": 7,
        "seconds_of_faults": 121.3,
        "faults": list(faults),
        "ok": ok,
        "findings": [] if ok else ["a", "b"],
        "counts": counts,
    } | {
        "rounds": 4,
        "broken_off": False,
    }


def test_a_run_becomes_a_line_of_the_page_and_the_totals_are_counted_from_all_lines() -> None:
    page = (PROJECT / "docs/chaos.md").read_text(encoding="utf-8")
    head, rest = page.split(page_of.RUNS)
    empty = head.split(page_of.TOTAL)[0] + f"{page_of.TOTAL}\n**0 runs**\n\ntext\n\n" + page_of.RUNS
    table, after = rest.split(page_of.END)
    empty += "\n".join(line for line in table.splitlines() if not line.startswith("| 2")) + "\n" + page_of.END + after
    line = script.row(report(), dt.date(2026, 1, 31), "abc1234")
    assert line == "| 2026-01-31 | abc1234 | 7 | 2.0 | all | 12 | 34 | 56,789 | clean |"
    once = page_of.with_run(empty, line, script.total)
    assert "**1 runs, 2 minutes of faults, 12 SIGKILLs, 34 batches, 56,789 records; none with findings.**" in once
    broken = script.row({**report(), "broken_off": True}, dt.date(2026, 1, 31), "abc1234")
    assert broken.endswith("| 56,789 | clean; broken off after round 4 |")
    assert "; none with findings.**" in page_of.with_run(once, broken, script.total)
    bad = script.row(report(ok=False, faults=FAULTS[:-1]), dt.date(2026, 1, 31), "abc1234")
    twice = page_of.with_run(once, bad, script.total)
    assert "| all but clock | 12 | 34 | 56,789 | 2 findings |" in twice
    assert "**2 runs, 4 minutes of faults, 24 SIGKILLs, 68 batches, 113,578 records; 1 with findings.**" in twice
    assert twice.count("SIGKILLs, ") == 1 and twice.index(line) < twice.index(bad) and "text" in twice
    assert twice.split(page_of.END)[1] == after
    assert "\n\n\n" not in twice


@pytest.mark.parametrize("whole", [0, 2])
def test_a_run_that_is_broken_off_tells_what_its_judged_rounds_came_to_and_leaves_nothing(
    whole: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour of faults is not lost by a Ctrl-C in its last minute."""
    folders = []

    def one(report: chaos_run.Report, folder: Path, *_: object) -> None:
        folders.append(folder)
        if len(folders) > whole:
            raise KeyboardInterrupt
        report.counts.add(Counts(sigkills=3, records=10))

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


TWO_DISKS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from ingest.chaos.disk import small_disk

folder = Path(sys.argv[1])
with ThreadPoolExecutor(1) as kept:
    for name in ("one", "two"):
        with small_disk(folder / name) as disk:
            if disk is None:
                sys.exit(3)
            (folder / name / "file").touch()
            print(kept.submit(lambda: (folder / name / "file").exists()).result())
print([path.name for path in folder.rglob("file")])
"""


def test_a_thread_that_a_library_keeps_sees_the_second_small_disk_too(tmp_path: Path) -> None:
    """deltalake's did not, and the oracle found no table in the second round."""
    done = subprocess.run([sys.executable, "-c", TWO_DISKS, str(tmp_path)], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip("no tmpfs can be mounted here")
    assert done.stdout.split("\n") == ["True", "True", "[]", ""], done.stderr
