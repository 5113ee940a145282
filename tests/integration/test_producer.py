"""The producer against a real broker: its manifest matches the records that a read_committed consumer reads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.lab.oracle.sources import read_kafka, read_manifests
from ingest.lab.proxy import Api, Proxy
from ingest.lab.samples.sample_producer import produce_sample
from ingest.lab.samples.sender_process import Sender
from ingest.lab.samples.shop import ORDERS, PAYMENTS
from ingest.runtime.errors import InvalidEnvironment, InvalidInput, RunStopped
from tests.kafka.topics import until

if TYPE_CHECKING:
    from ingest.lab.broker.embedded_broker import Broker

pytestmark = pytest.mark.integration


@pytest.fixture
def thirty(topic: Callable[..., str], tmp_path: Path) -> dict[str, Any]:
    """30 events for a topic with one partition, without planned aborts or retries."""
    return {"events": 30, "manifest": tmp_path / "m", "duplicate_share": 0, "aborted_share": 0, "topics": {ORDERS: topic(1)}}


def test_the_manifest_matches_the_records_in_kafka(broker: Broker, topic: Callable[..., str], tmp_path: Path) -> None:
    topics = {ORDERS: topic(3), PAYMENTS: topic(2)}
    seen: list[int] = []
    produced = produce_sample(
        broker.bootstrap_servers,
        events=4000,
        poison=80,
        seed=11,
        manifest=tmp_path / "manifest.jsonl",
        aborted_share=0.5,
        transaction_records=500,
        topics=topics,
        progress=seen.append,
    )
    assert (produced.events, produced.poison, produced.unknown) == (4000, 80, 0)
    assert produced.aborted >= 3 and produced.retries > 100
    assert seen[-1] == 4000 + 80 + produced.retries
    poison_at: dict[tuple[str, int, int], str] = {}
    for line in (tmp_path / "manifest.jsonl").read_text().splitlines():
        for kind, name, partition, offset in json.loads(line).get("poison_at", []):
            poison_at[name, partition, offset] = kind
    assert len(poison_at) == 80
    shown = found = 0
    for kind, name in topics.items():
        view = read_kafka(broker.bootstrap_servers, name, [f"{kind[:-1]}_id"], [])
        manifest = read_manifests([tmp_path / "manifest.jsonl"], name)
        ids = {record.event_id for record in view.records.values()} - {None}
        assert ids == manifest.committed.keys() | manifest.poison_ids.keys()
        assert manifest.aborted_only and not manifest.aborted_only & ids
        assert all(
            record.value_hash in manifest.committed[record.event_id]
            for record in view.records.values()
            if record.event_id in manifest.committed
        )
        places = {(name, partition, offset) for partition, offset in view.records}
        found += len(places & poison_at.keys())
        shown += len(view.records)
        assert sum(view.end.values()) > len(view.records), "markers and aborted records leave gaps"
    assert found == 80
    assert shown == 4080 + produced.retries


def test_aborted_and_committed_records_interleave_in_a_partition(broker: Broker, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic(1)
    produce_sample(
        broker.bootstrap_servers, events=100, manifest=tmp_path / "m", aborted_share=1, transaction_records=100, topics={ORDERS: name}
    )
    offsets = sorted(offset for _, offset in read_kafka(broker.bootstrap_servers, name, ["order_id"], []).records)
    # 25 aborted records, the committed ones, 25 more aborted records, then two markers.
    assert offsets[0] == 25
    assert read_kafka(broker.bootstrap_servers, name, ["order_id"], []).end[0] > offsets[-1] + 25


def test_a_commit_without_a_reply_is_unknown_and_its_records_are_sent_again(broker: Broker, thirty: dict[str, Any]) -> None:
    name = thirty["topics"][ORDERS]
    with Proxy(broker.bootstrap_servers) as proxy:
        lost = proxy.drop_reply(Api.END_TXN)
        produced = produce_sample(proxy.bootstrap_servers, commit_timeout_s=2, **thirty)
    assert lost.struck == 1
    assert (produced.events, produced.unknown, produced.committed) == (30, 1, 1)
    manifest = read_manifests([thirty["manifest"]], name)
    assert manifest.unknown.keys() == manifest.committed.keys()
    assert len(read_kafka(broker.bootstrap_servers, name, ["order_id"], []).records) == 60


def test_a_transaction_that_misses_records_is_aborted_and_sent_again(broker: Broker, thirty: dict[str, Any]) -> None:
    """kafka-python 3.0.12 reports such a commit as successful. The manifest must not."""
    with Proxy(broker.bootstrap_servers) as proxy:
        lost = proxy.cut_request(Api.PRODUCE, times=1_000)

        def release_later() -> None:
            until(lambda: '"aborted"' in thirty["manifest"].read_text(), "the first attempt was aborted")
            lost.release()

        releasing = threading.Thread(target=release_later)
        thirty["manifest"].touch()
        releasing.start()
        quick = {"request_timeout_ms": 400, "delivery_timeout_ms": 500}
        produced = produce_sample(proxy.bootstrap_servers, kafka_options=quick, **thirty)
        releasing.join(30)
    assert (produced.events, produced.committed) == (30, 1) and produced.aborted >= 1
    assert len(read_kafka(broker.bootstrap_servers, thirty["topics"][ORDERS], ["order_id"], []).records) == 30


def test_a_fenced_producer_stops(broker: Broker, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic(1)
    others: list[Sender] = []

    def take_over(_: int) -> None:
        if not others:
            others.append(Sender(broker.bootstrap_servers, "taken-over", {}, 10))

    try:
        with pytest.raises(RunStopped, match="PRODUCER_FENCED"):
            produce_sample(
                broker.bootstrap_servers,
                events=40,
                manifest=tmp_path / "m",
                transaction_records=10,
                aborted_share=0,
                topics={ORDERS: name},
                transactional_id="taken-over",
                progress=take_over,
            )
    finally:
        for line in others:
            line.__exit__()
    assert read_manifests([tmp_path / "m"], name).committed.keys()


def test_a_topic_that_does_not_exist_is_named(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"TOPIC_UNKNOWN.*no-such-topic"):
        produce_sample(
            broker.bootstrap_servers,
            events=1,
            manifest=tmp_path / "m",
            topics={ORDERS: "no-such-topic"},
            kafka_options={"max_block_ms": 2000, "allow_auto_create_topics": False},
        )


def test_without_a_broker_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidEnvironment, match="BROKER_UNREACHABLE"):
        produce_sample("127.0.0.1:1", events=1, manifest=tmp_path / "m", kafka_options={"bootstrap_timeout_ms": 1000})
