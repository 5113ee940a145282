"""A start of a table that reads several topics: where each one starts, and which one a refusal names (I2, I6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingest.kafka.offsets import Partition
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.recovery.decision import Refuse, Start, decide, refusals_of
from ingest.recovery.start_state import StartState
from tests.unit.recovery.test_decision import BLANK, BROKER, GOOD, NOTHING, TOPIC

pytestmark = pytest.mark.unit

RETURNS, REFUNDS = TopicId("returns", "returns-id", "cluster"), TopicId("refunds", "refunds-id", "cluster")
OTHER = TopicState(RETURNS, {0: (2, 9)})
ENDS: dict[Partition, int] = {(0, 0): 20, (0, 1): 7, (1, 0): 5}


def state(*broker: TopicState, ends: dict[Partition, int] = ENDS, **fields: object) -> StartState:
    """A table that has read `orders` and `returns` up to ENDS."""
    newest = GOOD.target.newest
    assert newest is not None
    target = replace(GOOD.target, newest=replace(newest, sources=(TOPIC, RETURNS), ends=ends))
    return replace(GOOD, target=target, broker=broker, **fields)  # type: ignore[arg-type]


def refused(state: StartState) -> str:
    decision = decide(state)
    assert isinstance(decision, Refuse), decision
    return f"{decision.error.code} {decision.error.found}"


def test_each_topic_continues_where_the_table_ends_in_whatever_order_the_contract_names_them() -> None:
    assert decide(state(BROKER, OTHER)) == decide(state(OTHER, BROKER)) == Start(ENDS)


def test_a_topic_that_joins_starts_at_its_first_record_and_an_added_partition_of_another_at_0() -> None:
    joining, wider = TopicState(REFUNDS, {0: (4, 9), 1: (0, 0)}), replace(OTHER, bounds={0: (2, 9), 1: (0, 3)})
    expected = Start({**ENDS, (1, 1): 0, (2, 0): 4, (2, 1): 0}, joins=frozenset({2}))
    assert decide(state(joining, BROKER, wider), "latest") == decide(state(joining, BROKER, wider)) == expected
    expired = replace(OTHER, bounds={0: (2, 9), 1: (1, 3)})
    assert refused(state(joining, BROKER, expired)) == (
        "RECORDS_EXPIRED topic returns no longer has partition 1 [0, 1): 1 offsets that shop.orders has not read yet."
    )


def test_a_first_start_numbers_the_topics_in_the_contracts_order() -> None:
    blank = replace(NOTHING, target=BLANK, broker=(replace(OTHER, decided={0: 8}), BROKER))
    assert decide(blank) == Start({(0, 0): 2, (1, 0): 0, (1, 1): 3}, first=True)
    assert decide(blank, "latest") == Start({(0, 0): 8, (1, 0): 25, (1, 1): 7}, first=True)


def test_a_shadow_numbers_its_topics_as_the_table_that_it_will_replace() -> None:
    blank = replace(NOTHING, target=BLANK, broker=(OTHER, BROKER), recorded=(TOPIC, REFUNDS, RETURNS))
    assert decide(blank) == Start({(0, 0): 0, (0, 1): 3, (2, 0): 2}, first=True)


@pytest.mark.parametrize(
    ("now", "found"),
    [
        ((BROKER,), "was read from topic returns, but the contract now names topic orders"),
        ((OTHER,), "was read from topic orders, but the contract now names topic returns"),
        ((OTHER, TopicState(REFUNDS, {0: (0, 1)})), "was read from topic orders, but the contract now names the topics returns, refunds"),
    ],
)
def test_a_topic_that_left_the_contract_is_named(now: tuple[TopicState, ...], found: str) -> None:
    assert refused(state(*now)) == f"TOPIC_CHANGED shop.orders {found}."


def test_of_two_topics_the_recreated_one_is_named() -> None:
    again = replace(OTHER, topic=replace(RETURNS, id="new"))
    assert refused(state(BROKER, again)) == (
        "TOPIC_RECREATED shop.orders was read from topic returns with id returns-id, but the broker's topic returns has id new."
    )
    elsewhere = replace(OTHER, topic=TopicId("returns", "", "other"))
    assert refused(state(BROKER, elsewhere)).startswith("TOPIC_RECREATED shop.orders was read from topic returns of the cluster with id")


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (replace(OTHER, bounds={1: (0, 9)}), "PARTITIONS_LOST topic returns has no partition 0 "),
        (replace(OTHER, bounds={0: (6, 9)}), "RECORDS_EXPIRED topic returns no longer has partition 0 [5, 6)"),
        (replace(OTHER, bounds={0: (0, 4)}), "BROKER_BEHIND topic returns ends before shop.orders: partition 0 ends at 4"),
        (replace(OTHER, decided={0: 4}), "OFFSETS_UNDECIDED topic returns has an open transaction"),
    ],
)
def test_a_refusal_is_about_the_offsets_of_its_topic_and_names_it(other: TopicState, found: str) -> None:
    """The first topic has other offsets in a partition of the same number."""
    assert refused(state(BROKER, other)).startswith(found)


def test_a_log_that_lost_records_is_that_of_its_topic() -> None:
    found = refused(state(BROKER, OTHER, taken_back={(1, 0): (3, 5)}))
    assert found.startswith("LOG_TRUNCATED topic returns has lost partition 0 [3, 5)")


def test_refusals_of_several_topics_come_in_the_order_of_their_numbers() -> None:
    found = refusals_of(state(replace(OTHER, bounds={0: (6, 9)}), replace(BROKER, bounds={0: (0, 19), 1: (0, 7)})))
    assert [each.code for each in found] == ["BROKER_BEHIND", "RECORDS_EXPIRED"]


def test_once_a_seek_went_on_without_a_topic_it_refuses_nothing_until_it_comes_back() -> None:
    """Kafka may have expired what came after the seek: a person decides."""
    without = {(1, 0): 5}
    assert decide(state(OTHER, ends=without)) == Start(without)
    back = decide(state(BROKER, OTHER, ends=without))
    assert isinstance(back, Refuse) and back.error.code == "TOPIC_CHANGED" and "knows orders from before" in back.error.found
