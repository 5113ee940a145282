"""Partitions are added to the topic during a run: their records are read from offset 0, and the batches' ranges show it."""

from __future__ import annotations

import signal

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewPartitions

from tests.faults.conftest import PipelineFactory
from tests.faults.driver import until
from tests.faults.pipeline import ranges

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_partitions_added_while_running_are_read_from_their_first_record(pipeline: PipelineFactory) -> None:
    lake = pipeline(batch=1500)
    lake.produce(1000, poison=20)
    driver = lake.start("--every", "0s")
    until(lambda: lake.batches() or driver.process.poll() is not None, "the first batch")
    admin = KafkaAdminClient(bootstrap_servers=lake.bootstrap_servers)
    admin.create_partitions({lake.topic: NewPartitions(4)})
    admin.close()
    lake.produce(2000, poison=20, seed=2)

    def read() -> bool:
        assert driver.process.poll() is None, driver.said
        return any(ranges(commit).get(3, (0, 0))[1] > 0 for commit in lake.commits())

    until(read, "a batch with records of an added partition")
    driver.signal(signal.SIGTERM)
    driver.ended(0)
    lake.complete()
    first = {partition: next(ranges(c)[partition] for c in lake.commits() if partition in ranges(c)) for partition in range(4)}
    assert {partition: start for partition, (start, _) in first.items()} == dict.fromkeys(range(4), 0)
    lake.judge().assert_clean()
