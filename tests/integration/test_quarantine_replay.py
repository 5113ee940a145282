"""Replay of quarantined records: accepted ones become rows once, refused ones stay, and every balance still holds (I3, I4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ingest.delta.delta_sql import DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.table_writer import SparkWriter, TableWriter
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.repair.quarantine_replay import replay_quarantine, try_replay, without_conflicts
from ingest.repair.quarantined import grouped
from ingest.repair.replayed import BY, Replayed
from ingest.repair.selection import Selection
from ingest.verify.verdict import Verified, verify
from tests.integration.desk import TOPIC_ID, Desk
from tests.integration.lane import order
from tests.integration.records import contract

pytestmark = pytest.mark.integration
MakeDesk = Callable[..., Desk]

RULE = {"rules": [{"name": "small", "check": "n < 100"}]}


def line(id: str, n: int) -> str:
    return order(id, n=n)


def broker(one: Desk) -> TopicState:
    return TopicState(TopicId(one.topic, TOPIC_ID), dict.fromkeys(one.ends, (0, one.far)))


def strict(desk: MakeDesk, *, partitions: int = 1) -> Desk:
    """A table whose contract refuses n from 100 on."""
    return desk({"n": "INT"}, partitions=partitions, **RULE)


def mended(one: Desk) -> None:
    """The contract without the rule, after the run has ended."""
    one.table.epoch.ledger.append()
    one.contract = contract({"n": "INT"})


@pytest.fixture(params=[True, False], ids=["direct", "spark"])
def by_workers(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def writer(one: Desk) -> TableWriter:
    return SparkWriter(one.session) if one.direct is None else DirectWriter(one.contract)


def replay(one: Desk, selection: Selection = Selection()) -> Replayed:
    return replay_quarantine(writer(one), one.contract, one.places, lambda: (broker(one),), without_conflicts(selection))


def verified(one: Desk) -> Verified:
    found = verify(DataFusion(), one.contract, one.places)
    assert not found.findings, "\n".join(map(str, found.findings))
    return found


def states(one: Desk) -> list[tuple[int, str, str]]:
    return [(row["offset"], row["state"], row["state_by"]) for row in one.quarantine()]


def test_accepted_records_become_rows_once_and_refused_ones_stay(desk: MakeDesk) -> None:
    one = strict(desk, partitions=2)
    one.batch(line("a", 1), line("b", 200), "{", line("c", 200), line("a", 200))
    mended(one)
    assert try_replay(writer(one), one.contract, one.places, lambda: (broker(one),), Selection()) == Replayed(
        4, 3, 0, {"malformed_json": 1}, 0
    )
    done = replay(one)
    assert (done.selected, done.inserted, done.duplicate, done.refused, done.epoch) == (4, 2, 1, {"malformed_json": 1}, 2)
    assert one.rows("id", "n", "_offset", "_epoch", "_batch") == [("a", 1, 0, 1, 2), ("b", 200, 1, 2, 1), ("c", 200, 3, 2, 1)]
    assert states(one) == [(1, "replayed", BY), (2, "open", "ingest run"), (3, "replayed", BY), (4, "open", "ingest run")], (
        "a duplicate is no row"
    )
    found = verified(one)
    assert (found.total.inserted, found.total.quarantined, found.total.replayed, found.target.found) == (1, 4, 2, 3)
    again = replay(one)
    assert (again.selected, again.inserted, again.duplicate, again.epoch) == (2, 0, 1, 3)
    assert len(one.rows("id")) == 3
    verified(one)


@pytest.mark.slow
def test_the_next_epoch_continues_at_the_end_of_the_table(desk: MakeDesk) -> None:
    one = strict(desk)
    one.batch(line("a", 1), line("b", 200))
    mended(one)
    replay(one)
    one.table = one.open()
    assert one.table.starts == {(0, 0): 2}
    one.batch(line("d", 4))
    one.table.epoch.ledger.append()
    assert [id for (id,) in one.rows("id")] == ["a", "b", "d"]
    verified(one)


@pytest.mark.slow
def test_a_conflicting_duplicate_is_replayed_only_by_name(desk: MakeDesk) -> None:
    one = strict(desk)
    one.batch(line("a", 1), line("a", 2))
    one.table.epoch.ledger.append()
    assert replay(one).selected == 0
    done = replay(one, Selection(reasons=("conflicting_duplicate",)))
    assert (done.selected, done.inserted, done.duplicate) == (1, 0, 1)
    assert one.rows("id", "n") == [("a", 1)]
    assert [state for _, state, _ in states(one)] == ["open"], "the other payload stays until somebody decides"
    verified(one)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["replay_target", "replay_marked"])
def test_a_replay_cut_off_after_its_commit_is_completed_by_the_next_start(
    desk: MakeDesk, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = strict(desk)
    one.batch(line("a", 1), line("b", 200), "{")
    mended(one)

    def at(reached: str, *_: object) -> None:
        if reached == point:
            raise Killed

    with monkeypatch.context() as killed, pytest.raises(Killed):
        killed.setattr("ingest.runtime.crash_points.at", at)
        replay(one)
    assert [id for (id,) in one.rows("id")] == ["a", "b"]
    one.table = one.open()
    assert [(offset, state) for offset, state, _ in states(one)] == [(1, "replayed"), (2, "open")]
    one.batch(line("d", 4))
    one.table.epoch.ledger.append()
    assert verified(one).total.replayed == 1
    assert replay(one).inserted == 0


@pytest.mark.slow
def test_a_restore_that_undoes_a_replay_is_found_and_mended_by_a_seek(desk: MakeDesk) -> None:
    one = strict(desk)
    one.batch(line("a", 1), line("b", 200))
    mended(one)
    before = one.log().newest()
    replay(one)
    one.session.sql(f"RESTORE TABLE delta.`{one.places.target}` TO VERSION AS OF {before}")
    codes = {each.code for each in verify(DataFusion(), one.contract, one.places).findings}
    assert "ROWS_DIFFER" in codes
    one.table = one.open(Seeking(Aim("table"), False, "--to table"))
    assert one.table.starts == {(0, 0): 1}, "the first offset of the missing rows"
    one.ends = {0: 1}
    one.batch(line("b", 200))
    one.table.epoch.ledger.append()
    assert [id for (id,) in one.rows("id")] == ["a", "b"]
    verified(one)


@pytest.mark.slow
def test_groups_count_by_reason_state_and_time(desk: MakeDesk) -> None:
    from datetime import UTC, datetime, timedelta

    from tests.integration.records import KAFKA_TIME

    one = strict(desk)
    one.batch(line("a", 200), "{", "{")
    every = grouped(DataFusion(), one.places, Selection())
    assert [(each["reason"], each["records"]) for each in every] == [("malformed_json", 2), (every[1]["reason"], 1)]
    assert every[0]["first"] == "2025-01-02T03:04:05.678Z"
    assert grouped(DataFusion(), one.places, Selection(since=KAFKA_TIME, until=KAFKA_TIME + timedelta(milliseconds=1))) == every
    assert grouped(DataFusion(), one.places, Selection(until=KAFKA_TIME)) == []
    assert grouped(DataFusion(), one.places, Selection(since=datetime(2026, 1, 1, tzinfo=UTC))) == []
    frame = one.session.read.format("delta").load(one.places.quarantine)
    assert frame.where(Selection(since=KAFKA_TIME, positions=(("", 0, 1, 2),)).for_spark).count() == 2
