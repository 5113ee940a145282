"""A broker that goes away in the middle of a run and stays away: the run stops by name, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.local.broker import Broker
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_broker_that_is_gone_for_longer_than_the_timeouts_stops_the_run_by_name_and_loses_nothing(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as own:
        own.create_topic("orders", 2)
        lake = Pipeline(tmp_path / "pipeline", own.bootstrap_servers, "orders", batch=1500)
        try:
            lake.produce(4000, poison=40)
            driver = lake.start("--every", "0s", fault="after_offset_log:hang@1")
            driver.stopped()
            own.kill()
            driver.proceed()
            said = driver.ended(5)
            assert "ingest: BROKER_UNREACHABLE: shop.orders" in said and "Traceback" not in said
            own.start()
            lake.complete()
            lake.judge().assert_clean()
        finally:
            lake.close()
