"""Fixtures of the fault tests. Every test in this folder gets the mark `faults`."""

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
    """The environment of JVMs that start fast."""
    return with_jvm()


@pytest.fixture
def pipeline(tmp_path: Path, broker: Broker, quick: Mapping[str, str]) -> Iterator[PipelineFactory]:
    """`pipeline(partitions=2, **settings)` creates a scratch lake with its own topic. Its processes end with the test."""
    made: list[Pipeline] = []
    yield _factory(tmp_path, broker, quick, made)
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def shared_pipeline(tmp_path_factory: pytest.TempPathFactory, broker: Broker, quick: Mapping[str, str]) -> Iterator[PipelineFactory]:
    """Like `pipeline`, for a scenario that several tests of a module share."""
    made: list[Pipeline] = []
    yield _factory(tmp_path_factory.mktemp("faults"), broker, quick, made)
    for each in made:
        each.close()


def broker_killed(own: Broker, lake: Pipeline) -> Driver:
    """Start a driver, pause it in its second batch, kill the broker and let the driver continue."""
    driver = lake.start("--every", "0s", fault="after_offset_log:hang@3")
    driver.stopped()
    own.kill()
    driver.proceed()
    return driver


def broker_back(own: Broker, lake: Pipeline, driver: Driver, commits: int) -> bool:
    """Restart the broker. True if the driver continued past `commits` batches and ended on SIGTERM.

    False if it had stopped with BROKER_UNREACHABLE.
    """
    own.start()
    until(
        lambda: driver.process.poll() is not None or len(lake.batches()) > commits,
        lambda: f"a new batch after the broker restarted; output:\n{driver.said}",
    )
    if driver.process.poll() is None:
        driver.signal(signal.SIGTERM)
        driver.ended(0)
        return True
    output = driver.ended(5)
    assert "ingest: BROKER_UNREACHABLE: " in output and "Traceback" not in output, output
    return False


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[tuple[Broker, Pipeline]]:
    """A broker that the test may kill, and a lake that reads from it."""
    with Broker(tmp_path / "broker") as own:
        own.create_topic("orders", 2)
        lake = Pipeline(tmp_path / "pipeline", own.bootstrap_servers, "orders", batch=1500)
        try:
            yield own, lake
        finally:
            lake.close()
