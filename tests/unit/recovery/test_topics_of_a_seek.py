"""A seek of a table that reads several topics: each aim, gap and re-read belongs to a topic (I6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingest.kafka.intervals import Intervals
from ingest.kafka.offsets import OffsetRange, Partition
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.recovery.seek_offsets import Aim, plan
from ingest.recovery.start_state import StartState
from ingest.runtime.errors import IngestError, InvalidInput
from ingest.verify.coverage import Coverage
from tests.unit.recovery.test_decision import BROKER
from tests.unit.recovery.test_seek_offsets import EARLIEST, LATEST, NOTHING_READ, TABLE, parsed
from tests.unit.recovery.test_topics_of_a_start import OTHER, REFUNDS, RETURNS, state

pytestmark = pytest.mark.unit

WHOLE = Coverage(
    {(0, 0): 0, (0, 1): 3, (1, 0): 2},
    {(0, 0): Intervals.of([(0, 20)]), (0, 1): Intervals.of([(3, 7)]), (1, 0): Intervals.of([(2, 5)])},
    {(0, 0): 20, (0, 1): 7, (1, 0): 5},
    known=True,
)
BOTH = state(BROKER, OTHER)
AGAIN = replace(OTHER, topic=replace(RETURNS, id="new"))
RECREATED = state(BROKER, AGAIN)


def at(*offsets: tuple[str, int, int]) -> Aim:
    return Aim("offsets", tuple(((topic, partition), offset) for topic, partition, offset in offsets))


ORDERS_ALONE = Coverage(
    {of: begin for of, begin in WHOLE.begins.items() if of[0] == 0},
    {of: whole for of, whole in WHOLE.whole.items() if of[0] == 0},
    {of: end for of, end in WHOLE.ends.items() if of[0] == 0},
    known=True,
)


def starts(state: StartState, aim: Aim) -> dict[Partition, int]:
    return {**plan(state, aim, WHOLE, accept_gap=False).starts}


def test_offsets_are_aimed_by_topic_and_all_other_partitions_are_sought_to_table() -> None:
    assert starts(BOTH, at(("returns", 0, 3))) == {(0, 0): 20, (0, 1): 7, (1, 0): 3}
    assert starts(BOTH, at(("orders", 0, 5), ("returns", 0, 4))) == {(0, 0): 5, (0, 1): 7, (1, 0): 4}


@pytest.mark.parametrize(
    ("aim", "found"),
    [
        (at(("", 0, 3)), "--to names no topic, and the contract names several"),
        (at(("refunds", 0, 3)), "the contract names no topic 'refunds'"),
        (at(("returns", 1, 3)), "topic returns has no partition 1"),
        (at(("returns", 0, 10)), r"partition 0 of topic returns contains \[2, 9\), and 10 is not in it"),
    ],
)
def test_an_aim_that_is_no_place_in_a_topic_is_refused_with_the_bounds_of_all(aim: Aim, found: str) -> None:
    with pytest.raises(InvalidInput, match=rf"OFFSETS_INVALID.*{found}.*orders/0:0\.\.25, orders/1:3\.\.7, returns/0:2\.\.9"):
        plan(BOTH, aim, WHOLE, accept_gap=True)


def test_gaps_and_what_is_read_again_belong_to_a_topic_and_the_refusal_names_it() -> None:
    latest = plan(BOTH, LATEST, WHOLE, accept_gap=True)
    assert latest.gaps == (OffsetRange(0, 20, 25), OffsetRange(0, 5, 9, source=1)) and latest.again == ()
    earliest = plan(BOTH, EARLIEST, WHOLE, accept_gap=False)
    assert earliest.again == (OffsetRange(0, 0, 20), OffsetRange(1, 3, 7), OffsetRange(0, 2, 5, source=1)) and earliest.gaps == ()
    with pytest.raises(
        IngestError, match=r"GAP_NOT_ACCEPTED.*partition 0 of topic orders \[20, 25\), partition 0 of topic returns \[5, 9\): 9 offsets"
    ):
        plan(BOTH, LATEST, WHOLE, accept_gap=False)


@pytest.mark.parametrize("aim", [TABLE, EARLIEST, LATEST, at(("orders", 0, 9), ("orders", 1, 7))])
def test_a_seek_goes_on_without_a_topic_that_left_while_a_start_is_refused(aim: Aim) -> None:
    left = state(BROKER)
    planned = plan(left, aim, ORDERS_ALONE, accept_gap=True)
    assert {*planned.starts} == {(0, 0), (0, 1)} and planned.topics.sources == (BROKER.topic, RETURNS)
    if aim is TABLE:
        assert (planned.starts, planned.gaps, planned.again) == ({(0, 0): 20, (0, 1): 7}, (), ())


def test_a_seek_is_refused_if_no_topic_that_was_read_is_left() -> None:
    for aim in (TABLE, EARLIEST):
        with pytest.raises(IngestError, match=r"TOPIC_CHANGED.*topic orders.*now names topic refunds"):
            plan(state(TopicState(REFUNDS, {0: (0, 1)})), aim, NOTHING_READ, accept_gap=True)


def test_a_topic_that_joins_is_read_from_its_first_record_and_what_a_seek_skips_is_a_gap() -> None:
    """Also what Kafka has expired: a copy that was put in the table's place may have forgotten that the topic was read."""
    joining = state(BROKER, OTHER, TopicState(REFUNDS, {0: (0, 9)}))
    for aim in (TABLE, at(("orders", 0, 20)), at(("refunds", 0, 0))):
        assert starts(joining, aim) == {(0, 0): 20, (0, 1): 7, (1, 0): 5, (2, 0): 0}
    assert plan(joining, at(("refunds", 0, 6)), WHOLE, accept_gap=True).gaps == (OffsetRange(0, 0, 6, source=2),)
    expired = state(BROKER, OTHER, TopicState(REFUNDS, {0: (4, 9)}))
    assert plan(expired, TABLE, WHOLE, accept_gap=True).gaps == (OffsetRange(0, 0, 4, source=2),)


