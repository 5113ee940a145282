"""`ingest verify` under random schedules: it never says BALANCED over a loss (I4), which the model knows by its own truth."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.model.found import FOUND
from tests.model.proof import has_tables, lost, verified, without
from tests.model.schedule import Schedule, engine_connected, judged, play, walk
from tests.model.world import HOME

SEED = 78_000_000
SCHEDULES = 200


@pytest.fixture(autouse=True)
def connected() -> Iterator[None]:
    with engine_connected():
        yield


def test_what_balances_has_lost_nothing_and_no_row_can_be_taken_out_of_it() -> None:
    """Whatever was done to tables, checkpoint and topic before; also where VACUUM has left only the newest version's files."""
    balanced = 0
    for number in range(SCHEDULES):
        schedule, violation = walk(SEED + number)
        world = judged()
        if violation is not None or not has_tables(world):
            continue
        chosen = random.Random(number)
        for vacuumed in (False, True):
            if verified(world, vacuumed=vacuumed).findings:
                continue
            balanced += 1
            assert not lost(world), f"walk({SEED + number}) is said to balance\n{schedule}"
            for path in (HOME.target, HOME.quarantine):
                for key in chosen.sample(sorted(world.tables[path].newest.rows), min(1, len(world.tables[path].newest.rows))):
                    with without(world, path, key):  # in quarantine it may be one that a recorded gap accepts, or a former topic's
                        found = verified(world, vacuumed=vacuumed).findings or (path == HOME.quarantine and not lost(world))
                    assert found, f"walk({SEED + number}): {key} is gone from {path}, and it is said to balance\n{schedule}"
    assert balanced > SCHEDULES


@pytest.mark.parametrize(("name", "schedule"), [pytest.param(name, each, id=name) for name, _, each in FOUND])
def test_a_known_loss_that_the_run_does_not_see_is_found(name: str, schedule: Schedule) -> None:
    """But for the one of which no ledger row and no commit tells: docs/model.md says so."""
    assert play(schedule) is not None
    assert lost(judged())
    assert bool(verified(judged()).findings) == (name != "beside-untold")
