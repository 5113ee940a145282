"""Every kind of poison at once, with the repository's contracts: above the limit nothing is written, below it nothing is lost."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from kafka import KafkaProducer

from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.oracle import OracleVerdict
from ingest.lab.oracle.oracle_tables import Lake, select
from ingest.lab.oracle.sources import Number
from ingest.lab.samples.poison_records import POISON_KINDS, PoisonKind
from ingest.lab.samples.shop import ORDERS, PAYMENTS, Shop
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import REPOSITORY
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOPICS = (ORDERS, PAYMENTS)
LARGE_BYTES = 10 * 1024 * 1024
ID = {ORDERS: "order_id", PAYMENTS: "payment_id"}
PAYLOAD = {ORDERS: ("customer_id", "amount", "ordered_at", "coupon"), PAYMENTS: ("order_id", "amount", "fee", "paid_at", "captured")}


@dataclass(frozen=True)
class Story:
    pipeline: Pipeline
    refused: str
    written_when_refused: dict[str, list[Number]]
    verdicts: dict[str, OracleVerdict]
    lakes: dict[str, Lake]


@pytest.fixture(scope="module")
def story(shared_pipeline: PipelineFactory, broker: Broker) -> Story:
    pipeline = shared_pipeline(tables=())
    topics = {kind: f"{kind}-{uuid.uuid4().hex[:12]}" for kind in TOPICS}
    for topic in topics.values():
        broker.create_topic(topic, 2)
    write_contracts(pipeline.project, topics, max_share=0.03)
    pipeline.produce(3000, poison=2 * len(POISON_KINDS), topics=topics)
    refused = pipeline.start().ended(5)
    written = {kind: pipeline.written("target", kind) + pipeline.written("quarantine", kind) for kind in TOPICS}
    write_contracts(pipeline.project, topics, max_share=0.5)
    pipeline.complete()
    verdicts = {k: pipeline.judge(k, topics=(topics[k],), id_columns=(ID[k],), payload_columns=PAYLOAD[k]) for k in TOPICS}
    lakes = {kind: Lake.read(pipeline.lake / "shop" / kind, (ID[kind],), ()) for kind in TOPICS}
    return Story(pipeline, refused, written, verdicts, lakes)


def write_contracts(project: Path, topics: dict[str, str], *, max_share: float) -> None:
    for kind, topic in topics.items():
        contract = yaml.safe_load((REPOSITORY / "tables" / f"{kind}.yml").read_text(encoding="utf-8"))
        contract["source"]["topic"] = topic
        contract.pop("suite", None)  # this test's project has no suite
        contract["quarantine"] = {"max_share": max_share, "min_records": 100}
        (project / "tables" / f"{kind}.yml").write_text(yaml.safe_dump(contract), encoding="utf-8")


def test_above_the_limit_a_table_stops_with_nothing_written_and_the_other_table_continues(story: Story) -> None:
    assert "ingest: QUARANTINE_LIMIT: " in story.refused and "records of batch 2 of shop.orders would go to quarantine" in story.refused
    assert story.written_when_refused == {ORDERS: [], PAYMENTS: [(1, 2), (1, 2)]}, "the payments batch is in target and quarantine"


@pytest.mark.parametrize("table", TOPICS)
def test_with_a_raised_limit_the_table_continues_and_nothing_is_lost(story: Story, table: str) -> None:
    story.verdicts[table].assert_clean()
    assert story.pipeline.written("target", table) == [(2 if table == ORDERS else 1, 2)]


@pytest.mark.parametrize("kind", POISON_KINDS, ids=lambda kind: kind.name)
def test_each_kind_of_poison_is_in_quarantine(story: Story, kind: PoisonKind) -> None:
    """I5. Records that a contract may accept (numbers as text) may be in the target instead. The oracle judges those."""
    lake = story.lakes[kind.topic]
    held = [*lake.quarantine, *(lake.target if kind.by_contract else ())]
    positions = {(p.partition, p.offset) for p in held}
    sent = [(partition, offset) for name, _, partition, offset in delivered(story.pipeline.manifests[0]) if name == kind.name]
    assert sent and positions.issuperset(sent)


def test_records_of_10_mb_arrive_and_a_broken_one_is_quarantined_whole(pipeline: PipelineFactory) -> None:
    """I5: they pass broker, consumer, decode and both tables. The first is longer than a consumer's fetch limit per partition."""
    lake = pipeline(batch=1500)
    lake.produce(1000, poison=20)
    order = next(Shop("large").orders(1))
    large = order.value.replace(b'"customer_id":"', b'"customer_id":"' + b"x" * LARGE_BYTES, 1)
    producer = KafkaProducer(bootstrap_servers=lake.bootstrap_servers, acks="all", max_request_size=2 * LARGE_BYTES)
    places = [producer.send(lake.topic, value, partition=0).get(60) for value in (large, large[:-1])]
    producer.close()
    lake.produce(1000, seed=2)
    lake.complete()
    lake.judge().assert_clean()
    stored = {offset: len(text) for offset, text in select(lake.delta(), ["_offset", "customer_id"]) if len(text) > LARGE_BYTES}
    assert stored.keys() == {places[0].offset} and min(stored.values()) > LARGE_BYTES
    kept = {(p, o): value for p, o, value in select(lake.delta("quarantine"), ["partition", "offset", "value"])}
    assert kept[0, places[1].offset] == large[:-1]


def delivered(manifest: Path) -> list[tuple[str, str, int, int]]:
    """Kind, topic, partition and offset of each poison record that was committed."""
    return [tuple(at) for line in manifest.read_text().splitlines() for at in json.loads(line).get("poison_at", [])]
