"""A real broker's log, read by record batches: markers, aborted records, holes from compaction, expired offsets (I4)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions
from kafka.protocol.broker_version_data import BrokerVersionData

from ingest.kafka.intervals import Intervals
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.fetch import Reach, TopicReader
from ingest.kafka.log.log_reader import records_at, scan, stretches
from ingest.kafka.log.partition_scan import Isolation, Kind, PartitionScan
from ingest.kafka.log.record_batch import Compression
from ingest.lab.broker.broker_probe import admin
from ingest.runtime.errors import InvalidEnvironment, InvalidInput

if TYPE_CHECKING:
    from ingest.lab.broker.embedded_broker import Broker

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
# Kafka's log cleaner checks its logs every 15 s.
CLEANED_WITHIN_S = 90.0


@contextmanager
def transactional(broker: Broker) -> Iterator[KafkaProducer]:
    """A transactional producer. A transaction that is open at the end stays open until it times out."""
    name = f"log-{uuid.uuid4()}"
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name, acks="all", linger_ms=0)
    producer.init_transactions()
    yield producer
    producer.close(timeout=5)


def send(producer: KafkaProducer, topic: str, count: int, *, key: bytes | None = None) -> None:
    """Send `count` records and wait until all are written."""
    for future in [producer.send(topic, b"value %d" % n, key=key, partition=0, headers=[("n", b"%d" % n)]) for n in range(count)]:
        producer.flush()
        future.get(timeout=30)


def finish(broker: Broker, topic: str, ending: Callable[[], None]) -> None:
    """Commit or abort, and wait for the marker: the coordinator replies before it has written the marker to the partition."""
    with reading(broker, topic) as reader:
        before, deadline = reader.bounds(0).high_watermark, time.monotonic() + 30
        ending()
        while reader.bounds(0).high_watermark == before:
            assert time.monotonic() < deadline, "no marker was written"


def plain(broker: Broker, topic: str, count: int, value: bytes = b"value %d", /, **settings: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 200, **settings})
    for n in range(count):
        producer.produce(topic, value % n, key=b"key %d" % (n % 7), partition=0)
    producer.flush(30)


@contextmanager
def reading(broker: Broker, topic: str) -> Iterator[TopicReader]:
    with TopicReader(KafkaOptions(broker.bootstrap_servers), topic) as reader:
        yield reader


def scanned(broker: Broker, topic: str, start: int = 0, end: int | None = None) -> PartitionScan:
    with reading(broker, topic) as reader:
        return scan(reader, 0, start, reader.bounds(0).high_watermark if end is None else end)


def shape(found: PartitionScan) -> dict[str, list[tuple[int, int]]]:
    return {kind.value: list(offsets) for kind, offsets in found.classes().items() if offsets}


def consumed(broker: Broker, topic: str, end: int, isolation: str) -> list[int]:
    """The offsets below `end` that kafka-python's own consumer returns."""
    settings = {"isolation_level": isolation, "enable_auto_commit": False, "consumer_timeout_ms": 3000}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, **settings)
    topic_partition = TopicPartition(topic, 0)
    consumer.assign([topic_partition])
    consumer.seek_to_beginning(topic_partition)
    found: list[int] = []
    while consumer.position(topic_partition) < end:
        polled = consumer.poll(timeout_ms=500)
        found += [record.offset for record in polled.get(topic_partition, [])]
    consumer.close()
    return [offset for offset in found if offset < end]


def test_plain_records_are_committed_and_offsets_not_written_yet_are_beyond(broker: Broker, topic: Topic) -> None:
    """I4."""
    name = topic(1)
    plain(broker, name, 10)
    found = scanned(broker, name, 2, 15)
    assert shape(found) == {"committed": [(2, 10)], "beyond": [(10, 15)]}
    assert (found.bounds.log_start, found.bounds.last_stable, found.bounds.high_watermark) == (0, 10, 10)
    assert shape(scanned(broker, name, 4, 4)) == {}


def test_markers_and_aborted_records_are_distinguished_from_committed_ones(broker: Broker, topic: Topic) -> None:
    """I4: the result matches a read_committed and a read_uncommitted consumer."""
    name = topic(1)
    with transactional(broker) as producer:
        for count, commit in ((3, True), (2, False), (4, True)):
            producer.begin_transaction()
            send(producer, name, count)
            finish(broker, name, producer.commit_transaction if commit else producer.abort_transaction)
    plain(broker, name, 2)
    found = scanned(broker, name)
    assert shape(found) == {"committed": [(0, 3), (7, 11), (12, 14)], "commit": [(3, 4), (11, 12)], "aborted": [(4, 6)], "abort": [(6, 7)]}
    levels: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
    for isolation in levels:
        assert found.read(isolation).offsets().tolist() == consumed(broker, name, 14, isolation)
    # The index of aborted transactions also covers a scan that starts in the middle of one.
    assert shape(scanned(broker, name, 5, 8)) == {"aborted": [(5, 6)], "abort": [(6, 7)], "committed": [(7, 8)]}


