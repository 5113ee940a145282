"""Several topics fill one table: a topic's number and the position in it say which record a row is (I6)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.decode.decoder import with_source
from ingest.kafka.offsets import OffsetRange
from ingest.recovery.seek_offsets import Aim
from ingest.runtime.errors import Refused
from tests.integration.lane import Lane, Record, order
from tests.integration.test_against_kafka import reread

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]
Topic = Callable[..., str]


def two_topics(lane: MakeLane, topic: Topic, **more: Any) -> tuple[Lane, str, str]:
    """A lane that reads two topics, each with a row, a poison record and a copy of the other's first event."""
    a, b = topic(), topic()
    one = lane({"n": "INT"}, source={"topic": "", "topics": [a, b], **more.pop("source", {})}, **more)
    one.send(order("a", n=1), "{", order("c", n=3))
    one.send(*(Record(value, topic=b) for value in (order("b", n=2), "[", order("a", n=1))))
    return one, a, b


@pytest.mark.slow
def test_records_of_thousands_of_topics_get_the_numbers_of_their_topics(spark: SparkSession) -> None:
    topics = {3 * number: f"orders.{number}" for number in range(3000)}
    records = spark.range(3000).select("id", F.concat(F.lit("orders."), F.col("id")).alias("topic"))
    assert with_source(records, topics).where("source = 3 * id").count() == 3000
    assert with_source(records, {7: "orders"}).where("source = 7").count() == 3000


def positions(one: Lane) -> list[tuple[Any, ...]]:
    rows = one.target().select("id", "_source", "_partition", "_offset").collect()
    return sorted(tuple(row) for row in rows)


def test_equal_positions_in_two_topics_are_different_records(lane: MakeLane, topic: Topic) -> None:
    one, a, b = two_topics(lane, topic)
    (report,) = one.run()
    assert (report.records_read, report.inserted, report.duplicate, report.quarantined) == (6, 3, 1, 2)
    assert report.ends == {(0, 0): 3, (1, 0): 3}
    assert positions(one) == [("a", 0, 0, 0), ("b", 1, 0, 0), ("c", 0, 0, 2)], "of two copies the one of the first topic is the row"
    quarantined = one.quarantine().select("topic", "source", "partition", "offset", "value").collect()
    assert sorted((*row[:4], bytes(row[4])) for row in quarantined) == sorted([(a, 0, 0, 1, b"{"), (b, 1, 0, 1, b"[")])
    one.balanced()
    one.lose_checkpoints()
    one.send(Record(order("d", n=4), topic=b), order("b", n=2))
    (report,) = one.run()
    assert (report.records_read, report.inserted, report.duplicate) == (2, 1, 1)
    lines = [line for line in one.ledger() if line["epoch"] == 2 and line["start_offset"] is not None]
    assert [(line["source"], line["topic"], line["start_offset"], line["end_offset"]) for line in lines] == [(0, a, 3, 4), (1, b, 3, 4)]
    one.balanced()


@pytest.mark.slow
def test_verify_against_kafka_locates_the_records_of_each_topic(lane: MakeLane, topic: Topic) -> None:
    one, _, b = two_topics(lane, topic)
    one.send(Record(order("e", n=3), topic=b))
    one.run()
    found = reread(one)
    assert (found.findings, found.records, found.in_target, found.in_quarantine, found.duplicate) == ((), 7, 4, 2, 1)
    one.target().where("id <> 'b'").write.format("delta").mode("overwrite").save(one.places.target)
    lost = [(each.code, each.topic, each.partition, each.start_offset) for each in reread(one).findings]
    assert lost == [("RECORD_LOST", b, 0, 0)]


@pytest.mark.slow
def test_a_topic_that_a_pattern_finds_later_joins_from_its_first_record(lane: MakeLane, topic: Topic) -> None:
    first = topic()
    one = lane(source={"topic": "", "topic_pattern": f"{first}(-.*)?", "starting_offsets": "latest"})
    send = partial(Record, topic=first)
    one.send(send(order("before")))
    one.run()
    assert one.ids() == []
    client = one.admin()
    client.create_topics({f"{first}-later": {"num_partitions": 1, "replication_factor": 1}})
    client.close()
    later = partial(Record, topic=f"{first}-later")
    one.send(later(order("expired")), later(order("a")), send(order("b")))
    one.expire(1, topic=f"{first}-later")
    (report,) = one.run()
    assert report.ends == {(0, 0): 2, (1, 0): 2} and one.ids() == ["a", "b"]
    one.balanced()
    one.send(later(order("c")))
    one.run()
    assert one.ids() == ["a", "b", "c"]
    one.balanced()


