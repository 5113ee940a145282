"""The demo of money: two chains with the same payments and the same faults, and the balance of each stage."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import ColumnElement, Engine, Table, func, select

from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.delivery.database.tables import effect, outbox
from ingest.delivery.trace.database_trail import database_trail
from ingest.delivery.trace.kafka_trail import kafka_trail
from ingest.delivery.trace.lake_trail import lake_trail
from ingest.delivery.trace.sighting import Sighting
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.demo.demo_folder import run_folder, shown
from ingest.lab.demo.story import Say
from ingest.lab.embedded_postgres import Postgres
from ingest.lab.interrupt import apart, interrupted_by
from ingest.lab.payment_service import PaymentService
from ingest.lab.payments import chain, naive
from ingest.lab.payments.lake_stage import TABLE, LakeStage
from ingest.lab.payments.money import Held, charged, held, in_lake, in_table, in_topic
from ingest.lab.payments.payment import CHECKED_TOPIC, NAIVE_TOPIC, OUTBOX_TOPIC, PARTITIONS, StageSettings, payment
from ingest.lab.payments.stage_process import StageProcess
from ingest.runtime.errors import RunStopped

POLL_S: Final = 0.05
# A demo takes one to two minutes. Longer than this means that a stage hangs.
WITHIN_S: Final = 600.0
# The naive consumer has nothing more to do if its table stays the same for this long.
QUIET_S: Final = 5.0
# What the payment service does wrong, at these shares of the payments, in both chains.
FAULTS: Final = ((0.1, "hang_after"), (0.3, "error_after"), (0.5, "close_after"), (0.6, "error_before"), (0.8, "hang_after"))
FAULT_TIMES: Final = 2


@dataclass
class PaymentsReport:
    """`chains` are the stages of each chain, `trail` the way of one payment, `kills` by chain."""

    folder: Path
    payments: int
    chains: dict[str, list[Held]]
    kills: dict[str, int]
    trail: tuple[str, list[Sighting]]
    verify_exit: int
    verify_output: list[str]
    effects: dict[str, int]
    lake: LakeStage
    postgres: Path

    @property
    def ok(self) -> bool:
        """Whether every stage of our chain holds every payment once, to the cent, and `ingest verify` balances."""
        return self.verify_exit == 0 and all(each.exact for each in self.chains["oncelake"])


def run(root: Path, payments: int, seed: int, say: Say) -> PaymentsReport:
    """Run the demo in a new folder below `root`. All its processes have ended when it returns or raises.

    Raises the errors of Broker.start and Postgres.start, and RunStopped DEMO_FAILED.
    """
    with ExitStack() as stack:
        stack.enter_context(interrupted_by(signal.SIGTERM, signal.SIGHUP))
        folder = stack.enter_context(run_folder(root.absolute()))
        broker, server = stack.enter_context(Broker(folder / "broker")), stack.enter_context(Postgres(folder / "postgres"))
        for topic in (OUTBOX_TOPIC, CHECKED_TOPIC, NAIVE_TOPIC):
            apart(partial(broker.create_topic, topic, PARTITIONS))
        apart(partial(chain.begin, broker.bootstrap_servers))
        services = {name: stack.enter_context(PaymentService(folder / f"{name}-charges.jsonl")) for name in ("oncelake", "naive")}
        engine = connect(server.url)
        stack.callback(engine.dispose)
        schema.migrate(engine)
        chain.books.metadata.create_all(engine)
        naive.books.metadata.create_all(engine)
        say("demo", f"Kafka, PostgreSQL and two payment services are up; files: {shown(folder)}")
        expected = {each.payment_id: each.amount_cents for each in (payment(number, seed) for number in range(1, payments + 1))}
        third = max(1, payments // 3)

        def process(name: str, stage: str, *kills: tuple[str, int, str]) -> StageProcess:
            settings = StageSettings(stage, server.url, broker.bootstrap_servers, services[name].url, payments, seed)
            made = StageProcess(name, settings, folder, say, kills)
            stack.callback(made.end)
            return made

        stored = ("stored", third, "between the business row and its event")
        ours = {
            "application": process("oncelake", "application", stored),
            "relay": process("oncelake", "relay", ("committed", 2, "between Kafka's commit and the mark in the outbox")),
            "transform": process("oncelake", "transform", ("flushed", 2, "before the commit of its transaction")),
            "sink": process("oncelake", "sink", ("written", 2, "before the commit of rows, ids and offset")),
            "charge": process("oncelake", "charge", ("called", third, "after a charge, before its outcome was recorded")),
        }
        theirs = {
            "application": process("naive", "application", ("stored", third, "(naive) between commit and send")),
            "consumer": process("naive", "consumer", ("charged", third, "(naive) after a charge, before the next commit of offsets")),
        }
        lake = LakeStage(folder / "chain", broker.bootstrap_servers)
        stack.callback(lake.end)
        race = _Race(engine, services, payments, [*ours.values(), *theirs.values()], say)
        verify_exit, verify_output = race.run(ours, theirs, lake)
        stages = apart(lambda: dict(_stages(engine, broker.bootstrap_servers, services, lake, expected)))
        trail = apart(lambda: _trail(engine, broker, lake, expected))
        kills = {
            "oncelake": sum(each.killed for each in ours.values()) + 1,
            "naive": sum(each.killed for each in theirs.values()),
        }
        with engine.connect() as connection:
            states = connection.execute(select(effect.c.state, func.count()).group_by(effect.c.state))
            settled = {str(state): int(number) for state, number in states}
        report = PaymentsReport(folder, payments, stages, kills, trail, verify_exit, verify_output, settled, lake, folder / "postgres")
    return report


class _Race:
    """Runs both chains side by side, makes the payment services fail, and stops each stage when it has nothing left to do."""

    def __init__(self, engine: Engine, services: dict[str, PaymentService], payments: int, processes: list[StageProcess], say: Say) -> None:
        self._engine, self._services, self._payments, self._processes, self._say = engine, services, payments, processes, say
        self._faults = {name: list(FAULTS) for name in services}
        self._deadline = time.monotonic() + WITHIN_S

    def run(self, ours: dict[str, StageProcess], theirs: dict[str, StageProcess], lake: LakeStage) -> tuple[int, list[str]]:
        """Returns the exit code and the output of `ingest verify`."""
        self._until(lambda: self._rows(chain.books.bookings) > self._payments // 3, "a third of the payments are booked")
        killed = lake.run(killed=True)
        self._until(lambda: ours["application"].done and self._rows(outbox, outbox.c.published_at.is_(None)) == 0, "the outbox is empty")
        ours["relay"].stop()
        self._until(lambda: self._rows(chain.books.bookings) >= self._payments, "all payments are booked")
        ours["transform"].stop()
        ours["sink"].stop()
        self._until(lambda: killed.poll() is not None, "the run is killed")
        if killed.poll() != -signal.SIGKILL:
            found, remedy = f"the first run of the lake ended with exit code {killed.poll()}.", f"read {killed.output}."
            raise RunStopped("DEMO_FAILED", found, expected="a kill between its commit and Spark's note of it.", remedy=remedy)
        self._say("lake", "KILLED after its Delta commit, before Spark noted it")
        last = lake.run(killed=False)
        self._until(lambda: last.poll() is not None, "the lake has read everything")
        self._until(
            lambda: self._rows(effect, effect.c.state.in_(("SUCCESS", "FAILED", "HELD"))) >= self._payments, "all charges are settled"
        )
        ours["charge"].stop()
        verify = lake.verify()
        self._until(lambda: verify.poll() is not None and theirs["application"].done and self._quiet(), "the naive chain is quiet")
        theirs["consumer"].stop()
        self._until(lambda: all(each.done for each in self._processes), "all processes have ended")
        return verify.poll() or 0, verify.lines()

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        while not reached():
            for each in self._processes:
                each.step()
            for name, service in self._services.items():
                share = len(service.charges) / self._payments
                while self._faults[name] and share >= self._faults[name][0][0]:
                    service.fault(self._faults[name].pop(0)[1], FAULT_TIMES)
            if time.monotonic() > self._deadline:
                found, remedy = f"not within {WITHIN_S:.0f} s: {what}.", "read the .out files in the demo's folder."
                raise RunStopped("DEMO_FAILED", found, expected="stages that work off what they are given.", remedy=remedy)
            time.sleep(POLL_S)
        self._say("demo", what, detail=True)

    def _rows(self, table: Table, where: ColumnElement[bool] | None = None) -> int:
        with self._engine.connect() as connection:
            counted = select(func.count()).select_from(table)
            return int(connection.execute(counted if where is None else counted.where(where)).scalar_one())

    def _quiet(self) -> bool:
        """Whether the naive consumer has done nothing for a while."""
        now = self._rows(naive.books.bookings), len(self._services["naive"].charges)
        if now != getattr(self, "_before", None):
            self._before, self._since = now, time.monotonic()
        return time.monotonic() - self._since > QUIET_S


def _stages(
    engine: Engine, servers: str, services: dict[str, PaymentService], lake: LakeStage, expected: dict[str, int]
) -> Iterator[tuple[str, list[Held]]]:
    yield (
        "oncelake",
        [
            held("application", in_table(engine, chain.books.payments), expected),
            held("Kafka, from the outbox", in_topic(servers, OUTBOX_TOPIC), expected, copies_expected=True),
            held("Kafka, checked", in_topic(servers, CHECKED_TOPIC), expected, copies_expected=True),
            held("database, booked", in_table(engine, chain.books.bookings), expected),
            held("API, charged", charged(services["oncelake"].charges), expected),
            held("lake", in_lake(lake.target), expected),
        ],
    )
    yield (
        "naive",
        [
            held("application", in_table(engine, naive.books.payments), expected),
            held("Kafka", in_topic(servers, NAIVE_TOPIC), expected),
            held("database, booked", in_table(engine, naive.books.bookings), expected),
            held("API, charged", charged(services["naive"].charges), expected),
        ],
    )


def _trail(engine: Engine, broker: Broker, lake: LakeStage, expected: dict[str, int]) -> tuple[str, list[Sighting]]:
    """The trail of the payment whose API call had the longest history: it met a fault."""
    from ingest.contract.definition import load_contracts
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.runtime.places import Places

    with engine.connect() as connection:
        longest = connection.execute(select(effect.c.event_id).order_by(effect.c.attempts.desc(), effect.c.created_at)).scalars().first()
    payment_id = longest or next(iter(expected))
    (contract,) = load_contracts(lake.project, [TABLE])
    places = Places(str(lake.lake), str(lake.folder / "checkpoints"), contract.pipeline, contract.table)
    kafka = KafkaOptions(broker.bootstrap_servers)
    found = [
        *database_trail(engine, payment_id),
        *kafka_trail(kafka, CHECKED_TOPIC, payment_id),
        *lake_trail(contract, places, payment_id),
    ]
    return payment_id, found
