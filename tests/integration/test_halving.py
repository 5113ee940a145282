"""A record that Spark or a worker cannot take goes to quarantine as `unwritable`, and the rest of its batch is committed (I5)."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kafka import KafkaProducer
from pyspark import cloudpickle

from ingest.decode.events import Events
from ingest.delta.delta_sql import DataFusion
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import topics_of
from ingest.runtime.errors import RunStopped
from ingest.verify.against_kafka import against_kafka
from ingest.verify.verdict import verify
from tests.integration.lane import Lane, Record, order
from tests.integration.records import contract

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]
WRITERS = pytest.mark.parametrize("direct", [pytest.param(True, id="direct"), pytest.param(False, id="spark", marks=pytest.mark.slow)])
# A broker of Kafka 4 refuses such times by default, older ones and older topics have them.
ANY_TIME = {"message_timestamp_after_max_ms": str(2**63 - 1), "message_timestamp_before_max_ms": str(2**63 - 1)}
YEAR_9999 = 253_402_300_799_999


def by(lane: MakeLane, direct: bool, *arguments: Any, **more: Any) -> Lane:
    one = lane(*arguments, **more)
    one.direct = direct
    return one


def refused(one: Lane) -> list[tuple[Any, ...]]:
    rows = one.quarantine().orderBy("partition", "offset").collect()
    return [(row["partition"], row["offset"], row["reason_code"], row["reason_detail"]) for row in rows]


@WRITERS
def test_records_with_a_time_beyond_the_calendar_go_to_quarantine_without_it(
    lane: MakeLane, topic: Callable[..., str], direct: bool
) -> None:
    """Spark's source cannot hand over milliseconds that exceed 64 bits as microseconds, and no Python reads the year 300,000."""
    one = by(lane, direct, {"n": "INT"})
    one.contract = contract({"n": "INT"}, topic=topic(**ANY_TIME))
    producer = KafkaProducer(bootstrap_servers=one.bootstrap_servers, acks="all")
    for number, time in enumerate((YEAR_9999, YEAR_9999 + 1, 9_400_000_000_000_000, 2**63 - 1, 0, -(2**63))):
        producer.send(one.contract.source.topic, order(f"{number}").encode(), b"k", [("h", b"\xff")], 0, time).get(timeout=30)
    producer.close()
    one.run()
    assert one.ids() == ["0", "4"]
    overflow = (0, 2, "unwritable", "ArithmeticException")
    assert refused(one) == [(0, 1, "unwritable", "_kafka_timestamp"), overflow, (0, 3, *overflow[2:]), (0, 5, *overflow[2:])]
    rows = one.quarantine().orderBy("offset").toArrow().to_pylist()
    assert {(row["kafka_timestamp"], row["key"], row["headers"][0]["value"]) for row in rows} == {(None, b"k", b"\xff")}
    assert [row["value"].decode() for row in rows] == [order(number) for number in ("1", "2", "3", "5")]
    times = one.target().orderBy("id").toArrow()["_kafka_timestamp"].to_pylist()
    assert times == [datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC), datetime(1970, 1, 1, tzinfo=UTC)]
    assert len(one.batches()) == 1
    one.balanced()

    # `verify --against-kafka` reads such records with our own reader.
    one.quarantine().where("offset <> 3").write.format("delta").mode("overwrite").save(one.places.quarantine)
    kafka, counted = KafkaOptions(one.bootstrap_servers), verify(DataFusion(), one.contract, one.places)
    topics_now = topics_of(kafka, one.contract.source)
    again = against_kafka(DataFusion(), lambda: one.session, one.contract, one.places, kafka, topics_now, counted.books)
    assert [(each.code, each.start_offset) for each in again.findings] == [("RECORD_LOST", 3)]


def deadly(events: Events, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """As a defect in a library written in C: the worker is gone."""
    if pc.any(pc.match_substring(records.column("__value").cast(pa.string()), "deadly")).as_py():
        os.kill(os.getpid(), signal.SIGKILL)
    yield from [records] if events._json is None else events._json.decode([records])


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Events, "_split", deadly)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