@pytest.mark.slow
def test_one_topic_of_two_that_is_recreated_refuses_by_its_name_and_gets_another_number(lane: MakeLane, topic: Topic) -> None:
    one, a, b = two_topics(lane, topic)
    one.run()
    one.make_topic_again(b)
    one.send(*(Record(value, topic=b) for value in (order("b", n=2), order("e", n=5))))
    refused = one.refused("TOPIC_RECREATED")
    assert f"topic {b} " in refused.found and a not in refused.found
    for aim in (Aim("table"), Aim("offsets", (((a, 0), 3),))):
        with pytest.raises(Refused, match="TOPIC_RECREATED"):
            one.seek(aim)
    epoch = one.seek(Aim("offsets", (((b, 0), 0),)))
    assert epoch.starts == {(0, 0): 3, (2, 0): 0} and epoch.seek_plan is not None and epoch.seek_plan.gaps == ()
    one.run()
    assert positions(one)[1:] == [("b", 1, 0, 0), ("c", 0, 0, 2), ("e", 2, 0, 1)]
    one.balanced()
    one.send(order("f", n=6), Record(order("g", n=7), topic=b))
    one.run()
    assert [id for id, *_ in positions(one)] == ["a", "b", "c", "e", "f", "g"]
    one.balanced()


@pytest.mark.slow
def test_a_topic_that_leaves_the_contract_refuses_and_a_seek_goes_on_without_it(lane: MakeLane, topic: Topic) -> None:
    one, a, b = two_topics(lane, topic)
    one.run()
    both = one.contract
    one.contract = both.model_copy(update={"source": both.source.model_copy(update={"topics": (a,)})})
    refused = one.refused("TOPIC_CHANGED")
    assert f"was read from topic {b}" in refused.found and "--to table" in refused.remedy
    assert one.seek("table").starts == {(0, 0): 3}
    one.send(order("d", n=4), Record(order("e", n=5), topic=b))
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]
    one.balanced()
    one.contract = both  # it comes back: nothing of it is added twice, nothing is left out
    assert b in one.refused("TOPIC_CHANGED").found
    assert one.seek("table").starts == {(0, 0): 4, (1, 0): 3}
    one.run()
    assert [row for row in positions(one) if row[0] in ("b", "e")] == [("b", 1, 0, 0), ("e", 1, 0, 3)]
    one.balanced()


@pytest.mark.slow
def test_rows_that_are_missing_are_read_again_from_their_own_topic(lane: MakeLane, topic: Topic) -> None:
    one, _, b = two_topics(lane, topic)
    one.run()
    one.send(order("d", n=4), Record(order("e", n=5), topic=b))
    one.run()
    version = one.versions()["target"]
    one.target().where("id <> 'e'").write.format("delta").mode("overwrite").save(one.places.target)
    one.refused("TABLE_REWOUND")
    epoch = one.seek("table")
    assert epoch.starts == {(0, 0): 4, (1, 0): 3}, "only the second topic lacks a row"
    assert epoch.seek_plan is not None and epoch.seek_plan.again == (OffsetRange(0, 3, 4, source=1),)
    one.run()
    assert one.ids() == ["a", "b", "c", "d", "e"] and one.versions()["target"] > version
    one.balanced()


@pytest.mark.slow
def test_positions_in_several_topics_need_topic_ids(lane: MakeLane, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = topic(), topic()
    one = lane(event_id="position", source={"topic": "", "topics": [a, b], "format": "raw"})
    one.send("x", Record("y", topic=b))
    with monkeypatch.context() as patch:
        patch.setattr("ingest.kafka.topic.id_text", lambda _: "")  # like a broker before Kafka 2.8
        one.refused("TOPIC_IDS_MISSING")
    one.run()
    rows = one.target().select("_topic_id", "_source", "_partition", "_offset").collect()
    assert len({row["_topic_id"] for row in rows}) == 2 and sorted(tuple(row)[1:] for row in rows) == [(0, 0, 0), (1, 0, 0)]
    one.balanced()
