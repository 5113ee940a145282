"""Effects while PostgreSQL is killed, gone, or cut off in the middle of a transaction."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.delivery.effects import EffectConsumer, Effected, Effects, State, effect_store
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.chaos.clock import library, shifted
from ingest.lab.embedded_postgres import Postgres
from ingest.lab.payment_service import PaymentService
from ingest.runtime.errors import InvalidEnvironment
from tests.database.effects_scene import Payments, emptied, http_api, request
from tests.database.tcp_cutter import Cut, TcpCutter
from tests.kafka.topics import QUICK, Topics
from tests.polling import until


def consumer(effects: Effects, topics: Topics, topic: str, **more: Any) -> EffectConsumer:
    def event_id(record: Any) -> str:
        event: str = json.loads(record.value)["event"]
        return event

    return EffectConsumer(effects, topic, topic, topics.servers, event_id=event_id, request_of=lambda record: record.value, **QUICK, **more)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PaymentService]:
    with PaymentService(tmp_path / "charges.jsonl") as running:
        yield running


def start_again(server: Postgres) -> None:
    """Start a killed server. That fails while its child processes are still ending."""

    def started() -> bool:
        with suppress(InvalidEnvironment):
            return server.start().process is not None
        return False

    until(started, "PostgreSQL starts", 60)


@pytest.fixture(scope="module")
def killable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("postgres")) as running:
        engine = connect(running.url)
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE ROLE shop SUPERUSER LOGIN PASSWORD 's3cret-word'")
        engine.dispose()
        yield running


@pytest.fixture
def server(killable: Postgres) -> Postgres:
    """A server of this module's own, which its tests may kill."""
    start_again(killable)
    return killable


@pytest.fixture
def payments(server: Postgres, service: PaymentService) -> Iterator[Payments]:
    """The payments in that server's database."""
    engine = connect(make_url(server.url).set(username="shop", password="s3cret-word").render_as_string(hide_password=False))
    schema.migrate(engine)
    yield Payments(emptied(engine), service)
    engine.dispose()


def test_an_outcome_is_recorded_even_if_the_database_is_killed_during_the_call(payments: Payments, server: Postgres) -> None:
    """The API offers neither a look-up nor keys: if the outcome were forgotten, the call would be held."""

    with ThreadPoolExecutor(1) as pool:
        # The restart must not end with a thread, so it is made on this one, and the call on the other.
        killed = threading.Event()

        def on_step(step: str) -> None:
            if step == "called":
                server.kill()
                killed.set()

        performing = pool.submit(payments.offers("neither", lease_s=60.0, on_step=on_step).perform, "order-1", request("order-1"))
        assert killed.wait(20)
        start_again(server)
        done = performing.result(60)
    assert done.state is State.SUCCESS and payments.history("order-1") == ["SENDING", "SUCCESS"]
    payments.charged_once(["order-1"])


def test_a_database_that_stays_away_ends_the_call_with_an_error_and_a_reconciler_settles_it_later(
    payments: Payments, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effect_store, "DATABASE_WITHIN_S", 0.5)
    charge = payments.offers("look-up", lease_s=2.0, on_step=lambda step: server.kill() if step == "called" else None)
    with pytest.raises(InvalidEnvironment, match="DATABASE_UNREACHABLE") as error:
        charge.perform("order-1", request("order-1"))
    assert "s3cret-word" not in str(error.value) and error.value.__cause__ is None
    start_again(server)
    assert payments.states() == {"order-1": "SENDING"} and payments.charges() == {"order-1": 1}
    reconciler = payments.offers("look-up")
    until(lambda: reconciler.reconcile() == {State.SUCCESS: 1}, "the lease ends, and the call is found", 20)
    payments.charged_once(["order-1"])
    assert payments.history("order-1") == ["SENDING", "SUCCESS"] and payments.service.requests["POST"] == 1


