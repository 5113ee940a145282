"""The commit protocol under a few thousand random schedules, the model's own ability to fail, and what it has found (docs/model.md)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from ingest import faults
from ingest.errors import IngestError
from ingest.prove.balance import check
from ingest.stream import batch, commit
from ingest.stream.binding import read_binding
from ingest.stream.contract_kept import CONTRACT_FILE
from ingest.stream.offsets import CheckpointFiles
from ingest.stream.rebase_plan import Aim
from tests.model import driver
from tests.model.engine import Merge, ledger_rows
from tests.model.found import FOUND, MENDED, POISON, THREE, go
from tests.model.known import KNOWN, known
from tests.model.operator import ModelRebaser
from tests.model.planted import BUGS, Bug
from tests.model.schedule import Schedule, engine_connected, judged, play, shrunk, to_rest, walk, world_after
from tests.model.world import HOME, Op, Setting

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


@pytest.mark.parametrize("schedule", [pytest.param(each, id=f"{number}-{name}") for number, (name, _, each) in enumerate(MENDED)])
def test_no_promise_is_broken_in_what_was_mended(schedule: Schedule) -> None:
    assert play(schedule) is None


def test_what_a_rebase_was_told_to_pass_over_is_accepted_also_when_it_is_cut_off_and_finished_by_the_next() -> None:
    """The word was given; cut off before its checkpoint was prepared it has done nothing, and the quarantine's record comes back."""
    for at in range(1, 15):
        cut_off = ("rebase", 0, "latest", True, (), at, ("crash",))
        assert play(Schedule(Setting(), (POISON, go(0, 3), ("stop", 0), ("drop", 1), cut_off))) is None, at


@pytest.mark.parametrize("harm", [("replace", 1, False), ("restore", 1, 1, False), ("drop", 1), ("restore", 0, 1, False)], ids=str)
def test_what_happens_to_a_table_while_a_rebase_is_at_work_is_not_taken_for_accepted(harm: Op) -> None:
    """I5, I6: at each of its changes of a file or table."""
    before: tuple[Op, ...] = (THREE, POISON, go(0, 20), POISON, go(0, 20), ("stop", 0))
    for at in range(1, 16):
        assert play(Schedule(Setting(), (*before, ("rebase", 0, "table", False, (), at, harm)))) is None, at


HARMS: tuple[Op, ...] = (("restore", 0, 1, False), ("restore", 0, 2, True), ("replace", 0, True), ("drop", 0), ("restore", 1, 1, False))


@pytest.mark.parametrize("harm", [*HARMS, ("optimize",), ("delete", 6)], ids=str)
def test_what_happens_between_the_plan_of_a_rebase_and_its_making_is_not_taken_for_planned(harm: Op) -> None:
    """I6: the tables are made sure of in between, which takes seconds."""
    world = world_after(THREE, POISON, go(0, 9), POISON, go(0, 20), ("stop", 0))
    rebaser = ModelRebaser(world, HOME)
    planned = rebaser.plan(Aim("table"), accept_gap=False)
    world.apply(harm)
    rebaser.publish(planned)
    to_rest(world)


