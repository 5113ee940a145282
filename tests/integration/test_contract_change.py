"""A changed contract (I9): the batch at hand ends under its own, the next one begins under the new; tables change only by `apply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingest.contract import Contract
from ingest.errors import Refused
from ingest.kafka_options import KafkaOptions
from ingest.prove.status import Status, status
from ingest.stream.alter import alter, differences
from ingest.stream.situation import BrokerFacts
from ingest.stream.topic import look
from tests.integration.lane import Lane, order

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]


def changed(lane: Lane, **more: Any) -> Contract:
    """The lane's contract with other keys."""
    document = {**lane.contract.model_dump(mode="json", exclude_none=True), **more}
    return Contract.model_validate(document)


def columns(*names_and_types: tuple[str, str, bool]) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind, "nullable": nullable} for name, kind, nullable in names_and_types]


def shown(lane: Lane) -> Status:
    """What `ingest status` shows, with the broker as it is."""
    kafka = KafkaOptions(lane.bootstrap_servers)
    topic, bounds = look(kafka, lane.contract.source.topic, 10)
    return status(lane.contract, lane.places, lambda: BrokerFacts(topic.name, topic.id, bounds), None)


ID = ("id", "STRING", False)


def unfinished(lane: Lane, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A batch whose quarantine is committed and whose rows are not."""
    lane.arm(monkeypatch, f"after_quarantine:raise@{number}")
    assert lane.stopped().code == "QUERY_FAILED"
    monkeypatch.undo()


@pytest.mark.slow
def test_an_unfinished_batch_is_finished_under_the_contract_it_was_begun_with(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its quarantine was decided by the old rule: under the new one `bad` would be in both tables and `e` in neither."""
    one = lane({"n": "INT"}, rules=[{"name": "small", "check": "n < 10"}])
    one.send(order("a", n=1))
    one.run()
    one.send(order("e", n=5), order("bad", n=50))
    unfinished(one, monkeypatch, 1)
    one.contract = changed(one, columns=[*columns(ID, ("n", "INT", True), ("more", "INT", True))])
    told = shown(one)
    assert told.next == "run batch 1 again: it was planned and is not in the table (under its own contract), then refuse"
    assert told.refusal is not None and told.refusal["code"] == "CONTRACT_CHANGED"
    one.contract = changed(one, columns=columns(ID, ("n", "INT", True)), rules=[{"name": "large", "check": "n >= 10"}])
    assert shown(one).refusal is None
    one.send(order("f", n=5), order("good", n=50))
    reports = one.run()
    assert [report.number for report in reports] == [1, 2]
    assert one.ids() == ["a", "e", "good"]
    assert sorted(row["event_id"] for row in one.quarantine().collect()) == ["bad", "f"]
    hashes = [mark.contract_hash for _, mark in one.batches()]
    assert hashes[0] == hashes[1] != hashes[2]
    assert one.verified().findings == ()


@pytest.mark.slow
def test_rules_change_with_the_next_batch_and_ask_nothing_of_the_table(lane: MakeLane) -> None:
    one = lane({"n": "INT"})
    one.send(order("a", n=1))
    one.run()
    one.contract = changed(one, rules=[{"name": "large", "check": "n > 5"}])
    (change,) = differences(None, one.contract, one.places)
    assert (change.what, change.effect) == ("the row rules", "next batch")
    one.send(order("b", n=1))
    one.run()
    assert one.ids() == ["a"]


@pytest.mark.parametrize("max_records", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_read_again_under_a_looser_contract_what_was_refused_is_a_row_or_replayed_and_no_duplicate(
    lane: MakeLane, max_records: int | None
) -> None:
    """I4: its place in quarantine counts, whether the copy that is a row comes in this batch or came before; so it is missed there."""
    one = lane({"n": "INT"}, rules=[{"name": "small", "check": "n < 10"}])
    one.send(order("b", n=50), order("c", n=50))
    one.run()
    one.contract = changed(one, rules=[])
    one.send(order("b", n=50))
    one.run()
    one.rebase("earliest")
    one.run(max_records)
    assert one.ids() == ["b", "c"]
    again = [row for row in one.ledger() if (row["kind"], row["epoch"]) == ("batch", 1)]
    sums = [sum(row[name] for row in again) for name in ("records_read", "inserted", "duplicate", "quarantined", "replayed")]
    assert sums == [3, 1, 0, 0, 2]
    assert [found.code for found in one.verified().findings] == ["IN_BOTH"]
    one.sql("DELETE FROM {} WHERE offset = 0", "quarantine")
    assert "RECORDS_MISSING" in [found.code for found in one.verified().findings]


def test_added_nullable_columns_comments_and_dropped_not_null_are_applied_in_place(lane: MakeLane) -> None:
    one = lane({"n": "INT!", "s": "STRUCT<x: INT>"})
    one.send(order("a", n=1, s={"x": 1}))
    one.run()
    wider = columns(ID, ("n", "INT", True), ("s", "STRUCT<x: INT, y: STRING>", True), ("extra", "DECIMAL(9,2)", True))
    wider[1]["comment"] = "it's a number"
    one.contract = changed(
        one, columns=wider, description="a 'new' description", properties={"delta.logRetentionDuration": "interval 60 days"}
    )
    effects = {change.what: (change.effect, change.required) for change in differences(None, one.contract, one.places)}
    assert effects["the column s.y string is new"] == ("apply", True)
    assert effects["the column extra decimal(9,2) is new"] == ("apply", True)
    assert effects["the column n may be null from now on"] == ("apply", True)
    assert effects["the comment of the column n"] == ("apply", False)
    before = one.versions()
    error = one.stopped()
    assert (error.code, error.exit_code) == ("CONTRACT_CHANGED", 3) and "ingest apply" in error.remedy
    assert one.versions() == before, "told before anything runs"
    alter(one.session, one.contract, one.places)
    assert [c for c in differences(None, one.contract, one.places) if c.effect != "next batch"] == []
    one.send(order("b", s={"x": 2, "y": "z"}, extra=1.5), order("a", n=9))
    one.run()
    assert one.ids() == ["a", "b"]
    assert one.target().where("id = 'b'").select("s.y", "n").collect()[0] == ("z", None)
    assert one.verified().findings == ()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        pytest.param({"columns": columns(ID)}, "the column n is in the table, not in the contract", id="removed", marks=pytest.mark.slow),
        pytest.param({"columns": columns(ID, ("n", "BIGINT", True))}, "the column n is int in the table", id="type"),
        pytest.param({"columns": columns(ID, ("n", "INT", False)), "event_id": ["id", "n"]}, "the event id is", id="event id"),
        pytest.param(
            {"columns": columns(ID, ("n", "INT", True), ("m", "INT", False))}, "must not be null", id="not null", marks=pytest.mark.slow
        ),
        pytest.param({"columns": columns(ID, ("N", "INT", True))}, "the column N is n in the table", id="case", marks=pytest.mark.slow),
        pytest.param({"layout": {"partition_by": ["n"]}}, "partitioned", id="partitioning", marks=pytest.mark.slow),
    ],
)
def test_what_the_table_cannot_follow_is_refused_before_anything_runs(lane: MakeLane, more: dict[str, Any], told: str) -> None:
    one = lane({"n": "INT"})
    one.send(order("a", n=1))
    one.run()
    one.contract = changed(one, **more)
    before = one.versions()
    error = one.stopped()
    assert (error.code, error.exit_code) == ("CONTRACT_CHANGED", 3) and told in error.found
    assert (shown(one).next, shown(one).refusal) == ("refuse", error.as_dict()), "status says what a start says"
    with pytest.raises(Refused, match="CONTRACT_CHANGED"):
        alter(one.session, one.contract, one.places)
    assert one.versions() == before


@pytest.mark.slow
def test_a_column_that_is_no_longer_kept_stays_and_is_null(lane: MakeLane) -> None:
    one = lane({"n": "INT"}, unknown_fields="keep")
    one.send(order("a", n=1, odd=2))
    one.run()
    one.contract = changed(one, unknown_fields="ignore")
    one.send(order("b", n=1, odd=2))
    one.run()
    assert sorted((row["id"], row["_unknown"]) for row in one.target().collect()) == [("a", {"odd": "2"}), ("b", None)]
