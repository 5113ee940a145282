"""The commit protocol under a few thousand random schedules, the model's own ability to fail, and what it has found (docs/model.md)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from ingest.stream import batch
from tests.model import driver
from tests.model.known import KNOWN, known
from tests.model.planted import BUGS, Bug
from tests.model.schedule import Schedule, engine_connected, judged, play, shrunk, walk
from tests.model.world import Op, Setting

SEED = 77_000_000
SCHEDULES = 3000
# Where a planted bug is looked for.
PLANTED_MAX = 3000


@pytest.fixture(autouse=True)
def connected() -> Iterator[None]:
    with engine_connected():
        yield


def test_no_promise_is_broken_in_a_few_thousand_schedules() -> None:
    """I1 to I9, but for what is known (below)."""
    for number in range(SCHEDULES):
        schedule, violation = walk(SEED + number)
        if violation is not None and known(judged(), violation) is None:
            small = shrunk(schedule, violation.promise)
            pytest.fail(f"walk({SEED + number}): {violation}\n{small}")


def test_a_schedule_can_be_played_again() -> None:
    for number in range(100):
        schedule, violation = walk(SEED + number)
        again = play(schedule)
        assert str(again) == str(violation)
        assert walk(SEED + number)[0] == schedule


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """The model can fail: each bug breaks a promise within a few thousand schedules."""
    with bug.in_place():
        for number in range(PLANTED_MAX):
            _, violation = walk(SEED + number, bug.planted, bug.begin)
            if violation is not None and known(judged(), violation) is None:
                return
    pytest.fail(f"not found: {bug.name}")


def test_the_model_rests_where_the_engine_has_its_named_steps() -> None:
    """Who changes the steps of a batch changes the model too."""
    named = re.findall(r'faults\.at\("(\w+)"', inspect.getsource(batch.process))
    assert named == ["after_offset_log", "after_quarantine", "during_target", "after_target", "after_ledger"]
    played = "".join(inspect.getsource(part) for part in (driver.Driver._batch, driver.Driver._target))
    rests = [name for name in re.findall(r'yield "(\w+)"', played) if name in named]
    assert list(dict.fromkeys(rests)) == [name for name in named if name != "during_target"]  # that one is inside the MERGE


THREE: Op = ("produce", 0, ((6, 0, "good"), (7, 0, "good"), (8, 0, "good")))
POISON: Op = ("produce", 0, ((6, 0, "poison"),))
SMALL = Setting(limit=1)


def go(number: int, steps: int, *, place: int = 0, bypass: bool = False, at: int = 0, then: Op = ()) -> Op:
    """A driver goes on by `steps`; at its `at`-th change of a file or table `then` comes in between."""
    return ("go", number, place, bypass, steps, at, then)


# What the model has found: (known as, what, schedule). All of them end as xfail until the engine is mended.
FOUND = (
    (
        "stands-by-another",
        "a record stands in quarantine by a batch that never came to its target commit; another checkpoint reads it again and counts "
        "it as replayed; then the quarantine is dropped: no commit in force proves that it held the record",
        Schedule(Setting(), (POISON, go(0, 5, at=12, then=("crash",)), go(0, 2, place=1), go(0, 4), ("drop", 1))),
    ),
    (
        "restore-cleaned-up",
        "a RESTORE that Delta has cleaned up from the log before the next start: the ledger vouches for what it left out",
        Schedule(SMALL, (THREE, go(0, 23), ("restore", 0, 1, False), ("optimize",), ("clean", 0, 0))),
    ),
    (
        "contract-race",
        "two drivers of one checkpoint without locks, each with its contract: the quarantine is under one, contract.json holds the other, "
        "every start ends as CONTRACT_CHANGED",
        Schedule(
            Setting(),
            (
                ("produce", 0, ((6, 0, "good"), (7, 0, "poison"))),
                go(0, 1, bypass=True),
                ("contract", True),
                go(1, 5, bypass=True),
                go(0, 1, bypass=True),
            ),
        ),
    ),
    (
        "binding-race",
        "two first starts without locks and the topic made again between them: the binding of the one names the topic id of the other",
        Schedule(
            Setting(),
            (go(0, 1, bypass=True), ("recreate",), THREE, go(1, 2, bypass=True, at=3, then=go(0, 9, bypass=True))),
        ),
    ),
)

# What it had found, and what was mended.
MENDED: tuple[tuple[str, str, Schedule], ...] = (
    (
        "unseen-at-first",
        "two first starts on two checkpoints without locks: before its own first batch the one does not look for batches of the other, "
        "counts their records as replayed, and a RESTORE takes them away",
        Schedule(
            Setting(),
            (
                ("produce", 0, ((6, 0, "good"),)),
                go(0, 4, place=1, at=3, then=go(1, 12, bypass=True)),
                ("restore", 0, 1, True),
                go(0, 2),
            ),
        ),
    ),
    (
        "replaced-at-the-start",
        "the quarantine is replaced after preflight has looked at it and before the start remembers it: what was taken away counts as seen",
        Schedule(
            Setting(),
            (
                ("produce", 0, ((1, 10, "poison"),)),
                go(0, 6),
                ("kill", 0),
                go(0, 1),
                ("replace", 1, False),
                go(0, 1),
            ),
        ),
    ),
    (
        "initial-offsets-torn",
        "sources/0/0 is damaged before anything was planned: preflight lets it pass, and Spark's own error ends every start",
        Schedule(Setting(), (THREE, go(0, 3, at=9, then=("crash",)), ("tear", 0, "sources/0/0", False))),
    ),
    (
        "quarantine-ahead",
        "killed after the quarantine's commit, and the checkpoint put back from before that batch: it is planned anew with other ranges, "
        "every start ends as BATCH_DIFFERS, whose remedy names no command",
        Schedule(Setting(), (POISON, go(0, 5), ("kill", 0), ("produce", 0, ((7, 0, "good"),)), ("tear", 0, "offsets-0", True))),
    ),
    (
        "left-out-since",
        "a batch of another checkpoint that a RESTORE has left out: preflight starts, the run stops itself (TABLE_OWNED), again and again",
        Schedule(Setting(), (("rebase", 0, "table", True, (), 0, ()), THREE, go(0, 6, place=1), ("kill", 0), ("restore", 0, 1, False))),
    ),
    (
        "left-out-since",
        "two drivers of one checkpoint without locks: one skips a batch of the other that a RESTORE has left out",
        Schedule(
            SMALL,
            (
                THREE,
                go(0, 6, bypass=True),
                go(1, 1, bypass=True),
                go(0, 7, bypass=True),
                ("restore", 0, 1, False),
                go(1, 2, bypass=True),
            ),
        ),
    ),
    (
        "skipped-unseen",
        "target and ledger restored to the same earlier state: the ledger's pair is higher than what is to be appended, Delta skips it, "
        "and every start ends as a bug of ours (COMMIT_MISSING, exit 70) that names no remedy",
        Schedule(Setting(limit=1, ledger_every=2), (THREE, go(0, 14), ("restore", 2, 1, False), ("restore", 0, 1, False))),
    ),
    (
        "skipped-unseen",
        "killed after the quarantine's commit, which is then restored and cleaned up: the same",
        Schedule(Setting(), (POISON, go(0, 5), ("kill", 0), ("restore", 1, 1, False), ("clean", 1, 0))),
    ),
    (
        "binding-lost",
        "binding.json is missing and the topic was made again: the topic id in the table's own commits is not compared",
        Schedule(
            Setting(),
            (THREE, go(0, 9), ("recreate",), ("kill", 0), THREE, ("tear", 0, "oncelake/binding.json", True)),
        ),
    ),
    (
        "abandoned-epoch",
        "a rebase of a table without batches is cut off before its last rename: the next start begins anew beside it, and a later rebase "
        "takes the baseline that never came to be for where the table ends",
        Schedule(
            Setting(),
            (THREE, ("rebase", 0, "latest", False, (), 12, ("crash",)), go(0, 9), ("kill", 0), ("restore", 0, 1, False)),
        ),
    ),
    (
        "slipped-in",
        "a RESTORE between the last look at the table and the MERGE: the next start refuses, and the rebase that it names begins where "
        "the batch that slipped in ends, not where the batches without a hole do",
        Schedule(SMALL, (THREE, go(0, 18), go(0, 2, at=1, then=("restore", 0, 1, False)))),
    ),
    (
        "slipped-in",
        "an overwrite there: the batch stands alone in the table, and the next start takes all before it for written",
        Schedule(SMALL, (THREE, go(0, 9), go(0, 4, at=2, then=("replace", 0, True)))),
    ),
    (
        "slipped-in",
        "a RESTORE there under a rebased checkpoint that reads again what the RESTORE takes: it counts as replayed and is gone, until the "
        "next rebase begins at the hole",
        Schedule(
            SMALL,
            (
                ("produce", 0, ((6, 0, "good"), (7, 0, "good"))),
                go(0, 20),
                ("kill", 0),
                ("rebase", 0, "earliest", False, (0,), 0, ()),
                go(0, 6, at=3, then=("restore", 0, 2, False)),
            ),
        ),
    ),
    (
        "dropped-at-work",
        "two first starts without locks, and the target dropped between them: the second makes it anew and binds the checkpoint to it, "
        "the first goes on in it as if it were its own",
        Schedule(
            Setting(),
            (
                ("produce", 0, ((6, 0, "good"),)),
                go(0, 1, bypass=True),
                go(1, 1, bypass=True),
                go(0, 5, bypass=True),
                ("drop", 0),
                go(1, 1, bypass=True),
                ("produce", 0, ((7, 0, "good"),)),
                go(0, 7, bypass=True),
            ),
        ),
    ),
    (
        "quarantine-cleaned-up",
        "the log of the quarantine is cleaned up, then it is replaced: the commits that were left out are not in its log",
        Schedule(Setting(), (POISON, go(0, 5), POISON, go(0, 7), ("clean", 1, 0), ("replace", 1, False))),
    ),
    (
        "quarantine-cleaned-up",
        "the quarantine is restored to a version that Delta has cleaned up: its pairs, which a RESTORE keeps, were taken for proof",
        Schedule(Setting(), (POISON, go(0, 6), ("restore", 1, 1, False), ("clean", 1, 0))),
    ),
    (
        "quarantine-cleaned-up",
        "the quarantine is overwritten, then the log of the target cleaned up, before the ledger knows of the batch",
        Schedule(
            Setting(partitions=2, limit=1, ledger_every=50),
            (("produce", 0, ((6, 0, "poison"), (7, 0, "good"))), go(0, 13), ("replace", 1, True), ("clean", 0, 0)),
        ),
    ),
    (
        "copy-of-between",
        "a backup of the quarantine, made while the last run was at work, is put back: it is newer than what that run's start had seen, "
        "and nothing in its log was left out",
        Schedule(Setting(), (POISON, go(0, 8), POISON, go(0, 8), POISON, go(0, 8), ("stop", 0), ("copy", 1, 1))),
    ),
    (
        "gap-unsaid",
        "the lake is deleted and its first records expire: nothing is left that tells of batches, and a rebase to the table, as the error "
        "says, begins behind them without a word and without a gap in the ledger",
        Schedule(Setting(), (THREE, go(0, 12), ("stop", 0), ("drop", 0), ("drop", 1), ("drop", 2), ("expire", 0, 2))),
    ),
    (
        "gap-unsaid",
        "killed before the ledger knew of the first batch, the target restored to before it: the same",
        Schedule(Setting(), (THREE, go(0, 6), ("kill", 0), ("restore", 0, 1, False), ("expire", 0, 2))),
    ),
    (
        "gap-unsaid",
        "checkpoint and ledger are gone, the log was cleaned up, and records expire that were not read: only the pairs tell of batches",
        Schedule(
            Setting(),
            (
                THREE,
                go(0, 12),
                ("stop", 0),
                ("optimize",),
                ("delete", 6),
                ("clean", 0, 0),
                ("drop", 2),
                ("lose", 0),
                ("produce", 0, ((5, 0, "good"),)),
                ("expire", 0, 4),
                ("produce", 0, ((4, 0, "good"),)),
            ),
        ),
    ),
)


@pytest.mark.parametrize("schedule", [pytest.param(each, id=f"{number}-{name}") for number, (name, _, each) in enumerate(MENDED)])
def test_no_promise_is_broken_in_what_was_mended(schedule: Schedule) -> None:
    assert play(schedule) is None


def test_what_a_rebase_was_told_to_pass_over_is_accepted_also_when_it_is_cut_off_and_finished_by_the_next() -> None:
    """The word was given; cut off before its checkpoint was prepared it has done nothing, and the quarantine's record comes back."""
    for at in range(1, 15):
        cut_off = ("rebase", 0, "latest", True, (), at, ("crash",))
        assert play(Schedule(Setting(), (POISON, go(0, 3), ("stop", 0), ("drop", 1), cut_off))) is None, at


