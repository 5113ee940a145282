"""Fixtures that every layer may use: one embedded broker for the whole test session, and topics with names of their own."""

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

# How long an example takes is the machine's affair, not the code's. In CI the examples are the same each time, as hypothesis has it there.
_SLOW = [HealthCheck.too_slow]
settings.register_profile("any machine", deadline=None, suppress_health_check=_SLOW, derandomize="CI" in os.environ)
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker on a free port, shared by the session: make topics in it, never stop or kill it (start one of your own)."""
    from ingest.lab.broker.embedded_broker import Broker  # here, so that the unit tests need not wait for a Kafka client

    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A broker of this module's own, with a secured listener."""
    from tests.secured import opened

    with opened(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> TopicFactory:
    """`topic(partitions=1, **configs)` makes a fresh topic and returns its name; configs as `retention_ms="1000"`."""
    numbers = itertools.count(1)
    test = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:80]

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"{test}-{uuid.uuid4().hex[:8]}-{next(numbers)}"
        settings: Mapping[str, str] = {key.replace("_", "."): value for key, value in configs.items()}
        broker.create_topic(name, partitions, settings)
        return name

    return make
