"""`ingest verify --against-kafka` (I4): the topic itself says where each record is and why each gap is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ingest.delta.delta_sql import DataFusion, Spark
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import describe
from ingest.verify.against_kafka import Reread, against_kafka
from ingest.verify.verdict import verify
from tests.integration.lane import Lane, Record, order

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]


def reread(lane: Lane) -> Reread:
    """What both engines say, which is the same."""
    kafka = KafkaOptions(lane.bootstrap_servers)
    topic = describe(kafka, lane.contract.source.topic)
    engines = DataFusion(), Spark(lane.session)
    here, in_spark = (
        against_kafka(
            engine, lambda: lane.session, lane.contract, lane.places, kafka, topic, verify(engine, lane.contract, lane.places).rows
        )
        for engine in engines
    )
    assert here == in_spark
    return here


def filled(lane: MakeLane) -> Lane:
    """Rows, a duplicate in the batch and one across batches, poison, a committed and an aborted transaction, two partitions."""
    one = lane({"n": "INT"}, partitions=2)
    one.send(order("a", n=1), order("a", n=1), "{", Record(order("b"), 1))
    one.run()
    one.transaction(order("c"), Record(order("d"), 1))
    one.transaction(order("never"), order("neither"), commit=False)
    one.send(order("a", n=7), order("b"))
    one.run()
    return one


def test_every_record_and_every_gap_has_its_place(lane: MakeLane) -> None:
    one = filled(lane)
    again = reread(one)
    assert again.findings == ()
    assert (again.records, again.in_target, again.in_quarantine, again.duplicate) == (8, 4, 1, 3)
    assert again.gaps == {"aborted": 2, "commit marker": 2, "abort marker": 1}
    assert again.unverifiable == 0


@pytest.mark.slow
def test_a_row_that_vanished_behind_the_logs_back_is_lost_and_one_that_appeared_is_told(lane: MakeLane) -> None:
    one = filled(lane)
    one.target().where("id <> 'c'").write.format("delta").mode("overwrite").save(one.places.target)
    of_batch, record = (finding for finding in reread(one).findings if finding.code == "RECORD_LOST")
    assert (of_batch.epoch, of_batch.batch, of_batch.partition) == (2, 2, 0), "the batch holds one record less than its ledger row says"
    assert (record.epoch, record.partition, record.end_offset) == (None, 0, (record.start_offset or 0) + 1)
    offset = next(row["_offset"] for row in one.target().where("id = 'a'").collect()) + 5
    foreign = one.target().where("id = 'a'").selectExpr("'x' AS id", "n", "_partition", f"{offset}L AS _offset")
    kafka = one.target().where("id = 'a'").select("_kafka_timestamp", "_ingested_at", "_epoch", "_batch")
    foreign.crossJoin(kafka).write.format("delta").mode("append").save(one.places.target)
    assert "ROW_WITHOUT_RECORD" in [finding.code for finding in reread(one).findings]


@pytest.mark.slow
def test_a_row_that_a_delete_took_is_removed_and_what_kafka_expired_is_unverifiable(lane: MakeLane) -> None:
    one = filled(lane)
    one.sql("DELETE FROM {} WHERE id IN ('a', 'd')")
    again = reread(one)
    assert again.findings == () and again.removed == 2
    assert again.duplicate == 3, "the copies of what was deleted are duplicates still"
    one.send(order("d", n=2))
    one.run()
    assert "d" in one.ids(), "a copy that comes after the DELETE is a row again"
    assert reread(one).findings == ()
    one.expire(2)
    again = reread(one)
    assert again.findings == () and again.unverifiable == 2
    one.target().where("id <> 'd'").write.format("delta").mode("overwrite").save(one.places.target)
    assert "RECORD_LOST" in [finding.code for finding in reread(one).findings], "the DELETE before it excuses no later row"
