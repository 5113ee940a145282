"""`ingest verify --against-kafka` (I4): compared with the topic itself, each record is located and each gap explained."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from ingest.delta.delta_sql import DataFusion, Spark
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import topics_of
from ingest.verify.against_kafka import Reread, against_kafka
from ingest.verify.verdict import verify
from tests.integration.lane import Lane, Record, order

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]


def reread(lane: Lane) -> Reread:
    """The result of both engines, which must be the same."""
    kafka = KafkaOptions(lane.bootstrap_servers)
    topics = topics_of(kafka, lane.contract.source)
    engines = DataFusion(), Spark(lane.session)
    counted = [(engine, verify(engine, lane.contract, lane.places)) for engine in engines]
    here, in_spark = (
        against_kafka(engine, lambda: lane.session, lane.contract, lane.places, kafka, topics, each.books) for engine, each in counted
    )
    assert here == in_spark
    return here


def filled(lane: MakeLane) -> Lane:
    """Two partitions with rows, duplicates in a batch and across batches, poison, and a committed and an aborted transaction."""
    one = lane({"n": "INT"}, partitions=2)
    one.send(order("a", n=1), order("a", n=1), "{", Record(order("b"), 1))
    one.run()
    one.transaction(order("c"), Record(order("d"), 1))
    one.transaction(order("never"), order("neither"), commit=False)
    one.send(order("a", n=7), order("b"))
    one.run()
    return one


def test_every_record_is_located_and_every_gap_is_explained(lane: MakeLane) -> None:
    one = filled(lane)
    again = reread(one)
    assert again.findings == ()
    assert (again.records, again.in_target, again.in_quarantine, again.duplicate) == (8, 4, 1, 3)
    assert again.gaps == {"aborted": 2, "commit marker": 2, "abort marker": 1}
    assert again.unverifiable == 0


@pytest.mark.slow
def test_an_overwritten_row_is_reported_as_lost_and_a_foreign_row_as_without_record(lane: MakeLane) -> None:
    one = filled(lane)
    one.target().where("id <> 'c'").write.format("delta").mode("overwrite").save(one.places.target)
    (record,) = (finding for finding in reread(one).findings if finding.code == "RECORD_LOST")
    assert (record.epoch, record.partition, record.end_offset) == (None, 0, (record.start_offset or 0) + 1)
    offset = next(row["_offset"] for row in one.target().where("id = 'a'").collect()) + 5
    foreign = one.target().where("id = 'a'").selectExpr("'x' AS id", "n", "_partition", f"{offset}L AS _offset")
    kafka = one.target().where("id = 'a'").select("_source", "_kafka_timestamp", "_ingested_at", "_epoch", "_batch")
    foreign.crossJoin(kafka).write.format("delta").mode("append").save(one.places.target)
    assert "ROW_WITHOUT_RECORD" in [finding.code for finding in reread(one).findings]


@pytest.mark.slow
def test_a_deleted_row_counts_as_removed_and_expired_records_as_unverifiable(lane: MakeLane) -> None:
    one = filled(lane)
    one.sql("DELETE FROM {} WHERE id IN ('a', 'd')")
    again = reread(one)
    assert again.findings == () and again.removed == 2
    assert again.duplicate == 3, "copies of deleted rows still count as duplicates"
    one.send(order("d", n=2))
    one.run()
    assert "d" in one.ids(), "a copy that arrives after the DELETE becomes a row again"
    assert reread(one).findings == ()
    one.expire(2)
    again = reread(one)
    assert again.findings == () and again.unverifiable == 2
    one.target().where("id <> 'd'").write.format("delta").mode("overwrite").save(one.places.target)
    assert "RECORD_LOST" in [finding.code for finding in reread(one).findings], "the earlier DELETE explains no later loss"


@pytest.mark.slow
def test_a_row_rule_that_workers_cannot_evaluate_is_evaluated_by_spark_and_the_command_says_so(
    lane: MakeLane, capsys: pytest.CaptureFixture[str]
) -> None:
    one = lane({"n": "INT", "at": "TIMESTAMP"}, rules=[{"name": "any", "check": "hour(at) < 24 OR at IS NULL"}])
    one.direct = False
    one.send(order("a", n=1), order("a", n=1), "{", order("a", n=1))
    one.run()
    again = reread(one)
    assert (again.records, again.in_target, again.in_quarantine, again.duplicate, again.findings) == (4, 1, 1, 2, ())
    assert "are decoded through Spark, because of a row rule with" in capsys.readouterr().err


@pytest.mark.slow
def test_a_row_whose_event_id_or_time_somebody_changed_is_of_another_record(lane: MakeLane) -> None:
    one = filled(lane)
    at = {row["id"]: (row["_partition"], row["_offset"]) for row in one.target().collect()}
    one.sql("UPDATE {} SET id = 'z' WHERE id = 'd'")
    one.sql("UPDATE {} SET _kafka_timestamp = _kafka_timestamp + INTERVAL 1 MILLISECOND WHERE id = 'c'")
    one.sql("UPDATE {} SET kafka_timestamp = kafka_timestamp + INTERVAL 1 MILLISECOND", "quarantine")
    differ = [(each.partition, each.start_offset, each.what) for each in reread(one).findings if each.code == "RECORD_DIFFERS"]
    assert sorted(differ) == sorted(
        [
            (*at["d"], "Kafka's record has another event id than the target's row at its position"),
            (*at["c"], "Kafka's record has another time than the target's row at its position"),
            (0, 2, "Kafka's record has another time than the quarantine's row at its position"),
        ]
    )


def restored(one: Lane) -> None:
    one.sql(f"RESTORE TABLE {{}} TO VERSION AS OF {one.batches()[0][0].version}")


def put_back(one: Lane) -> None:
    """Copies of target and quarantine, of before the second run, take their places."""
    for table in ("target", "quarantine"):
        shutil.rmtree(f"{one.places.root}/{table}")
        shutil.copytree(one.folder / "copy" / table, f"{one.places.root}/{table}")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [restored, put_back])
def test_after_a_restore_or_a_copy_and_a_seek_no_record_is_lost(lane: MakeLane, damage: Callable[[Lane], None]) -> None:
    one = lane({"n": "INT"})
    one.send(order("a", n=1), "{", order("b"))
    one.run()
    for table in ("target", "quarantine"):
        shutil.copytree(f"{one.places.root}/{table}", one.folder / "copy" / table)
    one.send(order("b"), order("c"), order("d"), "[")
    one.run(max_records=2)
    damage(one)
    one.forget_tables()
    one.seek("table")
    one.balanced()
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]
    again = reread(one)
    assert (again.findings, again.records, again.in_target, again.in_quarantine, again.duplicate) == ((), 7, 4, 2, 1)
    one.balanced()


@pytest.mark.slow
def test_no_record_is_lost_whose_id_is_in_the_table_from_another_position(lane: MakeLane) -> None:
    """Two seeks: each time a row went, and a later copy of its id became the row. The batches of both epochs have read all positions."""
    one = lane({"n": "INT"})
    one.send(order("a"), order("b"), order("a"), "{", order("b"))
    one.run(max_records=1)
    for starts in ({0: 1}, {0: 2}):
        one.target().where("id <> 'a'").write.format("delta").mode("overwrite").save(one.places.target)
        assert {each.code for each in one.verified().findings} == {"ROWS_DIFFER"}
        one.seek("offsets", accept_gap=True, offsets=starts)
        one.run(max_records=1)
        one.seek("table", accept_gap=True)
        one.run()
        assert one.ids() == ["a", "b"]
        assert reread(one).findings == ()
        one.balanced()
    assert [row["_offset"] for row in one.target().where("id = 'a'").collect()] == [2]
    one.target().where("id <> 'a'").write.format("delta").mode("overwrite").save(one.places.target)
    assert [(each.code, each.start_offset) for each in reread(one).findings] == [("RECORD_LOST", 0), ("RECORD_LOST", 2)]
