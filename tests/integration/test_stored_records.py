"""Stored records keep their status when they are re-read after a seek. Uncommitted ones are decided again after a crash (I3, I4, I7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ingest.delta.delta_sql import DataFusion
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import topics_of
from ingest.verify.against_kafka import against_kafka
from tests.integration.lane import Lane, Record, order

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]


@pytest.mark.slow
@pytest.mark.parametrize("conflicts", ["batch", "table"])
def test_after_a_seek_to_earliest_the_stored_copy_remains_the_row(lane: MakeLane, conflicts: str) -> None:
    """The row came from partition 1. In the new batch, its copy in partition 0 has a lower position."""
    one = lane({"n": "INT"}, partitions=2, conflicts=conflicts)
    one.send(Record(order("other", n=1), 1), Record(order("same", n=1), 1))
    one.run()
    one.send(Record(order("other", n=2), 0), Record(order("same", n=1), 0), Record("{", 0))
    one.run()
    before = sorted((row["id"], row["_partition"], row["_offset"], row["_epoch"]) for row in one.target().collect())
    one.seek("earliest")
    (report,) = one.run()
    assert sorted((row["id"], row["_partition"], row["_offset"], row["_epoch"]) for row in one.target().collect()) == before
    quarantined = [(row["partition"], row["offset"]) for row in one.quarantine().orderBy("partition", "offset").collect()]
    # With conflicts: batch, the other payload counts as a duplicate again, because the target has its event id.
    assert quarantined == ([(0, 2)] if conflicts == "batch" else [(0, 0), (0, 2)]), "the row itself is never quarantined"
    assert (report.records_read, report.inserted, report.duplicate, report.quarantined) == (5, 0, 5, 0)
    one.balanced()


@pytest.mark.slow
def test_a_batch_interrupted_after_its_quarantine_commit_is_rolled_back_and_decided_again(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I7: in a smaller batch, the conflicting copy is alone and becomes a row: the first decision on it was never committed."""
    one = lane({"n": "INT"}, partitions=2)
    one.send(*(order(f"other{number}", n=1) for number in range(3)), order("a", n=1), Record(order("a", n=2), 1))
    one.arm(monkeypatch, "after_quarantine:raise@2")
    with monkeypatch.context() as patch:
        patch.setattr("ingest.run.table_query.REOPENED_MAX", 0)  # the run ends, so that the next one can read smaller batches
        one.stopped()
    monkeypatch.delenv("INGEST_FAULT")
    assert one.quarantine().count() == 1
    one.lose_checkpoints()
    first, *_ = one.run(max_records=2)  # one record of each partition
    assert (first.records_read, first.inserted, first.quarantined) == (2, 2, 0)
    assert one.quarantine().count() == 0 and len(one.ids()) == 4
    one.balanced()
    kafka = KafkaOptions(one.bootstrap_servers)
    topics = topics_of(kafka, one.contract.source)
    counted = one.verified()
    again = against_kafka(DataFusion(), lambda: one.session, one.contract, one.places, kafka, topics, counted.books)
    assert (again.findings, again.duplicate) == ((), 1)