def test_interleaved_transactions_of_two_producers_are_kept_apart(broker: Broker, topic: Topic) -> None:
    """I4: one producer's abort does not affect the other's records in between."""
    name = topic(1)
    with transactional(broker) as good, transactional(broker) as bad:
        for producer in (good, bad):
            producer.begin_transaction()
        for producer in (bad, good, bad, good):
            send(producer, name, 1)
        finish(broker, name, bad.abort_transaction)
        send(good, name, 1)
        bad.begin_transaction()
        send(bad, name, 1)
        finish(broker, name, good.commit_transaction)
        finish(broker, name, bad.commit_transaction)
    found = scanned(broker, name)
    assert shape(found) == {"committed": [(1, 2), (3, 4), (5, 7)], "aborted": [(0, 1), (2, 3)], "abort": [(4, 5)], "commit": [(7, 9)]}
    assert found.committed.offsets().tolist() == consumed(broker, name, 9, "read_committed")


def test_records_from_the_start_of_an_open_transaction_on_are_unstable(broker: Broker, topic: Topic) -> None:
    """I4: a read_committed run never reads them, a read_uncommitted run may have."""
    name = topic(1)
    plain(broker, name, 2)
    with transactional(broker) as producer:
        producer.begin_transaction()
        send(producer, name, 2)
        plain(broker, name, 1)
        found = scanned(broker, name)
        assert shape(found) == {"committed": [(0, 2)], "unstable": [(2, 5)]}
        assert (found.bounds.last_stable, found.bounds.high_watermark) == (2, 5)
        assert (len(found.read("read_committed")), len(found.read("read_uncommitted"))) == (2, 5)
        finish(broker, name, producer.commit_transaction)
    assert shape(scanned(broker, name)) == {"committed": [(0, 5)], "commit": [(5, 6)]}


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_counted_without_decompression(broker: Broker, topic: Topic, compression: str) -> None:
    """I4. Each record shrinks by itself: the client sends a batch as it is when compression makes it longer, and a busy
    machine cuts 500 records into batches of any size."""
    name = topic(1)
    plain(broker, name, 500, b"value %d" + 200 * b"!", **{"compression.type": compression})
    with reading(broker, name) as reader:
        seen = [stretch.batch for stretch in stretches(reader, 0, 0, 500)]
        assert {batch.compression for batch in seen if batch} == {Compression[compression.upper()]}
        assert list(scan(reader, 0, 3, 500).committed) == [(3, 500)]
        assert [(r.offset, r.value) for r in records_at(reader, 0, [499, 7])] == [(n, b"value %d" % n + 200 * b"!") for n in (7, 499)]


def test_single_records_are_read_with_key_headers_and_time(broker: Broker, topic: Topic) -> None:
    name = topic(1)
    with transactional(broker) as producer:
        producer.begin_transaction()
        send(producer, name, 3, key=b"k")
        finish(broker, name, producer.abort_transaction)
    plain(broker, name, 1)
    with reading(broker, name) as reader:
        aborted, committed = records_at(reader, 0, [4, 1, 3, 99, 1])
    assert (aborted.offset, aborted.key, aborted.value, aborted.headers) == (1, b"k", b"value 1", (("n", b"1"),))
    assert (committed.offset, committed.key, committed.headers) == (4, b"key 0", ())
    assert abs(committed.timestamp_ms / 1000 - time.time()) < 300


def test_records_removed_by_compaction_are_holes(broker: Broker, topic: Topic) -> None:
    """I4: real holes made by Kafka's cleaner, both inside batches and of whole batches."""
    quick = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.001", "max_compaction_lag_ms": "100", "delete_retention_ms": "0"}
    name = topic(1, cleanup_policy="compact", **quick)
    plain(broker, name, 50)
    with transactional(broker) as producer:
        producer.begin_transaction()
        send(producer, name, 2, key=b"key 0")
        finish(broker, name, producer.abort_transaction)
    deadline = time.monotonic() + CLEANED_WITHIN_S
    extra = 0
    with reading(broker, name) as reader:
        while True:
            # The active segment is never cleaned. Only a new record closes it.
            plain(broker, name, 1)
            extra += 1
            end = reader.bounds(0).high_watermark
            found = scan(reader, 0, 0, end)
            if len(found.holes) > 40 and found.committed.runs > 1:
                break
            assert time.monotonic() < deadline, f"Kafka has not compacted it: {shape(found)}"
        expected = consumed(broker, name, end, "read_committed")
        # The last record of each key remains, except for `key 0`, which later records replace. An aborted record replaces nothing.
        assert {43, 44, 45, 46, 47, 48} <= set(expected) and len(expected) < 50
        # The cleaner may have continued between the two reads.
        again = scan(reader, 0, 0, end)
        assert set(again.committed.offsets().tolist()) <= set(expected) <= set(found.committed.offsets().tolist())
        assert any(s.kind is Kind.COMMITTED and s.batch and not s.batch.dense for s in stretches(reader, 0, 0, end))
        assert [r.offset for r in records_at(reader, 0, range(43, 49))] == [43, 44, 45, 46, 47, 48]
        assert again.unverifiable == Intervals.of()
        # Of the records one by one, whole batches are gone. Of the first batch, its span is left.
        assert {reader.epoch_at(0, at) for at in again.holes.offsets().tolist()} == {0, None}


