"""A start that is refused, and what an operator and the broker do around it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import pytest
from kafka import KafkaAdminClient

from ingest import faults
from ingest.errors import Refused
from tests.integration.lane import Lane

MakeLane = Callable[..., Lane]
DEADLINE_S = 60


def refused(lane: Lane, code: str) -> Refused:
    """A start is refused with this code, and changes nothing."""
    before = lane.versions() if lane.log().exists() else {}
    error = lane.stopped()
    assert isinstance(error, Refused), error
    assert (error.code, error.exit_code) == (code, 3), error
    assert before == (lane.versions() if before else {})
    return error


def balanced(lane: Lane) -> None:
    found = lane.verified().findings
    assert not found, "\n".join(map(str, found))


def cut_off(lane: Lane, at: str, aim: Literal["table", "earliest"] = "table") -> None:
    """A rebase that ends at this crash point."""

    class Cut(Exception):
        pass

    def cut(point: str, batch: int) -> None:
        if point == at:
            raise Cut

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Cut):
        patch.setattr(faults, "at", cut)
        lane.rebase(aim)


def admin(lane: Lane) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=lane.bootstrap_servers)


def made_again(lane: Lane) -> None:
    """Delete the topic and make it anew."""
    topic = lane.contract.source.topic
    client = admin(lane)
    client.delete_topics([topic])
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            client.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
            break
        except Exception:  # the broker is still deleting
            assert time.monotonic() < deadline
            time.sleep(0.1)
    client.close()


def forget_tables(lane: Lane) -> None:
    """Delta keeps what it has read of a table; the next start has a JVM of its own."""
    jvm: Any = lane.session._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
