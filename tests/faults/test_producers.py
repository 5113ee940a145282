"""Producers are fenced, cut off, or hang: a run of the command reads the topic, and the oracle judges the result."""

from __future__ import annotations

import json
import signal
import uuid

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from ingest.delivery.kafka import ExactlyOnce, ProducerFenced, TransactionalProducer
from ingest.lab.oracle.oracle_tables import select
from ingest.lab.oracle.sources import read_kafka
from ingest.lab.proxy import Api, Proxy
from ingest.lab.samples.sender_process import Sender
from tests.faults.conftest import PipelineFactory
from tests.faults.driver import until
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = (0, 1)
# Long enough for a start on a busy machine and for checking what it has read.
HANGS_MS = 60_000


@pytest.fixture
def lake(pipeline: PipelineFactory) -> Pipeline:
    return pipeline(batch=1500)


def orders(name: str, count: int = 40) -> list[bytes]:
    """Valid orders whose ids contain the producer's name."""
    common = {"customer_id": "c", "status": "paid", "currency": "EUR", "amount": 1, "ordered_at": "2025-01-01T00:00:00Z"}
    return [json.dumps({"order_id": f"{name}-{number}", **common}).encode() for number in range(count)]


def ends(lake: Pipeline, level: str) -> dict[int, int]:
    """The end offset of each partition for a reader with this isolation level."""
    partitions = [TopicPartition(lake.topic, partition) for partition in PARTITIONS]
    consumer = KafkaConsumer(bootstrap_servers=lake.bootstrap_servers, isolation_level=level, enable_auto_commit=False, group_id=None)
    try:
        return {at.partition: end for at, end in consumer.end_offsets(partitions).items()}
    finally:
        consumer.close()


def stable(lake: Pipeline) -> bool:
    """Whether no transaction is open."""
    return ends(lake, "read_committed") == ends(lake, "read_uncommitted")


def read(lake: Pipeline) -> dict[int, int]:
    """The end offsets of the target's newest batch."""
    return lake.ends() if lake.written() else {}


def nothing_of(lake: Pipeline, name: str) -> None:
    stored = {str(order) for (order,) in select(lake.delta(), ["order_id"])}
    assert stored and not [order for order in stored if order.startswith(f"{name}-")]
    lake.judge().assert_clean()


def test_records_of_a_fenced_producers_open_transaction_are_not_in_the_lake(lake: Pipeline) -> None:
    """Another instance takes over the id while its records are in the log. The old producer ends with an error; others continue."""
    name = f"fenced-{uuid.uuid4()}"
    lake.produce(1000, poison=20)
    with (
        TransactionalProducer(ExactlyOnce(name), lake.bootstrap_servers) as old,
        pytest.raises(ProducerFenced),
        old.transaction() as open_one,
    ):
        for number, value in enumerate(orders("fenced")):
            open_one.send(lake.topic, value, partition=number % 2)
        open_one.flush()
        assert not stable(lake), "the open transaction's records are in the log"
        with Sender(lake.bootstrap_servers, name, {}, 10):
            pass
    lake.produce(1000, seed=2)
    lake.complete()
    nothing_of(lake, "fenced")


def test_a_lost_reply_to_a_producers_commit_tears_and_duplicates_no_transaction(lake: Pipeline) -> None:
    """The broker has committed, but the producer does not know: it is replaced and resends all. The event ids identify the copies."""
    direct = lake.bootstrap_servers
    with Proxy(direct) as proxy:
        lost = proxy.drop_reply(Api.END_TXN, skip=2)
        lake.bootstrap_servers = proxy.bootstrap_servers
        produced = lake.produce(2000, poison=20, aborted_share=0, commit_timeout_s=3)
    lake.bootstrap_servers = direct
    assert (lost.struck, produced.unknown) == (1, 1) and produced.committed >= 4
    seen = len(read_kafka(direct, lake.topic, ("order_id",), ()).records)
    assert seen > produced.events + produced.retries + produced.poison, "the transaction is in the topic twice"
    lake.complete()
    lake.judge().assert_clean()


def test_a_hanging_transaction_blocks_a_run_until_its_timeout_and_is_listed_meanwhile(lake: Pipeline) -> None:
    """The run reads up to the transaction and waits. After the broker aborts it, the run continues, and none of its records is a row."""
    name = f"hanging-{uuid.uuid4()}"
    lake.produce(1000, poison=10)
    hanging = KafkaProducer(bootstrap_servers=lake.bootstrap_servers, acks="all", transactional_id=name, transaction_timeout_ms=HANGS_MS)
    try:
        hanging.init_transactions()
        hanging.begin_transaction()
        for number, value in enumerate(orders("hanging")):
            hanging.send(lake.topic, value, partition=number % 2)
        hanging.flush()
        before = ends(lake, "read_committed")
        lake.produce(1000, seed=2)
        driver = lake.start("--every", "1s")
        until(
            lambda: read(lake) == before or driver.process.poll() is not None,
            lambda: f"a batch up to the hanging transaction; output:\n{driver.said}",
        )
        assert name in lake.command("transactions", "--json").ended(0), "`ingest transactions` names the hanging transaction"
        assert not stable(lake) and read(lake) == before, "no batch reads past the hanging transaction"
        until(lambda: stable(lake), "the broker has aborted the hanging transaction")
    finally:
        hanging.close(timeout=0)
    final_ends = ends(lake, "read_committed")
    until(
        lambda: read(lake) == final_ends or driver.process.poll() is not None,
        lambda: f"the records after it are read; output:\n{driver.said}",
    )
    driver.signal(signal.SIGTERM)
    driver.ended(0)
    lake.complete()
    nothing_of(lake, "hanging")
