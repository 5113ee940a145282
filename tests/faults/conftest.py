"""Fixtures of the fault tests; `faults` marks all of them."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from ingest.lab.broker.embedded_broker import Broker
from tests.faults.driver import Driver, until
from tests.faults.pipeline import Pipeline, with_jvm


class PipelineFactory(Protocol):
    def __call__(self, *, partitions: int = 2, **settings: Any) -> Pipeline: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.faults)


def _factory(folder: Path, broker: Broker, quick: Mapping[str, str], made: list[Pipeline]) -> PipelineFactory:
    def make(*, partitions: int = 2, **settings: Any) -> Pipeline:
        topic = f"faults-{uuid.uuid4().hex[:12]}"
        broker.create_topic(topic, partitions)
        pipeline = Pipeline(folder / topic, broker.bootstrap_servers, topic, environment=quick, **settings)
        made.append(pipeline)
        return pipeline

    return make


@pytest.fixture(scope="session")
def quick() -> Mapping[str, str]:
    """The environment of quick JVMs."""
    return with_jvm()


@pytest.fixture
def pipeline(tmp_path: Path, broker: Broker, quick: Mapping[str, str]) -> Iterator[PipelineFactory]:
    """`pipeline(partitions=2, **settings)` makes a scratch lake with a topic of its own; its processes end with the test."""
    made: list[Pipeline] = []
    yield _factory(tmp_path, broker, quick, made)
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def shared_pipeline(tmp_path_factory: pytest.TempPathFactory, broker: Broker, quick: Mapping[str, str]) -> Iterator[PipelineFactory]:
    """As `pipeline`, for a scenario that several tests of a module look at."""
    made: list[Pipeline] = []
    yield _factory(tmp_path_factory.mktemp("faults"), broker, quick, made)
    for each in made:
        each.close()


def broker_killed(own: Broker, lake: Pipeline) -> Driver:
    """A driver that is to go on in the middle of its second batch and finds its broker gone."""
    driver = lake.start("--every", "0s", fault="after_offset_log:hang@3")
    driver.stopped()
    own.kill()
    driver.proceed()
    return driver


def broker_back(own: Broker, lake: Pipeline, driver: Driver, commits: int) -> bool:
    """The broker comes back: whether the driver has gone on, past so many commits, and ended on SIGTERM; else it has stopped by name."""
    own.start()
    until(
        lambda: driver.process.poll() is not None or len(lake.batches()) > commits,
        lambda: f"batches after the broker came back; {driver.said}",
    )
    if driver.process.poll() is None:
        driver.signal(signal.SIGTERM)
        driver.ended(0)
        return True
    said = driver.ended(5)
    assert "ingest: BROKER_UNREACHABLE: " in said and "Traceback" not in said, said
    return False


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[tuple[Broker, Pipeline]]:
    """A broker that the test may kill, and a lake that reads its topic."""
    with Broker(tmp_path / "broker") as own:
        own.create_topic("orders", 2)
        lake = Pipeline(tmp_path / "pipeline", own.bootstrap_servers, "orders", batch=1500)
        try:
            yield own, lake
        finally:
            lake.close()
