"""Short admin requests to a broker, each with a deadline: is it ready, create a topic."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError


def answers(bootstrap_servers: str, *, timeout_s: float) -> bool:
    """Whether a broker there is ready: it answers and lists itself as a live broker of its cluster."""
    if not any(_accepts(server, timeout_s) for server in bootstrap_servers.split(",")):
        return False  # a plain connect fails fast; a Kafka client takes long to give up
    try:
        with admin(bootstrap_servers, timeout_s=timeout_s) as client:
            return len(client.describe_cluster()["brokers"]) > 0
    except (KafkaError, OSError):
        return False


def create_topic(bootstrap_servers: str, name: str, partitions: int, configs: Mapping[str, str], *, timeout_s: float = 30.0) -> None:
    """Create a topic with one replica and wait until its leaders are known. Raises kafka.errors.TopicAlreadyExistsError."""
    with admin(bootstrap_servers, timeout_s=timeout_s) as client:
        client.create_topics(
            [NewTopic(name, num_partitions=partitions, replication_factor=1, topic_configs=dict(configs))], wait_for_metadata=True
        )


@contextmanager
def admin(bootstrap_servers: str, *, timeout_s: float) -> Iterator[Any]:
    """An admin client that gives up after `timeout_s` and does not log warnings about a missing broker."""
    log = logging.getLogger("kafka")
    level, timeout_ms = log.level, int(timeout_s * 1000)
    log.setLevel(logging.CRITICAL)
    try:
        client = KafkaAdminClient(bootstrap_servers=bootstrap_servers, request_timeout_ms=timeout_ms, bootstrap_timeout_ms=timeout_ms)
        try:
            yield client
        finally:
            client.close()
    finally:
        log.setLevel(level)


def _accepts(server: str, timeout_s: float) -> bool:
    host, _, port = server.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()
    except (OSError, ValueError):
        return False
    return True