def test_a_gap_before_the_first_batch_was_written_is_recorded_too() -> None:
    """Batch 0 was planned and cut off, and what it was to read expires: RECORDS_EXPIRED says that the gap is recorded."""
    assert play(Schedule(Setting(), (THREE, go(0, 4), ("kill", 0), ("expire", 0, 2)))) is None
    assert judged().truth.recorded == {("T0", 0, 0, 2)}


@pytest.mark.parametrize(("name", "what", "schedule"), FOUND, ids=[f"{number}-{name}" for number, (name, _, _) in enumerate(FOUND)])
def test_what_is_known_is_still_so_and_told_from_what_is_new(name: str, what: str, schedule: Schedule) -> None:
    violation = play(schedule)
    assert violation is not None, f"mended? Then its line in tests/model/known.py and here can go: {what}"
    assert known(judged(), violation) == name


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(each, id=f"{number}-{name}", marks=pytest.mark.xfail(strict=True, reason=what))
        for number, (name, what, each) in enumerate(FOUND)
    ],
)
def test_no_promise_is_broken_in_what_was_found(schedule: Schedule) -> None:
    assert play(schedule) is None


def test_every_known_finding_has_a_schedule() -> None:
    assert {each.name for each in KNOWN} == {name for name, _, _ in FOUND}
