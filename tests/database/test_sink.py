"""The database sink in this process: duplicates, failing records, overtaken owners, and what it refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, insert, text

from ingest.delivery.kafka import GuaranteeBroken, PoisonRecord
from ingest.delivery.outbox.event import add
from ingest.delivery.sink import Sink, json_field, key
from ingest.delivery.sink.claims import Claims
from ingest.kafka.kafka_options import KafkaOptions
from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime.errors import InvalidInput, Refused, RunStopped
from tests.database.sink_instance import event_id_of, paid, pay
from tests.database.sink_scene import SinkScene, numbered, scenes

MakeScene = Callable[..., SinkScene]


@pytest.fixture
def scene(engine: Engine, broker: Broker, topic: Callable[..., str]) -> Iterator[MakeScene]:
    with scenes(engine, broker.bootstrap_servers, topic) as make:
        yield make


def test_copies_within_a_batch_across_batches_and_across_partitions_are_stored_once_and_counted(scene: MakeScene) -> None:
    stage = scene(2)
    stage.produce(["a", "a", "b", "a"], 0)
    stage.produce(["c", "b"], 1)
    counts = stage.run(6)
    stage.produce(["a", "d"], 1)
    counts = stage.run(2)
    assert stage.paid() == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert stage.events() == {"a": 3, "b": 1, "c": 0, "d": 0}, "how often each came again"
    assert (counts.stored, counts.duplicates, counts.dead, counts.repeated, counts.fenced) == (1, 1, 0, 0, 0)
    assert stage.offsets() == {0: 4, 1: 4}


def test_a_failing_record_goes_to_the_dead_letters_with_its_bytes_and_all_others_are_stored(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(numbered(0, 40))
    stage.produce(["bad"], value=b"\0\xff")
    stage.produce(numbered(40, 80))

    def write(connection: Any, records: Any) -> None:
        pay(connection, records)
        if any(record.value == b"\0\xff" for record in records):
            raise ValueError("no payment\0")

    counts = stage.run(81, write)
    assert (counts.stored, counts.dead) == (80, 1)
    assert stage.paid() == dict.fromkeys(numbered(0, 80), 1), "no row of the failed attempts is left"
    (letter,) = stage.dead()
    assert (letter.topic, letter.offset, letter.event_id, letter.key, letter.value) == (stage.topic, 40, "bad", b"key", b"\0\xff")
    assert json.loads(letter.headers) == [["id", base64.b64encode(b"bad").decode()]]
    assert letter.error == "ValueError: no payment\N{REPLACEMENT CHARACTER}"
    assert stage.offsets() == {0: 81} and "bad" not in stage.events(), "a corrected record with that id can still be stored"


def test_a_violated_key_of_the_users_own_table_is_an_error_and_no_duplicate(scene: MakeScene) -> None:
    stage = scene()
    stage.execute("CREATE UNIQUE INDEX own ON paid (topic, partition)")
    stage.produce(["a", "b", "c"])
    counts = stage.run(3)
    assert (counts.stored, counts.duplicates, counts.dead) == (1, 0, 2)
    assert stage.paid() == {"a": 1} and set(stage.events()) == {"a"}
    assert [letter.event_id for letter in stage.dead()] == ["b", "c"] and stage.offsets() == {0: 3}
    assert all("UniqueViolation" in letter.error and "INSERT" not in letter.error for letter in stage.dead())


@pytest.mark.slow
def test_a_violation_that_only_the_commit_finds_is_an_error_of_its_record(scene: MakeScene) -> None:
    stage = scene()
    stage.execute("ALTER TABLE paid ADD CONSTRAINT own UNIQUE (topic, partition) DEFERRABLE INITIALLY DEFERRED")
    stage.produce(["a", "b"])
    assert stage.run(2).dead == 1
    assert stage.paid() == {"a": 1} and [letter.event_id for letter in stage.dead()] == ["b"]


@pytest.mark.parametrize(
    ("event_id", "reason"),
    [
        (None, "has no event id"),
        pytest.param("", "is empty", marks=pytest.mark.slow),
        pytest.param("x" * 256, "256 characters", marks=pytest.mark.slow),
        pytest.param("nul\0", "NUL", marks=pytest.mark.slow),
    ],
)
def test_a_record_without_a_usable_event_id_goes_to_the_dead_letters(scene: MakeScene, event_id: str | None, reason: str) -> None:
    stage = scene()
    stage.produce(["a", event_id, "x" * 255])
    counts = stage.run(3)
    assert (counts.stored, counts.dead) == (2, 1)
    (letter,) = stage.dead()
    assert (letter.offset, letter.value) == (1, b"{}") and reason in letter.error
    assert stage.paid() == {"a": 1, "x" * 255: 1}


def test_without_dead_letters_a_failing_record_ends_the_run_at_its_offset_and_the_next_run_continues_there(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(["a", "b", "bad", "c"])
    works = False

    def write(connection: Any, records: Any) -> None:
        if not works and "bad" in map(event_id_of, records):
            raise ValueError("bad")
        pay(connection, records)

    with stage.sink(write, dead_letter=False, attempts=2) as sink:
        for _ in range(2):
            with pytest.raises(PoisonRecord, match=r"\[0\]@2 failed 2 time.*bad"):
                sink.run(idle_s=20)
            assert stage.offsets() == {0: 2}
        works = True
        sink.run(stop=lambda: sink.counts.stored == 4, idle_s=20)
    assert stage.paid() == {"a": 1, "b": 1, "bad": 1, "c": 1} and stage.dead() == []


def test_a_write_that_swallows_the_error_of_a_statement_loses_no_record(scene: MakeScene) -> None:
    """PostgreSQL answers the COMMIT of a failed transaction with a rollback, and psycopg reports success."""
    stage = scene()
    stage.produce(["a", "bad", "b"])

    def write(connection: Any, records: Any) -> None:
        for record in records:
            try:
                if event_id_of(record) == "bad":
                    connection.exec_driver_sql("SELECT 1/0")
                pay(connection, [record])
            except Exception:
                pass

    counts = stage.run(3, write)
    assert (counts.stored, counts.dead) == (2, 1)
    assert stage.paid() == {"a": 1, "b": 1}
    assert [(letter.event_id, "begin_nested" in letter.error) for letter in stage.dead()] == [("bad", True)]


@pytest.mark.slow
def test_a_deadlock_that_write_wraps_in_its_own_error_is_tried_again(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(["a"])
    calls = 0

    def write(connection: Any, records: Any) -> None:
        nonlocal calls
        calls += 1
        try:
            if calls == 1:
                connection.exec_driver_sql("DO $$ BEGIN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END $$")
            pay(connection, records)
        except Exception as error:
            raise ValueError("no payment") from error

    counts = stage.run(1, write)
    assert (counts.stored, counts.dead, counts.repeated) == (1, 0, 1)


def test_the_ids_of_a_batch_are_inserted_in_their_order_so_that_sinks_with_the_same_ids_do_not_deadlock(scene: MakeScene) -> None:
    stage = scene()
    ids = [f"event-{number:03}" for number in range(50)]
    stage.produce(reversed(ids))
    stage.run(50)
    with stage.engine.connect() as connection:
        assert list(connection.scalars(text("SELECT event_id FROM oncelake_sink_event ORDER BY ctid"))) == ids
        written = list(connection.scalars(text("SELECT event_id FROM paid ORDER BY ctid")))
    assert written == ids[::-1], "write gets the records in their own order"


@pytest.mark.parametrize(
    ("ends", "code"), [("commit", "SINK_WRITE_COMMITS"), pytest.param("rollback", "SINK_WRITE_ENDED", marks=pytest.mark.slow)]
)
def test_a_write_that_ends_the_transaction_itself_stops_the_run_and_nothing_is_stored(scene: MakeScene, ends: str, code: str) -> None:
    stage = scene()
    stage.produce(["a", "b"])

    def write(connection: Any, records: Any) -> None:
        pay(connection, records[:1])
        getattr(connection, ends)()
        pay(connection, records[1:])

    with stage.sink(write) as sink:
        with pytest.raises((InvalidInput, RunStopped)) as stopped:
            sink.run(idle_s=20)
        assert stopped.value.code == code
    assert stage.offsets() == {0: 0} and not stage.paid() and not stage.events() and not stage.dead()


@pytest.mark.slow
def test_a_missing_table_stops_the_run_and_makes_no_dead_letters(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(["a", "b"])
    stage.execute("ALTER TABLE paid RENAME TO elsewhere")
    with stage.sink() as sink:
        with pytest.raises(RunStopped, match=r'42P01.*"paid" does not exist') as stopped:
            sink.run(idle_s=20)
        assert stopped.value.code == "SINK_STATEMENT_REFUSED" and stage.dead() == []
        stage.execute("ALTER TABLE elsewhere RENAME TO paid")
        sink.run(stop=stage.done(sink, 2), idle_s=20)
    stage.complete()


def test_an_owner_that_is_overtaken_in_the_middle_of_its_work_is_fenced_and_nothing_is_doubled(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(numbered(0, 30))
    other = Claims(stage.engine, stage.topic, KafkaOptions(stage.servers), "earliest", lambda step: None)
    begun = 0

    def on_step(step: str) -> None:
        nonlocal begun
        begun += step == "begun"
        if step == "begun" and begun == 2:
            assert other.take({stage.place()}) == {stage.place(): 10}, "it continues where the first owner's last transaction ended"

    counts = stage.run(30, batch=10, on_step=on_step)
    assert (counts.stored, counts.duplicates, counts.fenced) == (30, 0, 1)
    stage.complete()


@pytest.mark.slow
def test_ids_from_the_value_or_the_key(scene: MakeScene) -> None:
    stage = scene()
    stage.produce([None, None], value=b'{"order_id": 7}')
    stage.produce([None], value=b"no JSON")

    def write(connection: Any, records: Any) -> None:
        connection.execute(insert(paid), [{"event_id": "x", "topic": record.topic} for record in records])

    counts = stage.run(3, write, event_id=json_field("order_id"))
    assert (counts.stored, counts.duplicates, counts.dead) == (1, 1, 1) and stage.events() == {"7": 1}
    stage.execute(f"DELETE FROM oncelake_sink_offset WHERE sink = '{stage.topic}'")
    assert stage.run(3, write, event_id=key()).stored == 1


def test_what_a_sink_refuses(scene: MakeScene, new_database: Callable[[], str]) -> None:
    stage = scene()
    for option in ("batch", "attempts"):
        wrong: dict[str, Any] = {option: 0}
        with pytest.raises(InvalidInput, match=f"SINK_OPTION.*{option}=0"):
            stage.sink(**wrong)
    with pytest.raises(GuaranteeBroken, match="starting_offsets"):
        stage.sink(consumer_options={"auto_offset_reset": "earliest"})
    with pytest.raises(InvalidInput, match="SINK_AUTOCOMMIT"):
        stage.sink(database=stage.engine.execution_options(isolation_level="AUTOCOMMIT"))
    with pytest.raises(Refused, match="SCHEMA_MISSING"):
        Sink("s", stage.topic, pay, new_database(), stage.servers)


def test_an_error_of_this_package_that_write_raises_is_an_error_of_its_record(scene: MakeScene) -> None:
    """A sink whose `write` stores outbox events: one of them has no aggregate id."""
    stage = scene()
    stage.produce(["good", "bad", "fine"])

    def write(connection: Connection, records: Sequence[Any]) -> None:
        for record in records:
            event_id = event_id_of(record)
            add(connection, "order", "" if event_id == "bad" else event_id, "OrderPaid", b"{}")

    counts = stage.run(3, write)
    assert (counts.stored, counts.dead) == (2, 1)
    (letter,) = stage.dead()
    assert letter.event_id == "bad" and "OUTBOX_EVENT" in letter.error
