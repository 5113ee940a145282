"""Sinks that are killed, stopped, cut off from PostgreSQL or started several times: each event has one row, and no event is missing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url

from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.delivery.sink import database_sink
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.embedded_postgres import Postgres
from ingest.runtime.errors import InvalidEnvironment
from tests.database.sink_instance import STEPS, SinkInstance, pay
from tests.database.sink_scene import SinkScene, numbered, scenes
from tests.database.tcp_cutter import Cut, TcpCutter
from tests.polling import until

pytestmark = pytest.mark.timeout(300)

slow = pytest.mark.slow
MakeScene = Callable[..., SinkScene]
Start = Callable[..., SinkInstance]


@pytest.fixture
def scene(engine: Engine, broker: Broker, topic: Callable[..., str]) -> Iterator[MakeScene]:
    with scenes(engine, broker.bootstrap_servers, topic) as make:
        yield make


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(scene, **settings)` starts a sink in its own process. All of them end with the test."""
    made: list[SinkInstance] = []

    def run(stage: SinkScene, **settings: Any) -> SinkInstance:
        made.append(SinkInstance(stage.settings(**settings), tmp_path / f"sink-{len(made)}.log"))
        return made[-1]

    yield run
    for each in made:
        each.kill()


@pytest.fixture
def through(postgres: Postgres, database_url: str) -> Iterator[tuple[TcpCutter, Engine]]:
    """A proxy in front of PostgreSQL, and an engine that connects through it with a password in its URL."""
    admin = connect(database_url)
    with admin.begin() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS through; CREATE ROLE through SUPERUSER LOGIN PASSWORD 'hidden-password'")
    admin.dispose()
    with TcpCutter(postgres.port) as cutter:
        url = make_url(database_url).set(port=cutter.port, username="through", password="hidden-password")
        made = connect(url.render_as_string(hide_password=False))
        yield cutter, made
        made.dispose()


@pytest.mark.parametrize("step", [step if step in ("written", "committed") else pytest.param(step, marks=slow) for step in STEPS])
def test_a_sink_killed_at_each_step_stores_each_event_once(scene: MakeScene, start: Start, step: str) -> None:
    stage = scene(2)
    stage.produce(numbered(0, 100))
    stage.produce(numbered(90, 110))
    start(stage, instance="static", at=step, nth=1 if step in ("claiming", "claimed") else 3).killed()
    stage.consistent()
    following = start(stage, instance="static")
    stage.complete()
    following.stop()


@slow
@pytest.mark.parametrize("step", ["begun", "written", "claimed"])
def test_an_owner_that_sleeps_while_another_takes_over_doubles_nothing_when_it_wakes_up(scene: MakeScene, start: Start, step: str) -> None:
    stage = scene()
    stage.produce(numbered(0, 60))
    sleeper = start(stage, at=step, nth=1 if step == "claimed" else 2, signal="SIGSTOP")
    sleeper.wait_for(f"reached {step}")
    stage.consistent()
    successor = start(stage)
    stage.complete()  # at "written", after the successor has ended the sleeper's transaction
    sleeper.send(signal.SIGCONT)
    stage.produce(numbered(60, 100))
    stage.complete()
    counts = sleeper.stop()
    successor.stop()
    stage.complete()
    if step == "begun":
        assert counts["fenced"] == 1
    if step == "written":
        assert counts["repeated"] == 1, "its connection was ended"


@slow
def test_three_sinks_of_which_some_come_and_go_store_each_event_once(scene: MakeScene, start: Start) -> None:
    stage = scene(6)
    sinks = [start(stage) for _ in range(2)]
    for each in sinks:
        each.wait_for("started")
    for turn in range(4):
        stage.produce(numbered(turn * 500 - turn * 50, turn * 500 + 500))
        sinks.append(start(stage))
        sinks[-1].wait_for("started")
        stage.produce(numbered(turn * 500 + 300, turn * 500 + 500))
        leaving = sinks.pop(0)
        if turn % 2:
            leaving.kill()
        else:
            leaving.stop()
        stage.consistent()
    stage.complete()
    for each in sinks:
        each.stop()
    stage.consistent()


@pytest.mark.parametrize("delivered", [True, pytest.param(False, marks=slow)])
def test_a_connection_cut_in_the_middle_of_a_commit_neither_loses_nor_doubles(
    scene: MakeScene, through: tuple[TcpCutter, Engine], delivered: bool
) -> None:
    """Delivered or not, the sink gets no answer to its COMMIT. The offsets in the database tell the outcome."""
    cutter, engine = through
    stage = scene()
    stage.produce(numbered(0, 60))
    cuts: list[Cut] = []

    def on_step(step: str) -> None:
        if step == "written" and len(cuts) < 2:
            cuts.append(cutter.cut_at(b"COMMIT", delivered=delivered))

    with stage.sink(database=engine, batch=20, on_step=on_step) as sink:
        counts = sink.run(stop=lambda: stage.offsets() == {0: 60}, idle_s=30)
    stage.complete()
    assert all(cut.done.is_set() for cut in cuts) and counts.repeated == 2 and counts.duplicates == 0
    assert counts.stored == (20 if delivered else 60), "a transaction whose commit was not answered is not counted"


