"""Where a rebase may begin, and what it passes over (I6): at the ends that commits in memory give a table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ingest.cli.rebase import parse_aim, print_plan
from ingest.errors import InvalidInput, Refused
from ingest.kafka_options import KafkaOptions
from ingest.stream import topic
from ingest.stream.assessment import Assessment
from ingest.stream.binding import Binding, Rebase
from ingest.stream.in_force import InForce
from ingest.stream.ledger_summary import EpochBegin, LedgerSummary
from ingest.stream.preflight import Start
from ingest.stream.rebase_plan import Aim, _unread, plan
from ingest.stream.refusals import broker_behind, topic_recreated
from ingest.stream.situation import BrokerFacts, CheckpointFacts, TableFacts
from ingest.stream.table_end import TableEnd, table_end
from tests.unit.test_table_end import FORMER, end_of
from tests.unit.test_unbroken import CREATED, Log

BROKER = BrokerFacts("events", "T", {0: (0, 500)})


def test_what_batches_in_force_have_read_is_no_gap() -> None:
    """I4: after a rebase to the earliest, it expires before it is read again; what the quarantine has lost of it, and what is of a topic
    without an id, was read in vain."""
    log = Log(CREATED, 0, 1, 2)
    summary = LedgerSummary(epochs={"q0": 0, "q1": 1}, begins={"q1": EpochBegin("q1", "events", "T", 3, {0: 5})}, ended={"q0": 2})
    facts = CheckpointFacts("checkpoint"), TableFacts("lake/target")
    end = table_end(Assessment(*facts, summary, None, Start()), InForce(log), "shop.orders")
    assert end.ends == {0: 5} and sorted(end.read) == [("T", 0, 0, 10), ("T", 0, 10, 20), ("T", 0, 20, 30)]

    def gaps(end: TableEnd, earliest: int, topic_id: str = "T") -> tuple[tuple[int, int, int], ...]:
        broker = replace(BROKER, bounds={0: (earliest, 500)}, topic_id=topic_id)
        return plan("shop.orders", Aim("table"), end, broker, "id", accept_gap=True).rebase.gaps

    assert plan("shop.orders", Aim("table"), end, replace(BROKER, bounds={0: (30, 500)}), "id", accept_gap=False).rebase.gaps == ()
    assert gaps(end, 45) == ((0, 30, 45),)
    lacking = replace(end, lost={("T", 0): 12})
    assert gaps(lacking, 25) == ((0, 12, 25),)
    assert plan("shop.orders", Aim("table"), lacking, BROKER, "id", accept_gap=False).rebase.regain == (("T", 0, 12, 30),)
    assert gaps(replace(end, pending=(("T", 0, 12, 14),)), 25) == ((0, 12, 25),)
    assert gaps(replace(end, topic_id="", read=(("", 0, 0, 30),)), 25, "") == ((0, 5, 25),)
    assert gaps(replace(end, read=(("U", 0, 0, 30), ("T", 1, 0, 30))), 25) == ((0, 5, 25),)


@pytest.mark.parametrize(
    ("start", "stop", "read", "expected"),
    [
        (1, 3, [(0, 4)], []),
        (0, 10, [(6, 8), (2, 4)], [(0, 2), (4, 6), (8, 10)]),
        (0, 10, [(2, 4), (6, 12)], [(0, 2), (4, 6)]),
        (0, 10, [(2, 9), (3, 4), (5, 5), (12, 14)], [(0, 2), (9, 10)]),
        (0, 10, [(2, 12), (14, 15)], [(0, 2)]),
        (0, 10, [(5, 5)], [(0, 10)]),
        (5, 10, [(2, 7)], [(7, 10)]),
        (7, 5, [(0, 2)], []),
    ],
)
def test_what_is_left_of_offsets_that_were_read_in_part(
    start: int, stop: int, read: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    ranges = [(0, *each) for each in read]
    assert list(_unread(0, start, stop, [*ranges, (1, 0, 99)])) == [(0, *each) for each in expected]


def test_a_table_does_not_go_on_with_another_topic_even_where_its_checkpoint_is_gone() -> None:
    """What is left of the topic before would never be read."""
    end = end_of(Log(CREATED, 0, 1))
    assert (end.topic, end.ends) == ("events", {0: 20})
    assert plan("shop.orders", Aim("table"), end, BROKER, "id", accept_gap=False).rebase.baseline == ((0, 20),)
    for renamed in (BrokerFacts("events2", "U", BROKER.bounds), BrokerFacts("events2", "", BROKER.bounds)):
        with pytest.raises(Refused, match=r"TOPIC_CHANGED.*events; the contract now says events2"):
            plan("shop.orders", Aim("table"), end, renamed, "id", accept_gap=True)
    anew = BrokerFacts("events", "U", BROKER.bounds)
    assert plan("shop.orders", Aim("table"), end, anew, "id", accept_gap=False).rebase.baseline == ((0, 0),)


@pytest.mark.parametrize(
    ("offsets", "found"),
    [({0: 501}, r"partition 0 holds \[0, 500\), 501 is not in it"), ({4: 0}, "has no partition 4"), ({0: 20, 4: 0}, "has no partition 4")],
)
def test_offsets_that_the_topic_does_not_hold_are_refused_with_those_that_it_does(offsets: dict[int, int], found: str) -> None:
    end = end_of(Log(CREATED, 0, 1))
    with pytest.raises(InvalidInput, match=rf"OFFSETS_INVALID: .*{found}") as refused:
        plan("shop.orders", Aim("offsets", tuple(offsets.items())), end, BROKER, "id", accept_gap=True)
    assert "0:0..500" in str(refused.value)


@pytest.mark.parametrize("aim", [Aim("latest"), Aim("offsets", ((0, 500),))])
def test_nothing_begins_behind_a_transaction_that_is_open(aim: Aim) -> None:
    """Spark would plan a batch that ends before it begins, and never let go of it."""
    undecided = replace(BROKER, decided={0: 60})
    assert plan("shop.orders", aim, end_of(Log(CREATED, 0, 1)), undecided, "id", accept_gap=True).rebase.baseline == ((0, 60),)
    expired = replace(undecided, bounds={0: (80, 500)})
    assert plan("shop.orders", aim, end_of(Log(CREATED, 0, 1)), expired, "id", accept_gap=True).rebase.baseline == ((0, 80),)


@pytest.mark.parametrize(("first", "gaps"), [(None, ()), ({}, ((0, 0, 100),)), ({0: 60}, ((0, 60, 100),)), ({0: 100}, ())])
def test_what_kafka_no_longer_holds_is_a_gap_though_nothing_be_left_of_the_table(
    first: dict[int, int] | None, gaps: tuple[tuple[int, int, int], ...]
) -> None:
    """`--to table` is the remedy of TABLE_REWOUND and RECORDS_EXPIRED: it must not pass over records without a word."""
    end, broker = replace(end_of(Log()), began=first), BrokerFacts("events", "T", {0: (100, 500)})
    if gaps:
        with pytest.raises(Refused, match=rf"GAP_NOT_ACCEPTED.*partition 0 \[{gaps[0][1]}, 100\)"):
            plan("shop.orders", Aim("table"), end, broker, "", accept_gap=False)
    assert plan("shop.orders", Aim("table"), end, broker, "", accept_gap=True).rebase.gaps == gaps


def test_a_table_without_batches_stands_where_reading_began() -> None:
    """`starting_offsets: latest`, and killed before the first batch: the contract leaves out what was there before."""
    end, aim = replace(end_of(Log()), began={0: 60}), Aim("table")
    assert plan("shop.orders", aim, end, BROKER, "", accept_gap=False).rebase.baseline == ((0, 60),)
    grown = replace(BROKER, bounds={0: (0, 500), 1: (0, 5)})
    assert plan("shop.orders", aim, end, grown, "", accept_gap=False).rebase.baseline == ((0, 60), (1, 0))
    assert plan("shop.orders", Aim("earliest"), end, BROKER, "", accept_gap=False).rebase.baseline == ((0, 0),)
    with pytest.raises(Refused, match=r"BROKER_BEHIND.*partition 0 ends at 50, shop\.orders stands at 60"):
        plan("shop.orders", aim, end, replace(BROKER, bounds={0: (0, 50)}), "", accept_gap=False)


def test_where_the_position_is_the_event_id_copies_in_another_topic_are_not_read_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    """I3: of a topic that was made again from a copy, or another cluster's, each record would become a row a second time."""
    end = TableEnd(4, "T", {0: 40}, (FORMER,), topic="events")
    for topic_id, by_position, said in (("another", True, True), ("another", False, False), ("T", True, False)):
        planned = plan("shop.orders", Aim("earliest"), end, replace(BROKER, topic_id=topic_id), "t", accept_gap=False)
        print_plan("shop.orders", planned, by_position=by_position)
        assert ("rows a second time" in capsys.readouterr().out) == said
    # A broker that told no id, and was upgraded: what is read again of that time has another id now, and nothing else has.
    former = replace(FORMER, topic_id="", ends=((0, 40),))
    for aim, said in ((Aim("earliest"), True), (Aim("table"), False)):
        planned = plan("shop.orders", aim, replace(end, topic_id="", former=(former,)), BROKER, "t", accept_gap=False)
        print_plan("shop.orders", planned, by_position=True)
        assert ("rows a second time" in capsys.readouterr().out) == said
    for refused in (topic_recreated("shop.orders", "events", "T", "U"), broker_behind("shop.orders", "events", [(0, 40, 30)])):
        assert "`event_id: position`" in refused.remedy