@pytest.mark.parametrize("at", ["rebase_aside", "rebase_ledger"])
def test_a_start_that_is_refused_between_a_rebases_two_renames_is_not_in_its_way(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: CHECKPOINT_LOST leaves the lock of its checkpoint, where no lock beside the tables keeps it away."""
    world = world_after(THREE, go(0, 9), ("stop", 0))

    def refused(point: str, *_: object) -> None:
        if point == at:
            world.files.put(f"{HOME.state}/lock", b"{}")

    monkeypatch.setattr(faults, "at", refused)
    rebaser = ModelRebaser(world, HOME)
    done = rebaser.publish(rebaser.plan(Aim("table"), accept_gap=False))
    assert CheckpointFiles(world.files, HOME.checkpoint).query_id() == done.query_id
    monkeypatch.undo()
    to_rest(world)


def test_a_topic_id_that_an_upgraded_broker_begins_to_tell_is_remembered_and_no_other_topics() -> None:
    """I6: the guard is on from then on; without it a topic made again would never be noticed."""
    world = world_after()
    world.topic.id = ""
    for op in (THREE, go(0, 20), ("stop", 0)):
        world.apply(op)
    assert world.error is None and len(world.tables[HOME.target].newest.rows) == 3
    world.topic.id = "T9"
    world.truth.origins["T9", 0] = 3  # the truth takes it for another one, which begins here
    for op in (("produce", 0, ((5, 0, "good"),)), go(0, 2), ("kill", 0), go(0, 20), ("stop", 0), go(0, 20), ("stop", 0)):
        world.apply(op)
        assert world.error is None, world.error
    bound = read_binding(world.files, HOME.state)
    assert bound is not None and bound.topic_id == "T9" and len(world.tables[HOME.target].newest.rows) == 4
    for op in (("recreate",), THREE, go(0, 20)):
        world.apply(op)
    assert isinstance(world.error, IngestError) and world.error.code == "TOPIC_RECREATED"


@pytest.mark.parametrize("lost", [None, "before the second rebase", "after it"])
def test_gaps_of_all_epochs_outlive_the_ledger(lost: str | None) -> None:
    """I4: where the target's log still has all batches, a ledger that was moved away is made again whole, and balances; each gap once."""
    more: Op = ("produce", 0, ((5, 0, "good"),))
    jump: Op = ("rebase", 0, "latest", True, (), 0, ())
    drop: tuple[Op, ...] = (("drop", 2),)
    before, after = (drop if lost == name else () for name in ("before the second rebase", "after it"))
    run = (go(0, 20), ("stop", 0))
    world = world_after(THREE, *run, THREE, jump, more, *run, more, *before, jump, *after, more, *run)
    assert world.error is None
    rows = ledger_rows(world.tables[HOME.ledger])
    batches, epochs, accepted = ([row for row in rows if row.kind == kind] for kind in ("batch", "rebase", "gap_accepted"))
    assert sorted((row.epoch, row.start_offset, row.end_offset) for row in accepted) == [(1, 3, 6), (2, 7, 8)]
    assert check(batches, [row for row in epochs if row.partition >= 0], accepted) == []


def test_what_another_rebase_tells_of_an_epoch_is_not_taken_for_how_it_began() -> None:
    """I4: the ledger was lost, and made again by another checkpoint's rebase, which knows of this one's what the target's log tells."""
    more: Op = ("produce", 0, ((5, 0, "good"),))
    run = (go(0, 20), ("stop", 0))
    jump, elsewhere = (("rebase", place, kind, True, (), 0, ()) for place, kind in ((0, "latest"), (1, "table")))
    world = world_after(THREE, *run, THREE, jump, more, *run, ("drop", 2), elsewhere, more, *run)
    assert world.error is None
    rows = ledger_rows(world.tables[HOME.ledger])
    assert [(row.epoch, row.start_offset, row.end_offset) for row in rows if row.kind == "gap_accepted"] == [(1, 3, 6)]
    assert [row.start_offset for row in rows if row.kind == "rebase" and (row.epoch, row.batch_id) == (1, 0)] == [6]


def test_a_gap_that_is_not_recorded_is_found_also_where_two_rebases_have_read_nothing() -> None:
    """I4: the first one tells where the table begins; what the second jumps over counts by the ledger alone."""
    first, second = (("rebase", 0, kind, accept, (), 0, ()) for kind, accept in (("earliest", False), ("table", True)))
    schedule = Schedule(Setting(), (THREE, first, ("expire", 0, 2), second, go(0, 40)))
    assert play(schedule) is None
    (bug,) = (each for each in BUGS if each.name == "a gap not recorded")
    with bug.in_place():
        violation = play(schedule)
    assert violation is not None and violation.promise == "I4"


@pytest.mark.parametrize("conflict", commit.CONFLICTS, ids=lambda kind: kind.__name__)
def test_conflicts_are_tried_again_a_few_times_and_then_end_the_run_with_nothing_written(
    conflict: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I1: bounded, and the next run does the batch."""
    tries: list[str] = []

    def conflicted(_: Merge) -> None:
        tries.append("again")
        raise conflict("somebody else was quicker")

    monkeypatch.setattr(Merge, "execute", conflicted)
    world = world_after(THREE, go(0, 40))
    assert isinstance(world.error, conflict) and len(tries) == commit.TRIES_MAX
    assert world.tables[HOME.target].newest.rows == {}
    monkeypatch.undo()
    to_rest(world)
    assert sorted(world.tables[HOME.target].newest.rows) == [6, 7, 8]


@pytest.mark.parametrize("dropped", [False, True])
def test_a_rebase_takes_the_contract_in_force_along_unless_it_makes_the_table_itself(dropped: bool) -> None:
    """I9: the event id of a table that was deleted binds no table that is made anew under another contract."""
    harm: tuple[Op, ...] = (("drop", 0),) if dropped else ()
    world = world_after(THREE, go(0, 9), ("stop", 0), *harm, ("rebase", 0, "table", False, (), 0, ()))
    assert world.error is None and HOME.target in world.tables
    assert (world.files.read(f"{HOME.state}/{CONTRACT_FILE}") is None) == dropped


@pytest.mark.parametrize("rebased", [False, True])
def test_a_batch_that_was_cut_off_is_read_under_a_corrected_contract_only_after_a_rebase(rebased: bool) -> None:
    """I9, and what QUARANTINE_LIMIT says: nothing of the batch was written when it came."""
    mend: tuple[Op, ...] = (("rebase", 0, "table", False, (), 0, ()),) if rebased else ()
    begun: tuple[Op, ...] = (("contract", True), ("produce", 0, ((1, 11, "odd"),)), go(0, 4), ("kill", 0), ("contract", False))
    assert play(Schedule(Setting(), (*begun, *mend))) is None
    assert (1 in judged().tables[HOME.target].newest.rows) == rebased


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


def test_two_drivers_without_locks_append_each_batch_to_the_ledger_once() -> None:
    """I7: both find the first batch pending; the pair of the one that also has the next is higher, and Delta would take it again."""
    first: Op = ("produce", 0, ((6, 0, "good"), (4, 40, "good"), (5, 50, "good"), (9, 0, "good")))
    again: Op = ("produce", 0, ((6, 0, "good"),))
    other = go(1, 3, bypass=True)
    ops = (first, again, go(0, 2), go(0, 2), go(0, 9, at=7, then=other), ("drop", 1), go(0, 5))
    assert play(Schedule(Setting(partitions=2, ledger_every=50), ops)) is None
    rows = ledger_rows(judged().tables[HOME.ledger])
    assert check([row for row in rows if row.kind == "batch"], [row for row in rows if row.kind == "rebase"]) == []