def test_deleted_records_are_expired_and_unverifiable(broker: Broker, topic: Topic) -> None:
    """I4: even in the middle of a batch whose bytes still exist."""
    name = topic(1)
    plain(broker, name, 10)
    with admin(broker.bootstrap_servers, timeout_s=15) as client:
        client.delete_records({TopicPartition(name, 0): 4})
    found = scanned(broker, name)
    assert shape(found) == {"expired": [(0, 4)], "committed": [(4, 10)]}
    assert (found.bounds.log_start, list(found.unverifiable)) == (4, [(0, 4)])
    with reading(broker, name) as reader:
        assert [record.offset for record in records_at(reader, 0, range(10))] == list(range(4, 10))
        assert [reader.epoch_at(0, at) for at in (3, 4, 9, 10)] == [None, 0, 0, None]


def test_a_log_that_takes_many_fetches_is_read_to_its_end(broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic(1)
    plain(broker, name, 3000, **{"batch.num.messages": "100"})
    monkeypatch.setattr(TopicReader.fetch, "__kwdefaults__", {"bytes_max": 5000})
    assert shape(scanned(broker, name)) == {"committed": [(0, 3000)]}


def test_errors_name_the_topic_the_partition_and_the_broker(broker: Broker, topic: Topic) -> None:
    name = topic(2)
    with reading(broker, name) as reader:
        assert reader.partitions == (0, 1)
        with pytest.raises(InvalidInput, match=r"PARTITION_UNKNOWN.*no partition 2.*0 to 1"):
            scan(reader, 2, 0, 1)
    with pytest.raises(InvalidEnvironment, match=r"TOPIC_UNKNOWN.*no-such-topic"):
        TopicReader(KafkaOptions(broker.bootstrap_servers), "no-such-topic")
    with pytest.raises(InvalidEnvironment, match=r"BROKER_UNREACHABLE.*127\.0\.0\.1:1 "):
        TopicReader(KafkaOptions("127.0.0.1:1"), name, answer_within_s=0.5)


def test_a_partition_that_was_added_since_has_leader_epochs_too(broker: Broker, topic: Topic) -> None:
    """A run goes on when its topic gets more partitions."""
    name = topic(1)
    with reading(broker, name) as reader, admin(broker.bootstrap_servers, timeout_s=30) as client:
        assert reader.reaches({0: 0}) == {0: Reach(0, 0)}
        client.create_partitions({name: NewPartitions(2)})
        assert reader.reaches({0: 0, 1: 0}) == {0: Reach(0, 0), 1: Reach(0, 0)}


@pytest.mark.parametrize(("version", "found"), [((2, 2), {}), ((2, 3), {0: Reach(0, 0)})])
def test_brokers_that_refuse_leader_epochs_to_clients_are_not_asked(
    version: tuple[int, int], found: dict[int, Reach], broker: Broker, topic: Topic
) -> None:
    with reading(broker, topic(1)) as reader:
        for connection in reader._client._manager._conns.values():
            connection.broker_version_data = BrokerVersionData(version)
        assert reader.reaches({0: 0}) == found


def test_a_broker_that_goes_away_is_reported_within_the_deadline(tmp_path: object) -> None:
    from ingest.lab.broker.embedded_broker import Broker

    with Broker(f"{tmp_path}/broker") as one:
        one.create_topic("t")
        plain(one, "t", 1)
        with TopicReader(KafkaOptions(one.bootstrap_servers), "t", answer_within_s=1.0) as reader:
            assert len(scan(reader, 0, 0, 1).committed) == 1
            one.kill()
            began = time.monotonic()
            with pytest.raises(InvalidEnvironment, match="BROKER_UNREACHABLE"):
                scan(reader, 0, 0, 1)
            assert time.monotonic() - began < 5
