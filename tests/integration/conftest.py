"""One Spark session for all integration tests, and fixtures that make lanes (with Kafka) and desks (without)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.lab.broker.embedded_broker import Broker
    from tests.integration.desk import Desk
    from tests.integration.lane import Lane


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as a run starts it: pinned jars, pinned semantics, two parallel tasks.

    The JVM's optimizing compiler pays off only after minutes of the same work. Without it, hundreds of small batches take half the time.
    """
    from ingest.runtime import spark as sessions

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("INGEST_DRIVER_JAVA_OPTIONS", f"{sessions.ONE_COMPILER} -XX:+UseSerialGC")
        session = sessions.start("local[2]", tmp_path_factory.mktemp("spark") / "spark.log", name="tests")
    yield session
    session.stop()


@pytest.fixture
def by_workers() -> bool:
    """Whether the direct writer writes. `make faults` runs these tests again with Delta in Spark."""
    return os.environ.get("INGEST_WRITER", "direct") != "spark"


@pytest.fixture
def lane(spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path, by_workers: bool) -> Iterator[Callable[..., Lane]]:
    """`lane(columns, partitions=1, **contract)` makes a lane on a fresh topic."""
    from tests.integration.interpreted import interpreted
    from tests.integration.lane import Lane
    from tests.integration.records import contract

    def make(columns: Mapping[str, str] | None = None, *, partitions: int = 1, **more: Any) -> Lane:
        rules = contract(columns, topic=topic(partitions), **more)
        return Lane(spark, rules, broker.bootstrap_servers, tmp_path, direct=by_workers)

    with interpreted(spark):
        yield make


@pytest.fixture
def desk(spark: SparkSession, tmp_path: Path, by_workers: bool) -> Iterator[Callable[..., Desk]]:
    """`desk(columns, partitions=1, **contract)` makes empty tables that process batches without Kafka."""
    from tests.integration.desk import Desk
    from tests.integration.interpreted import interpreted
    from tests.integration.records import contract

    def make(columns: Mapping[str, str] | None = None, *, partitions: int = 1, **more: Any) -> Desk:
        return Desk(spark, contract(columns, **more), tmp_path, partitions, direct=by_workers)

    with interpreted(spark):
        yield make
