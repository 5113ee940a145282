"""The database sink in this process: duplicates, failing records, where it starts, and what it refuses."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient
from sqlalchemy import Engine, insert

from ingest.kafka.delivery import GuaranteeBroken, PoisonRecord
from ingest.kafka.kafka_options import KafkaOptions
from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime.errors import InvalidInput, Refused, RunStopped
from ingest.sink import Sink, json_field, key
from ingest.sink.claims import Claims
from tests.database.sink_instance import event_id_of, paid, pay
from tests.database.sink_scene import SinkScene
from tests.polling import until

MakeScene = Callable[..., SinkScene]


@pytest.fixture
def scene(engine: Engine, database_url: str, broker: Broker, topic: Callable[..., str]) -> Iterator[MakeScene]:
    """`scene(partitions=1)` creates a topic, and tables for its payments."""
    made: list[SinkScene] = []

    def make(partitions: int = 1, **configs: str) -> SinkScene:
        made.append(SinkScene(engine, database_url, broker.bootstrap_servers, topic(partitions, **configs), partitions))
        return made[-1]

    yield make
    for each in made:
        each.close()


def numbered(first: int, end: int) -> list[str]:
    return [f"event-{number}" for number in range(first, end)]


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
    assert [letter.event_id for letter in stage.dead()] == ["b", "c"]
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


def test_the_offsets_in_kafka_do_not_matter(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(numbered(0, 5))
    assert stage.run(5).stored == 5
    assert stage.committed() == {0: 5}, "they are there for tools that show the lag"
    for wrong in (0, 9):
        stage.commit(wrong)
        stage.produce(numbered(len(stage.written), len(stage.written) + 5))
        counts = stage.run(5)
        assert (counts.stored, counts.duplicates) == (5, 0)
    KafkaAdminClient(bootstrap_servers=stage.servers).delete_groups([stage.topic])
    stage.produce(["last"])
    assert stage.run(1).stored == 1
    stage.complete()


@pytest.mark.slow
def test_a_sink_can_start_at_the_end_but_reads_partitions_that_are_added_later_from_their_beginning(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(["old"])
    with stage.sink(starting_offsets="latest") as sink:
        sink.run(stop=lambda: stage.offsets() == {0: 1}, idle_s=20)
        stage.produce(["new"])
        sink.run(stop=stage.done(sink, 1), idle_s=20)
        KafkaAdminClient(bootstrap_servers=stage.servers).create_partitions({stage.topic: 2})
        stage.partitions = 2
        stage.renew()
        stage.produce(["added"], 1)
    with stage.sink(starting_offsets="latest") as sink:
        sink.run(stop=stage.done(sink, 1), idle_s=20)
    assert stage.paid() == {"new": 1, "added": 1}


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


def test_deleted_records_that_were_not_read_stop_the_start_with_their_range(scene: MakeScene) -> None:
    stage = scene()
    stage.produce(numbered(0, 5))
    stage.run(5)
    stage.produce(numbered(5, 20))
    delete_records(stage, 12)
    with stage.sink() as sink, pytest.raises(RunStopped, match=rf"offsets 5 to 11 of {stage.topic}\[0\]") as stopped:
        sink.run(idle_s=20)
    assert stopped.value.code == "SINK_RECORDS_EXPIRED"
    stage.execute(stopped.value.remedy.split("`")[1])
    assert stage.run(8).stored == 8, "the remedy accepts the gap"


@pytest.mark.slow
def test_records_that_are_deleted_during_the_run_stop_it_with_their_range(scene: MakeScene) -> None:
    stage = scene()
    with stage.sink() as sink:
        for first in range(0, 100, 20):  # a fetch that is under way may still get the records; then once more
            stage.produce(numbered(first, first + 5))
            sink.run(stop=stage.done(sink, first + 5), idle_s=20)
            stage.produce(numbered(first + 5, first + 10))
            stage.produce(numbered(first + 10, first + 20))
            delete_records(stage, first + 12)
            try:
                sink.run(idle_s=3)
            except RunStopped as stopped:
                assert stopped.code == "SINK_RECORDS_EXPIRED"
                assert re.search(rf"offsets {stage.offsets()[0]} to {first + 11} of {stage.topic}\[0\]", stopped.found)
                break
            stage.complete()
        else:
            pytest.fail("the records were never missed")


@pytest.mark.slow
@pytest.mark.parametrize("running", [False, True])
def test_a_recreated_topic_is_refused_and_after_the_remedy_its_events_are_read_without_doubles(scene: MakeScene, running: bool) -> None:
    stage = scene()
    stage.produce(numbered(0, 5))
    with stage.sink() as sink:
        sink.run(stop=stage.done(sink, 5), idle_s=20)
        if running:
            recreate(stage)
            with pytest.raises(RunStopped) as stopped:
                sink.run(idle_s=60)
    if not running:
        recreate(stage)
        with stage.sink() as sink, pytest.raises(RunStopped) as stopped:
            sink.run(idle_s=20)
    assert stopped.value.code == "SINK_TOPIC_RECREATED"
    stage.execute(stopped.value.remedy.split("`")[1])
    counts = stage.run(10)
    assert counts.stored + counts.duplicates == 10
    assert stage.paid() == dict.fromkeys(numbered(0, 12), 1)


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


def delete_records(stage: SinkScene, before: int) -> None:
    KafkaAdminClient(bootstrap_servers=stage.servers).delete_records({stage.place(): before})


def recreate(stage: SinkScene) -> None:
    """Delete the topic and create it again, longer than before, with seven events that are not stored yet."""
    admin = KafkaAdminClient(bootstrap_servers=stage.servers)
    admin.delete_topics([stage.topic])

    def created() -> bool:
        try:
            admin.create_topics({stage.topic: {"num_partitions": 1, "replication_factor": 1}})
        except Exception:
            return False
        return True

    until(created, "the topic is created again", 30)
    stage.renew()
    stage.produce(numbered(2, 12))
