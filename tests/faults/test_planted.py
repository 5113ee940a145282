"""The tester is tested: a copy of the engine with one bug planted runs a scenario, and the oracle must find what it does.

To add one: a line in PLANTED. The engine's own checks may stop such a run; whether they do is not asked here.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.conftest import PipelineFactory
from tests.faults.driver import REPOSITORY
from tests.faults.pipeline import Pipeline

pytestmark = pytest.mark.timeout(900)


def plain(lake: Pipeline) -> None:
    """Read all, with retries, poison and aborted transactions in it."""
    run(lake)


def killed_after_target(lake: Pipeline) -> None:
    run(lake, fault="after_target:kill@1")
    run(lake)


def killed_during_target(lake: Pipeline) -> None:
    """Judged as the kill left it: what is in the ledger must be in the target at any time."""
    run(lake, fault="during_target:kill@1")


def raised_after_quarantine(lake: Pipeline) -> None:
    run(lake, fault="after_quarantine:raise@1")
    run(lake)


def planned_larger(lake: Pipeline) -> None:
    """The checkpoint is as old as batch 0, and the next batch is planned larger than the one that the table holds."""
    run(lake, fault="after_target:kill@1")
    for name in ("1", ".1.crc"):
        (lake.checkpoint() / "offsets" / name).unlink(missing_ok=True)
    run(lake, "--once", "--max-records-per-batch", "100000")


def run(lake: Pipeline, *arguments: str, fault: str | None = None) -> None:
    driver = lake.start(*arguments, fault=fault)
    driver.died()
    driver.gone()


@dataclass(frozen=True)
class Bug:
    """Each change is (old, new) in one file of the package; `found` is a part of what the oracle must say.

    `also` are changes (file, old, new) that take away what else would have stopped the bug.
    """

    promise: str
    file: str
    changes: tuple[tuple[str, str], ...]
    scenario: Callable[[Pipeline], None]
    found: str
    poison: int = 40
    also: tuple[tuple[str, str, str], ...] = ()


MERGE = (
    "outcome = commit.merge_target(winners, table.contract, table.ledger.target_log, mark, tally.bounds, lambda: _decide(table, planned))"
)
QUARANTINE = "counts = _quarantine(with_bytes(ranked, records, tally.conflicts), tally, table, planned, begun=begun)"
NO_QUARANTINE = "counts = tally.counts"
AFTER_TARGET = 'faults.at("after_target", number)'
SET_PAIR = ("session.conf.set(APP_ID, mark.app_id(statement))", "session.conf.set(VERSION, str(mark.id.number))")
SET_MARK = "session.conf.set(METADATA, mark.to_json())"
RANGE = "OffsetRange(partition, before.get(partition, 0), end)"
SAME_RANGES = "written == number and (last.mark.ranges, last.mark.topic_id) == (batch.ranges, batch.topic_id)"
RAISE = "            raise\n        finally:\n            self._in_batch = False"
# Preflight, before the first batch, would refuse this checkpoint as too old.
OLD = "def _checkpoint_old(known: _Known) -> Refused | None:\n"
NO_LOOK_BEFORE = ("stream/preflight.py", OLD, f"{OLD}    return None\n")
LEDGER_FIRST = f"""from ingest.stream.delta_log import Commit

        pair = {{mark.app_id("target"): number}}
        version = table.ledger.target_log.versions()[-1] + 1
        table.ledger.saw(Commit(version, planned.planned_at, "MERGE", pair, mark.to_json()))
        table.ledger.append(records.sparkSession)
        {MERGE}"""

PLANTED = {
    "no pair is set": Bug("I1", "stream/commit.py", tuple((line, "pass") for line in SET_PAIR), plain, "adds data without a pair"),
    "no mark is set": Bug("I1", "stream/commit.py", ((SET_MARK, "pass"),), plain, "no userMetadata of ours", poison=0),
    "ranges begin one late": Bug(
        "I1", "stream/offsets.py", ((RANGE, RANGE.replace("0), end", "-1) + 1, end")),), plain, "expected to start"
    ),
    "a skip without a look at the ranges": Bug(
        "I2", "stream/decide.py", ((SAME_RANGES, "written == number"),), planned_larger, "is lost", also=(NO_LOOK_BEFORE,)
    ),
    "no dedup inside a batch": Bug("I3", "stream/batch.py", (('"__rank = 1"', '"__rank >= 1"'),), plain, "in the target 2 times"),
    "no look into the target": Bug(
        "I3", "stream/commit.py", (("condition = F.lit(True)", "condition = F.lit(False)"),), plain, "in the target 2 times"
    ),
    "aborted records are read": Bug(
        "I4", "stream/query.py", (('tion.level": source.isolation_level', 'tion.level": "read_uncommitted"'),), plain, "aborted transaction"
    ),
    "poison is dropped": Bug("I5", "stream/batch.py", ((QUARANTINE, NO_QUARANTINE),), plain, "dropped"),
    "an exception is swallowed": Bug("I5", "stream/query.py", ((RAISE, RAISE[18:]),), raised_after_quarantine, "is lost"),
    "quarantine after the target": Bug(
        "I7",
        "stream/batch.py",
        ((QUARANTINE, NO_QUARANTINE), (AFTER_TARGET, f"{AFTER_TARGET}\n        {QUARANTINE}")),
        killed_after_target,
        "dropped",
    ),
    "ledger ahead of the target": Bug("I7", "stream/batch.py", ((MERGE, LEDGER_FIRST),), killed_during_target, "no target commit of that"),
}


def copy_with(bug: Bug, folder: Path) -> Path:
    """A copy of the package with the bug in it; fails if a place is no longer found, so that no bug is lost in silence."""
    shutil.copytree(REPOSITORY / "ingest", folder / "ingest", ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in (*((bug.file, old, new) for old, new in bug.changes), *bug.also):
        file = folder / "ingest" / name
        text = file.read_text(encoding="utf-8")
        assert old in text, f"{name} no longer holds {old!r}: plant this bug anew"
        file.write_text(text.replace(old, new), encoding="utf-8")
        compile(text.replace(old, new), file, "exec")
    return folder


def of_batches_done(lake: Pipeline, findings: Sequence[str]) -> list[str]:
    """Findings that do not merely say that a run which stopped has not read on: positions behind what Spark's commit log has."""
    done = lake.checkpoint() / "offsets" / str(lake.numbers("commits")[-1]) if lake.numbers("commits") else None
    ends: dict[str, int] = json.loads(done.read_text().splitlines()[2])[lake.topic] if done else {}
    places = [re.search(r"partition (\d+) offset (\d+)", finding) for finding in findings]
    return [f for f, at in zip(findings, places, strict=True) if at is None or int(at[2]) < ends.get(at[1], 0)]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_fits_the_code_of_today(name: str, tmp_path: Path) -> None:
    copy_with(PLANTED[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_the_oracle_finds_a_planted_bug(name: str, pipeline: PipelineFactory, tmp_path: Path) -> None:
    bug = PLANTED[name]
    lake = pipeline(batch=1500, code=copy_with(bug, tmp_path / "planted"))
    lake.produce(3200, poison=bug.poison)
    bug.scenario(lake)
    findings = of_batches_done(lake, lake.judge().findings)
    assert any(bug.found in finding for finding in findings), "\n".join([*findings, *(driver.said for driver in lake.drivers)])


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [plain, killed_after_target, raised_after_quarantine], ids=lambda scenario: scenario.__name__)
def test_without_a_bug_the_oracle_finds_nothing(scenario: Callable[[Pipeline], None], pipeline: PipelineFactory) -> None:
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    scenario(lake)
    lake.judge().assert_clean()


@pytest.mark.slow
def test_without_a_bug_another_range_is_refused_and_the_checkpoint_put_back_loses_nothing(pipeline: PipelineFactory) -> None:
    """I2: the error names both ranges."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    run(lake, fault="after_target:kill@1")
    kept = (lake.checkpoint() / "offsets" / "1").read_bytes()
    for name in ("1", ".1.crc"):
        (lake.checkpoint() / "offsets" / name).unlink(missing_ok=True)
    said = lake.start("--once", "--max-records-per-batch", "100000").ended(3)
    assert "ingest: CHECKPOINT_OLD: " in said and said.count("0:[") == 2
    (lake.checkpoint() / "offsets" / "1").write_bytes(kept)
    (lake.checkpoint() / "offsets" / ".1.crc").unlink(missing_ok=True)
    lake.complete()
    lake.judge().assert_clean()
