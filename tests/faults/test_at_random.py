"""Kills at random times, and a broker that dies during a run: wherever the fault hits, nothing is lost or duplicated."""

from __future__ import annotations

import random
import time

import pytest

from ingest.lab.broker.embedded_broker import Broker
from tests.faults.conftest import PipelineFactory, broker_back, broker_killed
from tests.faults.driver import until
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("seed", [1, 2])
def test_six_kills_at_random_times_lose_and_duplicate_nothing(pipeline: PipelineFactory, seed: int) -> None:
    """Six kills of both processes, or of one of them: three at any moment of a start, three after the run has written a batch."""
    chance = random.Random(seed)
    lake = pipeline(batch=500)
    lake.produce(8000, poison=80)
    for number in range(6):
        written = len(lake.written())
        driver = lake.start("--every", "0s")
        until(lambda driver=driver: lake.locked_by(driver), "the driver holds the lock")  # type: ignore[misc]
        if number % 2:
            until(lambda written=written: len(lake.written()) > written, "the run has written a batch")  # type: ignore[misc]
            time.sleep(chance.uniform(0, 4))
        else:
            time.sleep(chance.uniform(0, 15))
        victims = chance.choice((driver.left(), driver.left()[:1], driver.jvms()))
        for process in victims:
            process.kill()
        assert driver.died() != 0
        driver.gone()
    assert len(lake.epochs()) >= 3
    lake.complete()
    lake.judge().assert_clean()
    lake.verified()


def test_a_broker_killed_during_a_batch_delays_or_stops_the_run_and_loses_nothing(alone: tuple[Broker, Pipeline]) -> None:
    own, lake = alone
    lake.produce(6000, poison=40)
    broker_back(own, lake, broker_killed(own, lake), commits=3)
    lake.complete()
    lake.judge().assert_clean()
    lake.verified()


def test_a_broker_down_past_the_timeouts_stops_the_run_with_a_named_error_and_loses_nothing(alone: tuple[Broker, Pipeline]) -> None:
    own, lake = alone
    lake.produce(4000, poison=40)
    output = broker_killed(own, lake).ended(5)
    assert "ingest: BROKER_UNREACHABLE: shop.orders" in output and "Traceback" not in output
    own.start()
    lake.complete()
    lake.judge().assert_clean()
