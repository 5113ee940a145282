"""Fixtures of the Kafka tests: a real broker and real child processes. Tests without the mark `unit` get the mark `integration`."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.delivery.kafka import ExactlyOnce, TransactionalProducer
from tests.kafka.topics import Make, Topics

if TYPE_CHECKING:
    from ingest.lab.broker.embedded_broker import Broker
    from ingest.lab.proxy import Proxy
    from tests.kafka.instance import Instance


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("unit") is None:
            item.add_marker(pytest.mark.integration)


@pytest.fixture
def topics(broker: Broker) -> Topics:
    """Writes and reads topics without the code under test."""
    return Topics(broker.bootstrap_servers)


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    """A proxy in front of the session's broker, for this test only."""
    from ingest.lab.proxy import Proxy

    with Proxy(broker.bootstrap_servers) as running:
        yield running


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[Callable[[Mapping[str, Any]], Instance]]:
    """`instances({…})` starts a transform in its own process. All of them end with the test."""
    from tests.kafka.instance import Instance

    made: list[Instance] = []

    def start(settings: Mapping[str, Any]) -> Instance:
        made.append(Instance(settings, tmp_path / f"instance-{len(made)}.log"))
        return made[-1]

    yield start
    for each in made:
        each.kill()
        assert isinstance(each.process, subprocess.Popen) and each.process.poll() is not None


@pytest.fixture
def full(topics: Topics, topic: Callable[..., str], begun: Callable[..., str]) -> Callable[..., str]:
    """`full(count, partitions=1)` creates a topic that contains the values 0, 1, 2, …, in which a group of its name has begun."""

    def make(count: int, partitions: int = 1, *, group: bool = True) -> str:
        name = (begun if group else topic)(partitions)
        topics.write(name, [b"%d" % number for number in range(count)], lambda number: b"%d" % number)
        return name

    return make


@pytest.fixture
def mode() -> ExactlyOnce:
    return ExactlyOnce(f"t-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def make(mode: ExactlyOnce, topics: Topics) -> Iterator[Make]:
    """`make(servers=…, **options)` creates a producer with the test's transactional id."""
    with contextlib.ExitStack() as stack:

        def made(servers: str = topics.servers, *, timeout_ms: int = 10_000, **options: object) -> TransactionalProducer:
            own = ExactlyOnce(mode.transactional_id, timeout_ms)
            return stack.enter_context(TransactionalProducer(own, servers, **options))  # type: ignore[arg-type]

        yield made