def test_a_binding_that_was_written_before_it_kept_the_gaps_of_former_epochs_is_read() -> None:
    rebase = Rebase((replace(FORMER, gaps=(("T", 0, 3, 9),)),), ((0, 40),), ((0, 20, 40),), 5)
    bound = Binding("events", "T", "t", 1, ("q0",), rebase, "cluster")
    assert Binding.from_json(bound.to_json()) == bound
    older = json.loads(bound.to_json())
    del older["rebase"]["former"][0]["gaps"]
    del older["cluster"]
    assert Binding.from_json(json.dumps(older)) == replace(bound, rebase=replace(rebase, former=(FORMER,)), cluster="")


def test_a_rebase_belongs_to_the_cluster_that_it_was_made_on() -> None:
    end = TableEnd(4, "T", {0: 40}, (FORMER,), topic="events")
    planned = plan("shop.orders", Aim("table"), end, replace(BROKER, topic_id="", cluster="c"), "t", accept_gap=False)
    assert (planned.binding.topic_id, planned.binding.cluster, planned.rebase.baseline) == ("", "c", ((0, 40),))


def test_a_time_behind_all_records_leaves_out_none_that_comes_while_the_broker_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """I4: what is produced between the two questions is not older than the time, and lies behind where the new epoch begins."""
    end = [7]

    def none_yet(*_: object) -> dict[int, int | None]:
        end[0] += 3
        return {0: None}

    monkeypatch.setattr(topic, "offsets_at", none_yet)
    monkeypatch.setattr(topic, "bounds", lambda *_: {0: (0, end[0])})
    kafka, events = KafkaOptions.from_environment("127.0.0.1:1"), topic.Topic("events", "T", (0,))
    assert parse_aim("2025-01-01", kafka, events) == Aim("offsets", ((0, 7),))
