"""Fixtures for every test layer: one embedded broker per test session, and topics with unique names."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from ingest.lab.broker.embedded_broker import Broker
    from tests.secured import Door

TopicFactory = Callable[..., str]

# The time per example depends on the machine, not on the code. In CI the examples are always the same, as in hypothesis's own profile.
_SLOW = [HealthCheck.too_slow]
settings.register_profile("any machine", deadline=None, suppress_health_check=_SLOW, derandomize="CI" in os.environ)
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker on a free port, shared by the session. Create topics in it, but never stop or kill it (start your own)."""
    from ingest.lab.broker.embedded_broker import Broker  # imported here, so that unit tests do not load a Kafka client

    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A broker for this module only, with a secured listener."""
    from tests.secured import opened

    with opened(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> TopicFactory:
    """`topic(partitions=1, **configs)` creates a topic and returns its name; a config is given as `retention_ms="1000"`."""
    numbers = itertools.count(1)
    test = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:80]

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"{test}-{uuid.uuid4().hex[:8]}-{next(numbers)}"
        settings: Mapping[str, str] = {key.replace("_", "."): value for key, value in configs.items()}
        broker.create_topic(name, partitions, settings)
        return name

    return make


@pytest.fixture
def begun(broker: Broker, topic: TopicFactory) -> TopicFactory:
    """Like `topic`, and a group of the same name has begun in it."""
    from ingest.delivery.kafka import begin_group

    def make(partitions: int = 1, **configs: str) -> str:
        name = topic(partitions, **configs)
        begin_group(name, name, broker.bootstrap_servers)
        return name

    return make