@pytest.mark.parametrize("shift_s", [-3, pytest.param(3, marks=pytest.mark.slow)], ids=["back", "ahead"])
def test_a_failover_to_a_server_with_another_clock_doubles_nothing(
    tmp_path_factory: pytest.TempPathFactory, service: PaymentService, shift_s: int
) -> None:
    """Back: the API has forgotten the key before the new clock says so. Ahead: the first request is under way for longer than it says."""
    with TemporaryDirectory() as folder:  # the server's user must be able to read the library
        Path(folder).chmod(0o755)
        if (preload := library(Path(folder))) is None:
            pytest.skip("no C compiler for the library that moves a process's clock")
        place = tmp_path_factory.mktemp("failover") / "postgres"
        with Postgres(place) as first:
            engine = connect(first.url)
            schema.migrate(engine)
            payments = Payments(engine, service)
            if shift_s < 0:
                service.fault("close_after")
                api = http_api(service.url, "keys")
                api.key_valid_s = 1.8  # less the lease: 0.6 s
            else:
                service.slow_s = 3.0
                service.fault("slow_before")
                api = http_api(service.url, "look-up", settle_s=3.5)
            service.honours_key = False
            began = time.monotonic()
            payments.left_open(payments.effects(api, lease_s=1.2), ["order-1"])
        with Postgres(place, environment=shifted(preload, shift_s)):
            until(lambda: time.monotonic() - began > 0.8, "the key is forgotten", 5)
            worker, states = payments.effects(api, lease_s=1.2), set[str]()

            def settled() -> bool:
                states.update(worker.reconcile())
                return bool({"SUCCESS", "HELD"} & states)

            until(settled, "a worker has settled the call", 20)
            assert states & {"SUCCESS", "HELD"} == {"HELD" if shift_s < 0 else "SUCCESS"}
            assert payments.charges() == {"order-1": 1} and service.requests["POST"] == 1
            engine.dispose()


# The changes of a call that the API refuses at first: their statements, and the steps before them.
CHANGES = {
    "first SENDING": (b"INSERT INTO oncelake_effect ", "start"),
    "outcome": (b"UPDATE oncelake_effect SET state", "called"),
    "second SENDING": (b"UPDATE oncelake_effect SET state", "recorded"),
}


@pytest.mark.parametrize("delivered", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["answer lost", "statement lost"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_without_an_answer_is_neither_lost_nor_taken_for_another_workers(
    engine: Engine, database_url: str, service: PaymentService, delivered: bool, change: str
) -> None:
    """The repeated statement finds its own name in the row. Otherwise the worker would wait for itself, and then hold the call."""
    url, (statement, after) = make_url(database_url), CHANGES[change]
    assert url.port
    cuts: list[Cut] = []
    with TcpCutter(url.port) as cutter:

        def on_step(step: str) -> None:
            if step == after and not cuts:
                cuts.append(cutter.cut_at(statement, delivered=delivered))

        through = connect(url.set(port=cutter.port).render_as_string(hide_password=False))
        charge = Payments(through, service).offers("neither", on_step=on_step)
        service.fault("unauthorized")
        on_step("start")
        done = charge.perform("order-1", request("order-1"))
        through.dispose()
    assert done.state is State.SUCCESS and not done.again and [cut.done.is_set() for cut in cuts] == [True]
    payments = Payments(engine, service)
    payments.charged_once(["order-1"])
    assert payments.history("order-1") == ["SENDING", "WAITING", "SENDING", "SUCCESS"]


@pytest.mark.slow
def test_a_bad_record_that_cannot_be_kept_is_read_again_by_the_next_run(
    payments: Payments, server: Postgres, broker: Broker, begun: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effect_store, "DATABASE_WITHIN_S", 0.5)
    topics, name = Topics(broker.bootstrap_servers), begun()
    topics.write(name, [b"?", request("order-1")])
    with consumer(payments.offers("look-up"), topics, name) as reading:
        server.kill()
        with pytest.raises(InvalidEnvironment, match="DATABASE_UNREACHABLE"):
            reading.run(idle_s=10)
        start_again(server)
        assert topics.committed(name, name) == {0: 0}
        counts = reading.run(stop=lambda: reading.counts.dead + reading.counts.success == 2, idle_s=20)
    assert (counts.dead, counts.success) == (1, 1) and topics.committed(name, name) == {0: 2}


@pytest.mark.slow
@pytest.mark.parametrize("offers", ["look-up", "keys"])
def test_a_database_that_is_killed_again_and_again_under_load_doubles_nothing(
    payments: Payments, server: Postgres, broker: Broker, begun: Callable[..., str], offers: str
) -> None:
    topics, name = Topics(broker.bootstrap_servers), begun(2)
    events = [f"order-{number}" for number in range(300)]
    topics.write(name, map(request, events), lambda number: b"key-%d" % (number % 40))
    payments.service.slow_s = 0.05
    payments.service.fault("slow_before", 300)
    stopping = threading.Event()

    def run() -> Effected:
        with consumer(payments.offers(offers), topics, name, records=50) as reading:
            return reading.run(stop=stopping.is_set)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        for charges in (50, 100, 150, 200):
            until(lambda: running.done() or len(payments.service.charges) >= charges, "the next charges", 60)  # noqa: B023 - called at once
            server.kill()
            start_again(server)
        until(lambda: sum(topics.committed(name, name).values()) == 300 or running.done(), "all records are acknowledged", 90)
        stopping.set()
        running.result()
    payments.charged_once(events)
