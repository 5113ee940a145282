"""The tester is tested: a copy of the engine with one bug planted runs a scenario, and the oracle must find what it does.

To add one: a line in PLANTED. The engine's own checks may stop such a run; whether they do is not asked here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.conftest import PipelineFactory
from tests.faults.driver import REPOSITORY
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


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


def planned_anew_with_another_range(lake: Pipeline) -> None:
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
    """`new` in place of `old` in a file of the package; `found` is a word of what the oracle must say."""

    promise: str
    file: str
    old: str
    new: str
    scenario: Callable[[Pipeline], None]
    found: str


MERGE = "outcome = commit.merge_target(winners, table.contract, table.ledger.target_log, mark, tally.bounds)"
QUARANTINE = "counts = _quarantine(ranked, tally.counts, table, planned)"
AHEAD = f"""from ingest.stream.delta_log import Commit

        pair = {{mark.app_id("target"): number}}
        version = table.ledger.target_log.versions()[-1] + 1
        table.ledger.saw(Commit(version, planned.planned_at, "MERGE", pair, mark.to_json(), (), {{}}))
        table.ledger.append(records.sparkSession)
        {MERGE}"""

PLANTED = {
    "no pair is set": Bug("I1", "stream/commit.py", "session.conf.set(APP_ID, mark.app_id(statement))", "pass", plain, "without a pair"),
    "no mark is set": Bug("I1", "stream/commit.py", "session.conf.set(METADATA, mark.to_json())", "pass", plain, "no userMetadata"),
    "ranges end one short": Bug(
        "I1",
        "stream/offsets.py",
        "OffsetRange(partition, before.get(partition, 0), end)",
        "OffsetRange(partition, before.get(partition, 0), max(before.get(partition, 0), end - 1))",
        plain,
        "expected to start at",
    ),
    "a skip without a look at the ranges": Bug(
        "I2",
        "stream/decide.py",
        "written == number and (last.mark.ranges, last.mark.topic_id) == (batch.ranges, batch.topic_id)",
        "written == number",
        planned_anew_with_another_range,
        "is lost",
    ),
    "no dedup inside a batch": Bug("I3", "stream/batch.py", 'ranked.where("__rank = 1")', 'ranked.where("__rank >= 1")', plain, "2 times"),
    "an append in place of the MERGE": Bug(
        "I3", "stream/commit.py", "condition = F.lit(True)", "condition = F.lit(False)", plain, "2 times"
    ),
    "aborted records are read": Bug(
        "I4",
        "stream/query.py",
        '"kafka.isolation.level": source.isolation_level',
        '"kafka.isolation.level": "read_uncommitted"',
        plain,
        "(c)",
    ),
    "poison is dropped": Bug("I5", "stream/batch.py", QUARANTINE, "counts = tally.counts", plain, "dropped"),
    "an exception is swallowed": Bug(
        "I5",
        "stream/query.py",
        "            raise\n        finally:\n            self._in_batch = False",
        "        finally:\n            self._in_batch = False",
        raised_after_quarantine,
        "is lost",
    ),
    "quarantine after the target": Bug(
        "I7",
        "stream/batch.py",
        'faults.at("after_target", number)',
        f'faults.at("after_target", number)\n        {QUARANTINE}',
        killed_after_target,
        "dropped",
    ),
    "ledger ahead of the target": Bug("I7", "stream/batch.py", MERGE, AHEAD, killed_during_target, "no target commit of that batch"),
}
# A second change that a bug needs: the first place is emptied when the statement moves.
ALSO = {"quarantine after the target": (QUARANTINE, "counts = tally.counts")}


def copy_with(name: str, bug: Bug, folder: Path) -> Path:
    """A copy of the package with the bug in it; fails if the place is no longer found, so that no bug is lost in silence."""
    shutil.copytree(REPOSITORY / "ingest", folder / "ingest", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "ingest" / bug.file
    text = file.read_text(encoding="utf-8")
    for old, new in ([ALSO[name]] if name in ALSO else []) + [(bug.old, bug.new)]:
        assert old in text, f"{bug.file} no longer holds {old!r}: plant this bug anew"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return folder


def prepare(lake: Pipeline) -> Pipeline:
    lake.produce(3200, poison=40)
    return lake


@pytest.mark.parametrize("name", PLANTED)
def test_the_oracle_finds_a_planted_bug(name: str, pipeline: PipelineFactory, tmp_path: Path) -> None:
    bug = PLANTED[name]
    lake = prepare(pipeline(batch=1500, code=copy_with(name, bug, tmp_path / "planted")))
    bug.scenario(lake)
    findings = lake.judge().findings
    assert any(bug.found in finding for finding in findings), "\n".join([*findings, *(driver.said for driver in lake.drivers)])


@pytest.mark.parametrize("scenario", [plain, killed_after_target, raised_after_quarantine], ids=lambda scenario: scenario.__name__)
def test_without_a_bug_the_oracle_finds_nothing(scenario: Callable[[Pipeline], None], pipeline: PipelineFactory) -> None:
    lake = prepare(pipeline(batch=1500))
    scenario(lake)
    lake.judge().assert_clean()


def test_without_a_bug_another_range_is_refused_and_the_checkpoint_put_back_loses_nothing(pipeline: PipelineFactory) -> None:
    """I2: the error names both ranges."""
    lake = prepare(pipeline(batch=1500))
    run(lake, fault="after_target:kill@1")
    kept = (lake.checkpoint() / "offsets" / "1").read_bytes()
    for name in ("1", ".1.crc"):
        (lake.checkpoint() / "offsets" / name).unlink(missing_ok=True)
    said = lake.start("--once", "--max-records-per-batch", "100000").ended(5)
    assert "ingest: BATCH_DIFFERS: " in said and said.count("0:[") == 2
    (lake.checkpoint() / "offsets" / "1").write_bytes(kept)
    (lake.checkpoint() / "offsets" / ".1.crc").unlink(missing_ok=True)
    lake.complete()
    lake.judge().assert_clean()
