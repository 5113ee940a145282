"""Where a seek starts, which offsets it skips, and which it re-reads (I6, docs/reference/guarantees.md)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.cli.seek import _do, parse_aim
from ingest.delta import contract_change
from ingest.delta.batch_commit import BatchId
from ingest.delta.posting import Key, Posting, Sums
from ingest.kafka import topic as topics
from ingest.kafka.intervals import Intervals
from ingest.kafka.offsets import OffsetRange, Partition
from ingest.kafka.topic import Topic
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.recovery.seek_offsets import NOT_MENDED, Aim, Seeking, SeekPlan, plan
from ingest.recovery.start_state import StartState
from ingest.runtime.errors import IngestError, InvalidInput
from ingest.verify.coverage import Coverage
from tests.unit.recovery.engine_scene import Scene
from tests.unit.recovery.test_decision import BLANK, CASES, GOOD, NOTHING, TOPIC
from tests.unit.verify.proof_lake import CONTRACT
from tests.unit.verify.proof_lake import TOPIC as SCENES_TOPIC

NOTHING_READ = Coverage({}, {}, {}, known=True)
ONLY = (0, 0)
TABLE, EARLIEST, LATEST = Aim("table"), Aim("earliest"), Aim("latest")


def covered(begin: int, end: int, *whole: tuple[int, int], known: bool = True) -> Coverage:
    """Partition 0 was read from `begin` to `end`; the ranges `whole` are complete."""
    return Coverage({ONLY: begin}, {ONLY: Intervals.of(whole)}, {ONLY: end}, known)


def state(first: int = 0, end: int = 100, *, read: bool = True, topic: TopicId = TOPIC, decided: int | None = None) -> StartState:
    """A table that has read its only partition, 0, up to offset 20."""
    broker = (TopicState(topic, {0: (first, end)}, {0: decided} if decided is not None else {}),)
    if not read:
        return replace(NOTHING, target=BLANK, broker=broker)
    assert GOOD.target.newest is not None
    return replace(GOOD, target=replace(GOOD.target, newest=replace(GOOD.target.newest, ends={ONLY: 20})), broker=broker)


def at(offset: int) -> Aim:
    return Aim("offsets", ((("orders", 0), offset),))


def planned_as(starts: Mapping[Partition, int], gaps: tuple[OffsetRange, ...], again: tuple[OffsetRange, ...], of: StartState) -> SeekPlan:
    assert of.topics is not None
    return SeekPlan(starts, gaps, again, of.topics)


WHOLE = covered(0, 20, (0, 20))
HOLE = covered(0, 20, (0, 5), (8, 20))


@pytest.mark.parametrize(
    ("aim", "coverage", "start", "gap"),
    [
        (TABLE, WHOLE, 20, None),
        (TABLE, HOLE, 5, None),
        (TABLE, covered(7, 20, (7, 20)), 20, None),  # reading started at 7: earlier offsets are not the table's
        (TABLE, covered(7, 20), 7, None),
        (TABLE, covered(0, 40, (0, 40)), 40, None),  # a re-read has not reached the end of the earlier epochs yet
        (EARLIEST, WHOLE, 0, None),
        (LATEST, WHOLE, 100, (20, 100)),
        (LATEST, HOLE, 100, (5, 8)),
        (at(12), WHOLE, 12, None),
        (Aim("offsets", ((("", 0), 12),)), WHOLE, 12, None),  # of one topic the name may be left out
        (at(12), HOLE, 12, (5, 8)),
        (at(6), HOLE, 6, (5, 6)),
        (at(5), HOLE, 5, None),
        (at(3), covered(7, 20, (7, 20)), 3, None),
        (at(100), WHOLE, 100, (20, 100)),
    ],
)
def test_incomplete_offsets_before_the_start_are_a_gap(aim: Aim, coverage: Coverage, start: int, gap: tuple[int, int] | None) -> None:
    planned = plan(state(), aim, coverage, accept_gap=True)
    assert planned.starts == {ONLY: start}
    assert planned.gaps[:1] == ((OffsetRange(0, *gap),) if gap is not None else ())
    end = coverage.ends[ONLY]
    assert planned.again == ((OffsetRange(0, start, end),) if start < end else ())
    if gap is None:
        assert plan(state(), aim, coverage, accept_gap=False) == planned
    else:
        with pytest.raises(IngestError, match=rf"GAP_NOT_ACCEPTED.*partition 0 \[{gap[0]}, {gap[1]}\)"):
            plan(state(), aim, coverage, accept_gap=False)


def test_each_hole_that_a_seek_skips_is_a_separate_gap() -> None:
    planned = plan(state(), LATEST, HOLE, accept_gap=True)
    assert planned.gaps == (OffsetRange(0, 5, 8), OffsetRange(0, 20, 100))


def test_with_rows_of_unknown_batches_a_seek_to_table_reads_from_the_earliest_offset() -> None:
    """The table contains rows of batches that neither ledger nor log has."""
    assert plan(state(), TABLE, covered(0, 20, (0, 20), known=False), accept_gap=False).starts == {ONLY: 0}


def test_expired_records_are_a_gap_unless_the_table_has_them_all() -> None:
    """RECORDS_EXPIRED"""
    assert plan(state(first=25), TABLE, WHOLE, accept_gap=True) == planned_as({ONLY: 25}, (OffsetRange(0, 20, 25),), (), state(first=25))
    assert plan(state(first=15), EARLIEST, WHOLE, accept_gap=False) == planned_as(
        {ONLY: 15}, (), (OffsetRange(0, 15, 20),), state(first=15)
    )


def test_a_first_seek_accepts_no_gap() -> None:
    for aim, start in ((LATEST, 100), (EARLIEST, 30), (TABLE, 30), (at(50), 50)):
        first = state(30, read=False)
        assert plan(first, aim, NOTHING_READ, accept_gap=False) == planned_as({ONLY: start}, (), (), first)


def test_an_unread_partition_counts_from_0_and_an_unnamed_one_is_sought_to_table() -> None:
    both = replace(state(), broker=(TopicState(TOPIC, {0: (0, 100), 1: (3, 9)}),))
    planned = plan(both, at(12), WHOLE, accept_gap=True)
    assert (planned.starts, planned.gaps) == ({ONLY: 12, (0, 1): 3}, (OffsetRange(1, 0, 3),))


@pytest.mark.parametrize(
    ("aim", "found"), [(at(101), "101 is not in it"), (at(4), "4 is not in it"), (Aim("offsets", ((("orders", 3), 5),)), "no partition 3")]
)
def test_offsets_that_the_topic_does_not_contain_are_refused(aim: Aim, found: str) -> None:
    with pytest.raises(InvalidInput, match=rf"OFFSETS_INVALID.*{found}.*0:5\.\.100"):
        plan(state(first=5), aim, WHOLE, accept_gap=True)


def test_a_table_ahead_of_the_topic_is_broker_behind_and_not_invalid_offsets() -> None:
    """The newest batch is within the topic because a re-read is not finished."""
    with pytest.raises(IngestError, match=r"BROKER_BEHIND.*partition 0 ends at 30, but shop.orders continues at 40"):
        plan(state(end=30), TABLE, covered(0, 40, (0, 40)), accept_gap=True)


def test_no_seek_starts_after_the_start_of_an_open_transaction() -> None:
    """Instead of OFFSETS_UNDECIDED, the seek starts where the transaction starts."""
    for aim, start in ((LATEST, 60), (at(70), 60), (at(50), 50), (EARLIEST, 0), (TABLE, 20)):
        assert plan(state(decided=60), aim, WHOLE, accept_gap=True).starts == {ONLY: start}


def test_without_topic_ids_a_recreated_topic_is_behind_until_it_is_as_long_as_the_table() -> None:
    """Brokers before Kafka 2.8: it cannot be distinguished from a topic that lost records."""
    old = TopicId("orders", "", "cluster")

    def then(end: int) -> StartState:
        known = state(end=end, topic=old)
        assert known.target.newest is not None
        return replace(known, target=replace(known.target, newest=replace(known.target.newest, sources=(old,))))

    with pytest.raises(IngestError, match="BROKER_BEHIND"):
        plan(then(19), EARLIEST, WHOLE, accept_gap=True)
    assert plan(then(20), EARLIEST, WHOLE, accept_gap=True).starts == {ONLY: 0}
    with_epochs = replace(then(20), taken_back={ONLY: (0, 20)})
    assert plan(with_epochs, EARLIEST, WHOLE, accept_gap=True).starts == {ONLY: 0}
    with pytest.raises(IngestError, match="LOG_TRUNCATED"):
        plan(with_epochs, TABLE, WHOLE, accept_gap=True)


def test_no_seek_of_the_same_topic_mends_a_log_that_lost_records() -> None:
    """Others have their offsets now, and what is stored at an offset is not read again."""
    for aim in (TABLE, EARLIEST, LATEST, at(15)):
        with pytest.raises(IngestError, match=r"LOG_TRUNCATED.*partition 0 \[15, 20\)"):
            plan(replace(state(), taken_back={ONLY: (15, 20)}), aim, WHOLE, accept_gap=True)


RECREATED = TopicId("orders", "new", "cluster")


@pytest.mark.parametrize("aim", [EARLIEST, LATEST, at(2)])
def test_a_recreated_topic_is_read_from_the_offsets_that_the_user_chooses(aim: Aim) -> None:
    """Offsets of the former topic do not count. Records that the new topic has already expired are a gap."""
    planned = plan(state(2, 9, topic=RECREATED), aim, NOTHING_READ, accept_gap=True)
    assert planned.again == () and planned.gaps == (OffsetRange(0, 0, planned.starts[1, 0], source=1),)


def test_a_seek_to_table_is_refused_for_a_recreated_topic() -> None:
    with pytest.raises(IngestError, match="TOPIC_RECREATED"):
        plan(state(topic=RECREATED), TABLE, NOTHING_READ, accept_gap=True)
    two = replace(state(topic=RECREATED), broker=(TopicState(RECREATED, {0: (0, 9), 1: (0, 9)}),))
    with pytest.raises(IngestError, match="TOPIC_RECREATED"):
        plan(two, at(2), NOTHING_READ, accept_gap=True)
    elsewhere = state(topic=TopicId("orders", "", "other"))  # no ids to compare: the user decides that it is the same topic
    assert plan(elsewhere, TABLE, WHOLE, accept_gap=False).starts == {ONLY: 20}


@pytest.mark.parametrize("case", [case for case, (_, code) in CASES.items() if code not in ("Start", "OFFSETS_UNDECIDED")])
def test_a_seek_fixes_only_the_refusals_that_name_it_as_the_fix(case: str) -> None:
    """I6: `--to earliest` fixes every refusal that a seek can fix."""
    change, code = CASES[case]
    changed = change(GOOD)
    if code in NOT_MENDED:
        with pytest.raises(IngestError, match=code):
            plan(changed, EARLIEST, WHOLE, accept_gap=True)
    else:
        assert changed.topics is not None
        assert plan(changed, EARLIEST, WHOLE, accept_gap=True).starts == changed.topics.firsts


def test_a_foreign_table_is_refused_even_if_the_ledger_knows_another_table_at_the_path() -> None:
    """After a DROP, another user created a table at this path: TABLE_REPLACED, and then TABLE_FOREIGN."""
    newest = GOOD.target.newest
    assert newest is not None
    theirs = replace(GOOD.target, txn=None, newest=replace(newest, snapshots=None, id=BatchId(3, 4)))
    with pytest.raises(IngestError, match="TABLE_FOREIGN"):
        plan(replace(GOOD, target=theirs), EARLIEST, NOTHING_READ, accept_gap=True)
    assert plan(replace(GOOD, target=replace(theirs, blank=True)), EARLIEST, NOTHING_READ, accept_gap=True).starts == {(0, 0): 0, (0, 1): 3}


def parsed(
    text: str, monkeypatch: pytest.MonkeyPatch, times: Mapping[int, int | None] | None = None, names: Sequence[str] = ("orders",)
) -> tuple[Aim, list[int]]:
    asked: list[int] = []

    def offsets_at(_: object, __: object, milliseconds: int) -> Mapping[int, int | None]:
        asked.append(milliseconds)
        return times or {}

    monkeypatch.setattr(topics, "offsets_at", offsets_at)
    monkeypatch.setattr(topics, "bounds", lambda *_: {0: (0, 9), 1: (0, 7)})
    kafka: Any = None
    return parse_aim(text, kafka, [Topic(name, "id", (0, 1)) for name in names]), asked


@pytest.mark.parametrize(
    ("text", "aim"),
    [
        ("table", TABLE),
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("0:12", at(12)),
        ("1:3,0:4", Aim("offsets", ((("orders", 1), 3), (("orders", 0), 4)))),
        ("orders/0:12", at(12)),
    ],
)
def test_an_aim_is_parsed(text: str, aim: Aim, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed(text, monkeypatch) == (aim, [])


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2026-11-21T08:00Z", 1795248000000),
        ("2026-11-21T08:00", 1795248000000),
        ("2026-11-21T09:00:00.5+01:00", 1795248000500),
        ("1969-12-31T23:59:59.999Z", 0),  # Kafka takes -1 for the end of the topic
    ],
)
def test_a_time_becomes_the_brokers_offset_or_the_end_if_no_record_is_that_late(
    text: str, milliseconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert parsed(text, monkeypatch, {0: 4, 1: None}) == (Aim("offsets", ((("orders", 0), 4), (("orders", 1), 7))), [milliseconds])
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0:",
        "0:-1",
        "a:b",
        "0:1;1:2",
        "0:²",
        "0:1,0:2",
        "yesterday",
        "2026-13-01",
        "TABLE",
        "/0:1",
        "a/b/0:1",
        "orders/0:1,0:2",
        "orders/0",
    ],
)
def test_an_aim_in_any_other_format_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="AIM_INVALID"):
        parsed(text, monkeypatch)


def test_a_seek_writes_off_what_is_missing_wherever_it_starts() -> None:
    """I4: what it does not read again is a gap that has to be accepted."""
    missing = (Posting(Key(1, 2, 0, 0), "write-off", target=Sums(-1, -5, 7)),)
    assert plan(state(), TABLE, replace(HOLE, written_off=missing), accept_gap=False).written_off == missing
    assert plan(state(), at(12), replace(HOLE, written_off=missing), accept_gap=True).written_off == missing
    with pytest.raises(IngestError, match="GAP_NOT_ACCEPTED"):
        plan(state(), at(12), replace(HOLE, written_off=missing), accept_gap=False)


def test_a_dry_run_is_refused_like_the_seek_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scene's target lacks columns of the contract."""
    scene = Scene(tmp_path)
    scene.first()
    scene.batch(0, 10, range(10))
    scene.keep()
    arguments = (CONTRACT, scene.places, lambda: (TopicState(SCENES_TOPIC, {0: (0, 12)}),), "", Seeking(EARLIEST, False, ""))
    with pytest.raises(IngestError, match="CONTRACT_CHANGED"):
        _do(*arguments, dry_run=True)
    monkeypatch.setattr(contract_change, "changes", lambda *_: [])
    planned, epoch, _ = _do(*arguments, dry_run=True)
    assert (planned.starts, epoch) == ({ONLY: 0}, None)
