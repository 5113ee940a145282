"""Fixtures of the Kafka tests: a real broker, real child processes. Marked `integration`, but for what says that it is a unit test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.topics import Topics

if TYPE_CHECKING:
    from ingest.local.broker import Broker
    from ingest.local.proxy import Proxy
    from tests.kafka.instance import Instance


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("unit") is None:
            item.add_marker(pytest.mark.integration)


@pytest.fixture
def topics(broker: Broker) -> Topics:
    """Writes and reads topics by themselves, without the code under test."""
    return Topics(broker.bootstrap_servers)


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    """A proxy before the session's broker, for this test alone."""
    from ingest.local.proxy import Proxy

    with Proxy(broker.bootstrap_servers) as running:
        yield running


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[Callable[[Mapping[str, Any]], Instance]]:
    """`instances({…})` starts a transform in a process of its own; all end with the test."""
    from tests.kafka.instance import Instance

    made: list[Instance] = []

    def start(settings: Mapping[str, Any]) -> Instance:
        made.append(Instance(settings, tmp_path / f"instance-{len(made)}.log"))
        return made[-1]

    yield start
    for each in made:
        each.kill()
        assert isinstance(each.process, subprocess.Popen) and each.process.poll() is not None