@slow
@pytest.mark.parametrize("wraps", ["raises", "wraps", "swallows"])
def test_a_connection_that_write_loses_makes_no_dead_letter_whatever_write_makes_of_the_error(
    scene: MakeScene, through: tuple[TcpCutter, Engine], wraps: str
) -> None:
    cutter, engine = through
    stage = scene()
    stage.produce(["a"])
    calls = 0

    def write(connection: Any, records: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            cutter.cut()
        try:
            pay(connection, records)
        except Exception as error:
            if wraps == "raises":
                raise
            if wraps == "wraps":
                raise ValueError("failed") from error

    with stage.sink(write, database=engine) as sink:
        counts = sink.run(stop=stage.done(sink, 1), idle_s=30)
    assert (counts.stored, counts.dead, counts.repeated) == (1, 0, 1)
    stage.complete()


@slow
def test_a_database_that_answers_nothing_for_long_ends_the_run_and_the_next_run_continues(
    scene: MakeScene, through: tuple[TcpCutter, Engine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    cutter, engine = through
    monkeypatch.setattr(database_sink, "_ANSWER_WITHIN_S", 1.0)
    stage = scene()
    stage.produce(numbered(0, 20))
    with stage.sink(database=engine, batch=10) as sink:
        sink.run(stop=stage.done(sink, 10), idle_s=20)
        cutter.refuse()
        stage.produce(numbered(20, 40))
        with pytest.raises(InvalidEnvironment) as ended:
            sink.run(idle_s=20)
        assert ended.value.code == "DATABASE_UNREACHABLE" and str(cutter.port) in ended.value.found
        assert "trying again" in caplog.text and "hidden-password" not in f"{ended.value} {ended.value!r} {caplog.text}"
        cutter.allow()
        sink.run(stop=stage.done(sink, 40), idle_s=20)
    stage.complete()


@slow
def test_a_postgresql_killed_and_restarted_in_the_middle_delays_the_sinks_and_nothing_else(
    scene: MakeScene, start: Start, tmp_path: Path
) -> None:
    with Postgres(tmp_path / "own") as own:
        engine = connect(own.url)
        schema.migrate(engine)
        stage = scene(2, engine)
        sinks = [start(stage, batch=5) for _ in range(2)]
        for each in sinks:
            each.wait_for("started")
        stopping = threading.Event()

        def produce() -> None:
            number = 0
            while not stopping.is_set():
                stage.produce(numbered(number, number + 20))
                number += 15
                stopping.wait(0.02)

        with ThreadPoolExecutor(1) as pool:
            producing = pool.submit(produce)
            for kills in range(3):
                stored = len(stage.paid())
                until(lambda before=stored: len(stage.paid()) > before + 50, "the next payments", 60)  # type: ignore[misc]
                assert own.kill() if kills % 2 == 0 else own.stop()
                own.start()
                engine.dispose()
            stopping.set()
            producing.result()
        stage.complete()
        counts = [each.stop() for each in sinks]
        assert all(each["duplicates"] + each["stored"] > 0 for each in counts)
        engine.dispose()


@slow
def test_a_sink_that_waits_for_the_lock_of_a_sleeper_takes_over_the_partition_of_the_sleeper(scene: MakeScene, start: Start) -> None:
    """It waits for an event id of the other partition. If it waited for ever, it could never claim that partition and end the wait."""
    stage = scene(2)
    first = start(stage, at="identified", signal="SIGSTOP")
    second = start(stage)
    for each in (first, second):
        each.wait_for("started")

    def owned_by(instance: SinkInstance) -> list[int]:
        return [partition for partition, owner in stage.owners().items() if f":{instance.process.pid}:" in owner]

    until(lambda: len(owned_by(first)) == len(owned_by(second)) == 1, "each owns a partition", 60)
    (of_first,), (of_second,) = owned_by(first), owned_by(second)
    stage.produce(numbered(0, 10), of_first)
    first.wait_for("reached identified")
    stage.produce(numbered(0, 10), of_second)
    until(lambda: stage.offsets() == {0: 10, 1: 10}, "the other one has taken over", 90)
    first.send(signal.SIGCONT)
    assert second.stop()["repeated"] >= 1, "it gave up its wait for the lock"
    first.stop()
    stage.complete()


@slow
def test_two_sinks_that_store_the_same_ids_in_other_orders_do_not_deadlock_and_double_nothing(scene: MakeScene, start: Start) -> None:
    stage = scene(2)
    ids = numbered(0, 400)
    stage.produce(ids, 0)
    stage.produce(reversed(ids), 1)
    sinks = [start(stage, batch=100) for _ in range(2)]
    until(lambda: stage.offsets() == {0: 400, 1: 400}, "all is stored", 90)
    counts = [each.stop() for each in sinks]
    assert stage.paid() == dict.fromkeys(ids, 1) and stage.events() == dict.fromkeys(ids, 1)
    assert sum(each["repeated"] for each in counts) == 0