@WRITERS
@pytest.mark.usefixtures("killed")
def test_records_that_kill_their_worker_are_found_and_the_others_of_all_partitions_are_rows(lane: MakeLane, direct: bool) -> None:
    one = by(lane, direct, {"n": "INT"}, partitions=3)
    one.send(Record(order("a"), 0), Record(order("b"), 0), Record(order("c", n=1), 1), Record(order("deadly"), 1), Record(order("d"), 1))
    one.send("{", Record(order("deadly, too"), 0), order("c", n=2))  # that copy wins, so the other one is read once more
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]
    assert [each[:3] for each in refused(one)] == [
        (0, 2, "malformed_json"),
        (0, 3, "unwritable"),
        (1, 0, "conflicting_duplicate"),
        (1, 1, "unwritable"),
    ]
    assert all(row["value"] is not None for row in one.quarantine().collect())
    assert len(one.batches()) == 1
    one.balanced()


@WRITERS
@pytest.mark.usefixtures("killed")
def test_a_batch_of_nothing_but_such_a_record_is_committed(lane: MakeLane, direct: bool) -> None:
    one = by(lane, direct, {"n": "INT"})
    one.send(order("deadly"))
    one.run()
    assert one.ids() == [] and refused(one)[0][:3] == (0, 0, "unwritable")
    one.balanced()


def test_a_record_on_which_java_runs_out_of_stack_goes_to_quarantine(lane: MakeLane) -> None:
    """Only Spark evaluates this pattern: (?i) is not translated."""
    one = by(lane, False, {"s": "STRING"}, rules=[{"name": "ab", "check": "s RLIKE '(?i)^(a|b)*$'"}])
    one.send(order("a", s="ab"), order("b", s="ab" * 400_000), order("c", s="abc"))
    one.run()
    assert one.ids() == ["a"]
    assert refused(one) == [(0, 1, "unwritable", "StackOverflowError"), (0, 2, "broken_rule", "ab")]
    one.balanced()


@pytest.mark.slow
def test_records_beyond_javas_heap_are_split_from_the_rest(lane: MakeLane) -> None:
    """Two batches of a few hundred KiB: a record of 300 MiB, and 35 of 30 MiB, which Kafka's consumer decompresses in one poll."""
    one = by(lane, True, {"s": "STRING"})
    large = {"compression_type": "gzip", "max_request_size": 2**31 - 1, "batch_size": 2**31 - 1, "linger_ms": 60_000}
    for name, sizes in {"a": [1, 300 * 2**20, 1], "b": [30 * 2**20] * 35}.items():
        producer = KafkaProducer(bootstrap_servers=one.bootstrap_servers, **large)
        for at, size in enumerate(sizes):
            producer.send(one.contract.source.topic, order(f"{name}{at:02}", s="x" * size).encode(), partition=0)
        producer.flush()
        producer.close()
    one.run()
    assert one.ids() == ["a00", "a02", *(f"b{at:02}" for at in range(35))], "no other record is lost or blamed"
    ((*found, detail),) = refused(one)
    assert found == [0, 1, "unwritable"] and re.fullmatch(r"a record of 3145\d{5} bytes at offset 1", detail)
    assert [row["value"] for row in one.quarantine().collect()] == [None]
    one.balanced()


def broken(events: Events, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Fails whatever the record is."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield records


def test_no_record_is_blamed_if_a_harmless_one_fails_too(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    one = by(lane, True, {"n": "INT"})
    one.send(order("a"), order("b"))
    with monkeypatch.context() as patched:
        patched.setattr(Events, "_split", broken)
        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
        stopped = one.stopped()
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    assert isinstance(stopped, RunStopped) and stopped.code == "QUERY_FAILED"
    assert stopped.found.startswith("t.events: batch 2, offsets 0:[0,2), ")
    assert not one.batches() and not one.batches("quarantine")
    assert not [*Path(one.places.target).glob("*.parquet")]
    one.run()
    assert one.ids() == ["a", "b"]
