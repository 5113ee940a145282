"""Effect consumers that are killed or paused at every step: each event is charged once, and none stays open."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.payment_service import PaymentService
from tests.database.effects_instance import STEPS, EffectsInstance
from tests.database.effects_scene import OFFERS, Payments, request
from tests.kafka.topics import Topics
from tests.polling import until

Start = Callable[..., EffectsInstance]


class Scene:
    """A topic of events, the payments for them, and workers in processes of their own."""

    def __init__(self, payments: Payments, topics: Topics, topic: str, settings: Mapping[str, Any], folder: Path) -> None:
        self.payments, self.topics, self.topic = payments, topics, topic
        self._settings, self._folder = settings, folder
        self.started: list[EffectsInstance] = []
        self.events: list[str] = []

    def write(self, count: int) -> None:
        new = [f"order-{number}" for number in range(len(self.events), len(self.events) + count)]
        self.topics.write(self.topic, map(request, new), lambda number: b"customer-%d" % (number % 5))
        self.events += new

    def worker(self, **more: Any) -> EffectsInstance:
        log = self._folder / f"worker-{len(self.started)}.log"
        self.started.append(EffectsInstance({**self._settings, **more}, log))
        return self.started[-1]

    def acknowledged(self) -> None:
        until(lambda: sum(self.topics.committed(self.topic, self.topic).values()) == len(self.events), "all records are acknowledged", 60)

    def complete(self) -> None:
        """Every event is acknowledged, charged once and recorded."""
        self.acknowledged()
        self.payments.charged_once(self.events)


@pytest.fixture
def payments(engine: Engine, tmp_path: Path) -> Iterator[Payments]:
    with PaymentService(tmp_path / "charges.jsonl", honours_key=False) as service:
        yield Payments(engine, service)


@pytest.fixture
def scene(payments: Payments, broker: Broker, begun: Callable[..., str], database_url: str, tmp_path: Path) -> Iterator[Scene]:
    name = begun(2)
    settings = {"api": payments.service.url, "url": database_url, "servers": broker.bootstrap_servers, "topic": name}
    made = Scene(payments, Topics(broker.bootstrap_servers), name, settings, tmp_path)
    yield made
    for each in made.started:
        each.kill()


def at(step: str, nth: int) -> Any:
    return pytest.param(step, nth, marks=[] if (step, nth) in (("sending", 7), ("called", 7)) else [pytest.mark.slow])


@pytest.mark.parametrize(("step", "nth"), [at(step, nth) for step in STEPS for nth in (1, 7) if nth == 1 or step in STEPS[1:4]])
def test_a_worker_killed_between_every_two_steps_charges_each_event_once(scene: Scene, step: str, nth: int) -> None:
    """The service ignores keys, so that sending twice would show."""
    scene.write(30)
    scene.worker(at=step, nth=nth, instance="static").killed()
    last = scene.worker(instance="static")
    scene.complete()
    counts = last.stop()
    assert counts["failed"] == counts["held"] == counts["dead"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("offers", [name for name in OFFERS if name != "look-up"])
def test_a_worker_killed_again_and_again_with_every_kind_of_api(scene: Scene, offers: str) -> None:
    """Without look-up and keys, the calls under way at a kill are held: charged once or not at all, never twice."""
    scene.payments.service.honours_key = OFFERS[offers][0] > 0
    for step in STEPS:
        scene.write(10)
        scene.worker(at=step, nth=3 if step in STEPS[1:4] else 1, instance="static", offers=offers).killed()
    last = scene.worker(instance="static", offers=offers)
    if offers != "neither":
        scene.complete()
    scene.acknowledged()
    last.stop()
    states, charges = scene.payments.states(), scene.payments.charges()
    assert set(charges.values()) == {1} and set(states) == set(scene.events)
    for event_id, state in states.items():
        assert state in ("SUCCESS", "HELD") and (state == "HELD" or charges[event_id] == 1)
    held = [event_id for event_id, state in states.items() if state == "HELD"]
    assert (0 < len(held) <= 4 * len(STEPS)) if offers == "neither" else not held


@pytest.mark.slow  # test_effects.py has it without a process of its own
@pytest.mark.parametrize("step", ["sending", "called"])
def test_a_worker_paused_beyond_its_lease_sends_nothing_after_another_has_settled_its_call(scene: Scene, step: str) -> None:
    """With one thread: a second one could be paused between its last check and its call. That is the limit that docs name."""
    scene.write(20)
    paused = scene.worker(at=step, nth=5, signal="SIGSTOP", workers=1)
    paused.wait_for(f"reached {step}")
    other = scene.worker()
    scene.complete()
    sent = scene.payments.service.requests["POST"]
    paused.process.send_signal(signal.SIGCONT)
    scene.write(10)
    scene.complete()
    paused.stop(), other.stop()
    assert scene.payments.service.requests["POST"] == sent + 10, "the paused worker has not sent the call it was about to make"


@pytest.mark.slow
def test_workers_that_come_and_go_under_load_charge_each_event_once(scene: Scene) -> None:
    service = scene.payments.service
    first, second = scene.worker(), scene.worker()
    for each in (first, second):
        each.wait_for("started")
    for step in STEPS[1:4]:
        scene.write(60)
        service.fault("close_after", 3)
        service.fault("error_before", 3)
        scene.worker(at=step, nth=9).wait_for("started")
        scene.write(60)
    first.kill()
    third = scene.worker()
    scene.write(30)
    scene.complete()
    for each in scene.started[2:-1]:
        each.kill()
    second.stop(), third.stop()
