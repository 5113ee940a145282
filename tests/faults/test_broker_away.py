"""A broker that goes away in the middle of a run and stays away: the run stops by name, and nothing is lost."""

from __future__ import annotations

import pytest

from ingest.local.broker import Broker
from tests.faults.conftest import broker_killed
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_broker_that_is_gone_for_longer_than_the_timeouts_stops_the_run_by_name_and_loses_nothing(alone: tuple[Broker, Pipeline]) -> None:
    own, lake = alone
    lake.produce(4000, poison=40)
    driver = broker_killed(own, lake)
    said = driver.ended(5)
    assert "ingest: BROKER_UNREACHABLE: shop.orders" in said and "Traceback" not in said
    own.start()
    lake.complete()
    lake.judge().assert_clean()
