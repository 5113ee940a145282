"""A changed contract (I9) applies from the next batch on. Tables change only by `ingest apply`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.contract.definition import Contract
from ingest.delta.contract_change import changes
from ingest.delta.delta_log import DeltaLog
from ingest.delta.writer import alter as apply
from ingest.delta.writer import create_tables
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import current_states
from ingest.observe.table_status import Status, status
from ingest.run.alter import alter, differences
from ingest.runtime.errors import Refused, RunStopped
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from tests.integration.lane import Lane, order

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]


def changed(lane: Lane, **more: Any) -> Contract:
    """The lane's contract with some keys replaced."""
    document = {**lane.contract.model_dump(mode="json", exclude_none=True), **more}
    return Contract.model_validate(document)


def columns(*names_and_types: tuple[str, str, bool]) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind, "nullable": nullable} for name, kind, nullable in names_and_types]


def shown(lane: Lane) -> Status:
    """The status that `ingest status` shows, with the real broker."""
    kafka = KafkaOptions(lane.bootstrap_servers)
    return status(lane.contract, lane.places, current_states(kafka, lane.contract.source), None)


ID = ("id", "STRING", False)


@pytest.mark.slow
def test_the_contract_may_change_between_a_failed_attempt_and_its_repetition(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed attempt is rolled back. Otherwise `bad` would be in both tables: quarantined by the old rule, a row by the new one."""
    one = lane({"n": "INT"}, rules=[{"name": "small", "check": "n < 10"}])
    one.send(order("a", n=1))
    one.run()
    one.send(order("e", n=5), order("bad", n=50))

    def killed(*_: Any) -> None:
        raise RunStopped("KILLED", "between the two commits", expected="", remedy="")

    with monkeypatch.context() as patch:
        patch.setattr("ingest.batch.batch.commits.merge_target", killed)
        patch.setattr("ingest.batch.staged.Staged.new_files", killed)
        assert one.stopped().code == "KILLED"
    assert one.quarantine().count() == 1 and one.ids() == ["a"]
    one.contract = changed(one, rules=[{"name": "large", "check": "n >= 10"}])
    one.run()
    assert one.ids() == ["a", "bad"]
    assert [row["event_id"] for row in one.quarantine().collect()] == ["e"]
    one.balanced()


@pytest.mark.slow
def test_a_re_read_under_another_contract_keeps_rows_and_adds_records_that_are_valid_now(lane: MakeLane) -> None:
    """I4, I5: no record is in both tables. The quarantined record is marked as replayed."""
    one = lane({"n": "INT"}, rules=[{"name": "small", "check": "n < 10"}])
    one.send(order("a", n=1), order("b", n=50), "{")
    one.run()
    one.contract = changed(one, rules=[{"name": "large", "check": "n >= 10"}])
    assert [change.effect for change in differences(None, one.contract, one.places)] == ["next batch"], "the table needs no change"
    one.seek("earliest")
    one.run()
    assert one.ids() == ["a", "b"]
    assert sorted((row["offset"], row["state"]) for row in one.quarantine().collect()) == [(1, "replayed"), (2, "open")]
    assert one.accounts()[-1] == (3, 1, 2, 0, 0, 0)
    one.balanced()
    one.contract = changed(one, rules=[{"name": "none", "check": "n < 0"}])
    one.seek("earliest")
    one.run()
    assert one.ids() == ["a", "b"] and one.quarantine().where("state = 'open'").count() == 1, "rows that were accepted stay"
    one.balanced()


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
    assert one.versions() == before, "refused before anything runs"
    alter(lambda: one.session, one.contract, one.places)
    assert [c for c in differences(None, one.contract, one.places) if c.effect != "next batch"] == []
    one.send(order("b", s={"x": 2, "y": "z"}, extra=1.5), order("a", n=9))
    one.run()
    assert one.ids() == ["a", "b"]
    assert one.target().where("id = 'b'").select("s.y", "n").collect()[0] == ("z", None)
    one.balanced()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param({"columns": columns(ID)}, "the column n is in the table, not in the contract", id="removed", marks=pytest.mark.slow),
        pytest.param({"columns": columns(ID, ("n", "BIGINT", True))}, "the column n is int in the table", id="type"),
        pytest.param(
            {"columns": columns(ID, ("n", "INT", False)), "event_id": ["id", "n"]},
            "the event id is",
            id="event id",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"columns": columns(ID, ("n", "INT", True), ("m", "INT", False))},
            "must not be null",
            id="not null",
            marks=pytest.mark.slow,
        ),
        pytest.param({"columns": columns(ID, ("N", "INT", True))}, "the column N is n in the table", id="case", marks=pytest.mark.slow),
        pytest.param({"layout": {"partition_by": ["n"]}}, "partitioned", id="partitioning", marks=pytest.mark.slow),
    ],
)
def test_a_change_that_the_table_cannot_follow_is_refused_before_anything_runs(lane: MakeLane, more: dict[str, Any], message: str) -> None:
    one = lane({"n": "INT"})
    one.send(order("a", n=1))
    one.run()
    one.contract = changed(one, **more)
    before = one.versions()
    error = one.stopped()
    assert (error.code, error.exit_code) == ("CONTRACT_CHANGED", 3) and message in error.found
    assert (shown(one).next, shown(one).refusal) == ("refuse", error.as_dict()), "status shows the same refusal as a start"
    with pytest.raises(Refused, match="CONTRACT_CHANGED"):
        alter(lambda: one.session, one.contract, one.places)
    assert one.versions() == before


@pytest.mark.slow
def test_the_column_of_unknown_fields_stays_and_is_null_once_they_are_ignored(lane: MakeLane) -> None:
    one = lane({"n": "INT"}, unknown_fields="keep")
    one.send(order("a", n=1, odd=2))
    one.run()
    one.contract = changed(one, unknown_fields="ignore")
    one.send(order("b", n=1, odd=2))
    one.run()
    assert sorted((row["id"], row["_unknown"]) for row in one.target().collect()) == [("a", {"odd": "2"}), ("b", None)]


TEXT = '{table}, ${env:HOME}, ${system:user.home}, it\'s \\ "quoted" `so`\n-- {table}; ${spark.master}'


def test_every_text_of_a_contract_reaches_the_table_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would replace `${…}`, and so publish an environment variable; `{table}` is our own sign for the table's name."""
    places = Places(str(tmp_path / "{table} ${env:HOME}"), str(tmp_path / "checkpoints"), "t", "events")
    log = DeltaLog(LocalFiles(), places.target)

    def texts(text: str, *more: str) -> Contract:
        named = [{"name": name, "type": "STRUCT<x: INT>", "comment": text} for name in ("n", *more)]
        listed = [*columns(ID), *named]
        source = {"topic": "events", "format": "json"}
        given = {"pipeline": "t", "table": "events", "source": source, "columns": listed, "event_id": ["id"]}
        return Contract.model_validate({**given, "description": text, "properties": {"our.note": text}})

    def stored() -> list[str]:
        state = log.state()
        assert state is not None
        fields = [field["metadata"].get("comment") for field in json.loads(state.schema)["fields"] if field["name"] in ("n", "added")]
        return [state.comment, state.properties["our.note"], *fields]

    create_tables(spark, texts(f"old {TEXT}"), places)
    assert stored() == [f"old {TEXT}"] * 3
    state = log.state()
    assert state is not None
    new = texts(TEXT, "added")
    apply(spark, new, places.target, [change.statement for change in changes(new, state)])
    assert stored() == [TEXT] * 4
