"""A number means one topic for as long as the table exists (I6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.kafka.topic_state import TopicId, TopicState
from ingest.recovery.numbering import Numbered, numbered

pytestmark = pytest.mark.unit

ORDERS, RETURNS, REFUNDS = (TopicId(name, f"{name}-id", "c") for name in ("orders", "returns", "refunds"))
AGAIN = TopicId("orders", "another", "c")


def of(*topics: TopicId) -> list[TopicState]:
    return [TopicState(each, {0: (0, 9)}) for each in topics]


def numbers(found: Numbered) -> dict[str, int]:
    return {state.topic.name: number for number, state in found.states.items()}


def test_a_first_start_numbers_in_the_order_of_the_contract() -> None:
    found = numbered((), of(RETURNS, ORDERS))
    assert (found.sources, numbers(found)) == ((RETURNS, ORDERS), {"returns": 0, "orders": 1})


def test_recorded_topics_keep_their_numbers_in_any_order_and_one_that_joins_gets_the_next() -> None:
    found = numbered((ORDERS, RETURNS), of(REFUNDS, RETURNS, ORDERS))
    assert (found.sources, numbers(found)) == ((ORDERS, RETURNS, REFUNDS), {"refunds": 2, "returns": 1, "orders": 0})


def test_a_recreated_topic_gets_the_next_number_and_its_predecessor_keeps_its_own() -> None:
    found = numbered((ORDERS, RETURNS), of(AGAIN, RETURNS))
    assert (found.sources, numbers(found)) == ((ORDERS, RETURNS, AGAIN), {"orders": 2, "returns": 1})
    assert numbers(numbered(found.sources, of(AGAIN, RETURNS))) == {"orders": 2, "returns": 1}
    assert numbers(numbered(found.sources, of(ORDERS))) == {"orders": 0}, "an older cluster is back"


def test_a_topic_that_left_and_comes_back_has_the_number_that_it_had() -> None:
    without = numbered((ORDERS, RETURNS), of(RETURNS))
    assert (without.sources, numbers(without)) == ((ORDERS, RETURNS), {"returns": 1})
    assert numbers(numbered(without.sources, of(REFUNDS, ORDERS))) == {"refunds": 2, "orders": 0}


def test_ids_that_brokers_report_since_an_upgrade_are_recorded_and_those_that_they_lack_are_kept() -> None:
    before = (TopicId("orders", "", "c"), TopicId("returns", "returns-id", ""))
    found = numbered(before, of(ORDERS, TopicId("returns", "returns-id", "c")))
    assert (found.sources, numbers(found)) == ((ORDERS, RETURNS), {"orders": 0, "returns": 1})
    assert numbered((ORDERS,), of(TopicId("orders", "", "c"))).sources == (ORDERS,), "a broker that reports no ids any more"


def test_by_name_a_topic_whose_id_cannot_be_compared_is_the_recorded_one() -> None:
    elsewhere = TopicId("orders", "", "d")
    assert numbers(numbered((ORDERS, RETURNS), of(elsewhere))) == {"orders": 2}
    found = numbered((ORDERS, RETURNS), of(elsewhere), by_name=True)
    assert (found.sources, numbers(found)) == ((TopicId("orders", "orders-id", "d"), RETURNS), {"orders": 0})
    assert numbers(numbered((ORDERS, RETURNS), of(AGAIN), by_name=True)) == {"orders": 2}, "another id is another topic"
    assert numbers(numbered((ORDERS, AGAIN), of(elsewhere), by_name=True)) == {"orders": 1}, "the newest one of the name"
    former = TopicId("orders", "", "d")
    assert numbers(numbered((former, ORDERS), of(AGAIN), by_name=True)) == {"orders": 2}, "the newest can be compared, and is another"


TOPICS = [TopicId(name, id) for name in ("orders", "returns", "refunds") for id in ("1", "2", "3")]


@given(st.lists(st.lists(st.sampled_from(TOPICS), unique_by=lambda each: each.name), max_size=8))
def test_whatever_joins_leaves_comes_back_and_is_recreated_a_number_means_one_topic(starts: list[list[TopicId]]) -> None:
    sources: tuple[TopicId, ...] = ()
    for topics in starts:
        found = numbered(sources, of(*topics))
        assert found.sources[: len(sources)] == sources and len({*found.sources}) == len(found.sources)
        assert {found.sources[number] for number in found.states} == {*topics}
        sources = found.sources


BOTH = numbered((ORDERS,), [TopicState(ORDERS, {1: (2, 7), 0: (0, 5)}, {0: 4, 1: 7}), TopicState(RETURNS, {0: (3, 9)})])


def test_offsets_are_those_of_each_topics_own_partitions() -> None:
    assert BOTH.bounds == {(0, 0): (0, 5), (0, 1): (2, 7), (1, 0): (3, 9)}
    assert BOTH.firsts == {(0, 0): 0, (0, 1): 2, (1, 0): 3}
    assert BOTH.ends == {(0, 0): 4, (0, 1): 7, (1, 0): 9} and BOTH.decided == {(0, 0): 4, (0, 1): 7}


def test_a_message_names_the_topic_of_a_partition_only_if_there_are_several() -> None:
    assert (BOTH.named((1, 0)), BOTH.typed((1, 0))) == ("partition 0 of topic returns", "returns/0")
    one = numbered((RETURNS, ORDERS), of(ORDERS))
    assert (one.named((1, 3)), one.typed((1, 3))) == ("partition 3", "3")
