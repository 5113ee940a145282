"""Kafka's retention takes records between an attempt at a batch and its replay: none is doubled, and what is lost is said exactly."""

from __future__ import annotations

import json

import pytest
from kafka import KafkaAdminClient, TopicPartition

from ingest.oracle.sources import read_kafka
from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TAKEN = 100


def ids(lake: Pipeline) -> set[tuple[str, ...]]:
    """The event ids that Kafka still shows."""
    view = read_kafka(lake.bootstrap_servers, lake.topic, ("order_id",), ())
    return {record.event_id for record in view.records.values() if record.event_id is not None}


def delete_before(lake: Pipeline, offset: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=lake.bootstrap_servers)
    admin.delete_records({TopicPartition(lake.topic, 0): offset})
    admin.close()


@pytest.mark.parametrize("point", ["after_quarantine", "after_target"])
def test_records_expire_between_attempt_and_replay(pipeline: PipelineFactory, point: str) -> None:
    """Cut off before its rows were committed the batch is refused, with the offsets that are gone; after that it needs none of them."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    lake.crash(f"{point}:kill@1")
    start = lake.planned(0)[0]
    before = ids(lake)
    delete_before(lake, start + TAKEN)
    if point == "after_target":
        lake.complete()
        lake.judge().assert_clean()
        return
    error = json.loads(lake.start("--once", "--json").ended(3))["tables"][0]["error"]
    assert error["code"] == "RECORDS_EXPIRED" and f"partition 0 [{start}, {start + TAKEN}): {TAKEN} offsets" in error["found"]
    refused = lake.command("rebase", "orders", "--to", "table").ended(3)
    assert "GAP_NOT_ACCEPTED" in refused and f"partition 0 [{start}, {start + TAKEN})" in refused
    lake.command("rebase", "orders", "--to", "table", "--accept-gap").ended(0)
    lake.complete()
    gaps = lake.verified()[0]["gaps_accepted"]
    assert gaps == [[0, start, start + TAKEN]]
    lake.judge(excused_ids=frozenset(before - ids(lake))).assert_clean()
