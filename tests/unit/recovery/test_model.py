"""Start, fence, seek and recovery under random and named schedules, and proof that the model can fail (docs/explanation/model.md)."""

from __future__ import annotations

import inspect
from collections import Counter

import pytest

from ingest.recovery import refusals
from tests.model.explore import explore
from tests.model.mutants import BUGS, Mutant
from tests.model.regressions import FLAWS, FORMER, STARTS, STATEMENTS, ZOMBIES, until
from tests.model.schedule import HARMS, REMEDIES, Schedule, play, shrunk, walk
from tests.model.world import Setting, World

SEED = 77_000_000
SCHEDULES = 2000
# The model must find each mutant within this many schedules.
MUTANT_SCHEDULES_MAX = 500


def test_no_guarantee_is_broken_in_two_thousand_random_schedules() -> None:
    """I1 to I8."""
    for number in range(SCHEDULES):
        schedule, _, violation = walk(SEED + number)
        if violation is not None:
            pytest.fail(f"walk({SEED + number}): {violation}\n{shrunk(schedule, violation.promise)}")


NAMED = {**STARTS, **FORMER, **FLAWS}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_schedule_loses_and_duplicates_nothing(name: str) -> None:
    """Some of them once broke this design, until it was fixed."""
    assert play(NAMED[name])[1] is None


def test_an_earlier_epoch_that_continues_at_any_moment_of_a_later_one_does_no_harm() -> None:
    """Each statement of a driver, about to start or running, against each state of another start (I8)."""
    broken = {name: str(violation) for name, schedule in ZOMBIES.items() if (violation := play(schedule)[1]) is not None}
    assert not broken


def test_a_driver_pauses_at_the_statement_that_the_schedule_names() -> None:
    for before, statement in STATEMENTS:
        for at in (f"{statement} next", f"{statement} at work"):
            world = World(Setting())
            for op in (*before, until(0, at)):
                world.apply(op)
            assert world.drivers[0].place == at


def test_a_fenced_driver_reports_it_and_a_later_one_reads_what_it_did_not_commit() -> None:
    world, violation = play(ZOMBIES["late batch target next, 4, another has read everything"])
    assert violation is None and world.refused == ["FENCED"]


def test_a_replayed_schedule_gives_the_same_result() -> None:
    for number in range(100):
        schedule, _, violation = walk(SEED + number)
        assert str(play(schedule)[1]) == str(violation)
        assert walk(SEED + number)[0] == schedule


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_model_finds_each_mutant(bug: Mutant) -> None:
    """The model can fail: each bug breaks a guarantee within 500 schedules. Without the bug, the same schedule breaks none."""
    for number in range(MUTANT_SCHEDULES_MAX):
        with bug.in_place():
            schedule, _, violation = walk(SEED + number, bug.mutations, bug.begin)
        if violation is not None and play(Schedule(schedule.setting, schedule.ops))[1] is None:
            return
    pytest.fail(f"{bug.name}: not found in {MUTANT_SCHEDULES_MAX} schedules")


def test_a_failing_schedule_is_reduced_to_a_few_operations() -> None:
    bug = next(bug for bug in BUGS if bug.name == "quarantine after target")
    schedule, violation = next((s, v) for n in range(MUTANT_SCHEDULES_MAX) for s, _, v in [walk(SEED + n, bug.mutations)] if v is not None)
    small = shrunk(schedule, violation.promise)
    assert len(small.ops) <= min(4, len(schedule.ops))
    again = play(small)[1]
    assert again is not None and again.promise == violation.promise


def test_each_remedy_belongs_to_an_existing_refusal() -> None:
    source = inspect.getsource(refusals)
    assert all(f'"{code}"' in source for code in REMEDIES)


def test_random_walks_use_every_operation_of_the_model() -> None:
    done = Counter(op[0] for number in range(600) for op in walk(SEED + number)[0].ops)
    assert set(done) == {*HARMS, "produce", "go", "seek"}


def test_explore_plays_and_counts_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(77, range(20), 0)
    assert explored.schedules == 20 and explored.operations > 100
    assert capsys.readouterr().out.count("schedule ") == sum(explored.found.values())