def test_a_topic_that_comes_back_goes_on_where_the_table_lacks_its_records() -> None:
    """What Kafka has expired meanwhile is a gap."""
    back = state(BROKER, OTHER, ends={(0, 0): 20, (0, 1): 7})
    assert starts(back, TABLE) == {(0, 0): 20, (0, 1): 7, (1, 0): 5}
    alone = plan(state(BROKER, ends={(1, 0): 5}), TABLE, ORDERS_ALONE, accept_gap=False)
    assert alone.starts == {(0, 0): 20, (0, 1): 7}, "also in the place of the one that the newest epoch has read"
    with pytest.raises(IngestError, match=r"GAP_NOT_ACCEPTED.*partition 0 of topic returns \[5, 8\)"):
        plan(state(BROKER, replace(OTHER, bounds={0: (8, 9)}), ends={(0, 0): 20, (0, 1): 7}), TABLE, WHOLE, accept_gap=False)


@pytest.mark.parametrize("aim", [EARLIEST, at(("returns", 0, 2))])
def test_of_two_topics_the_recreated_one_is_read_under_a_new_number_from_where_the_user_says(aim: Aim) -> None:
    """Records that it has already expired are a gap, as those of a recreated topic that is the only one."""
    planned = plan(RECREATED, aim, ORDERS_ALONE, accept_gap=True)
    assert planned.starts == {(0, 0): 0 if aim is EARLIEST else 20, (0, 1): 3 if aim is EARLIEST else 7, (2, 0): 2}
    assert planned.topics.sources == (BROKER.topic, RETURNS, AGAIN.topic)
    assert planned.gaps == (OffsetRange(0, 0, 2, source=2),)
    with pytest.raises(IngestError, match=r"GAP_NOT_ACCEPTED.*partition 0 of topic returns \[0, 2\)"):
        plan(RECREATED, aim, ORDERS_ALONE, accept_gap=False)


@pytest.mark.parametrize("aim", [TABLE, at(("orders", 0, 9)), at(("orders", 0, 9), ("orders", 1, 7))])
def test_a_seek_that_does_not_say_where_the_recreated_topic_starts_is_refused_by_its_name(aim: Aim) -> None:
    with pytest.raises(IngestError, match=r"TOPIC_RECREATED.*was read from topic returns with id returns-id"):
        plan(RECREATED, aim, ORDERS_ALONE, accept_gap=True)


def test_if_ids_cannot_be_compared_a_seek_to_table_goes_on_with_the_topic_of_the_name() -> None:
    elsewhere = state(BROKER, replace(OTHER, topic=TopicId("returns", "", "other")))
    planned = plan(elsewhere, TABLE, WHOLE, accept_gap=False)
    assert planned.starts == {(0, 0): 20, (0, 1): 7, (1, 0): 5}
    assert planned.topics.sources == (BROKER.topic, replace(RETURNS, cluster="other"))


@pytest.mark.parametrize(
    ("text", "aim"),
    [
        ("orders/0:5,returns/1:3", at(("orders", 0, 5), ("returns", 1, 3))),
        ("0:5", at(("", 0, 5))),
        ("2026-11-21T08:00Z", at(("orders", 0, 4), ("orders", 1, 7), ("returns", 0, 4), ("returns", 1, 7))),
    ],
)
def test_an_aim_of_several_topics_is_parsed(text: str, aim: Aim, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed(text, monkeypatch, {0: 4, 1: None}, names=("orders", "returns"))[0] == aim
