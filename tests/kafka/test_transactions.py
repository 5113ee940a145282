"""`ingest transactions`: lists open transactions, shows which ones block readers, and aborts one after a confirmation."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.protocol.admin.transactions import DescribeTransactionsResponse

from ingest.delivery.kafka import ExactlyOnce, ProducerFenced, TransactionalProducer
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.open_transactions import Listed, _row, abort, listed
from ingest.lab.broker.broker_probe import admin
from ingest.runtime.errors import InvalidEnvironment, InvalidInput
from tests.kafka.topics import Topics, until


def command(servers: str, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    verb = [sys.executable, "-m", "ingest", "transactions", "--bootstrap-servers", servers, *words]
    return subprocess.run(verb, capture_output=True, text=True, input=typed, timeout=60, check=False)


@pytest.fixture
def name() -> str:
    return f"listed-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def row(topics: Topics, name: str) -> Callable[[], Listed]:
    def of_this_test() -> Listed:
        (found,) = (each for each in listed(KafkaOptions(topics.servers)) if each.transactional_id == name)
        return found

    return of_this_test


@pytest.fixture
def open_one(topics: Topics, topic: Callable[..., str], name: str) -> Iterator[tuple[str, TransactionalProducer]]:
    """A transaction with three records in partition 1, followed by five records of another producer without a transaction."""
    sink = topic(2)
    producer = TransactionalProducer(ExactlyOnce(name, 60_000), topics.servers)
    with contextlib.suppress(ProducerFenced), producer.transaction() as transaction:
        for _ in range(3):
            transaction.send(sink, b"open", partition=1)
        transaction._made.flush()
        other = KafkaProducer(bootstrap_servers=topics.servers)
        for _ in range(5):
            other.send(sink, b"waiting", partition=1)
        other.flush()
        other.close()
        yield sink, producer
    producer.close()


def test_the_metrics_of_a_table_show_the_transaction_that_holds_back_its_topic(
    topics: Topics, open_one: tuple[str, TransactionalProducer], tmp_path: Path
) -> None:
    columns = [{"name": "id", "type": "STRING", "nullable": False}]
    contract = {"pipeline": "shop", "table": "orders", "source": {"topic": open_one[0], "format": "json"}, "columns": columns}
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/orders.yml").write_text(json.dumps({**contract, "event_id": ["id"]}))
    verb = [sys.executable, "-m", "ingest", "metrics", "--project", str(tmp_path), "--lake", str(tmp_path / "lake"), "--json"]
    places = ["--checkpoints", str(tmp_path / "checkpoints"), "--bootstrap-servers", topics.servers]
    done = subprocess.run([*verb, *places], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = {sample["name"]: sample["value"] for sample in json.loads(done.stdout)["tables"][0]["samples"]}
    assert found["oncelake_transaction_held_offsets"] == 8
    assert 0 < found["oncelake_transaction_age_seconds"] < 60
    assert found["oncelake_lag_offsets"] == 8, "up to the topic's end, as in `ingest status`"


def test_the_states_of_a_transaction_are_listed(topics: Topics, topic: Callable[..., str], name: str, row: Callable[[], Listed]) -> None:
    sink = topic()
    with TransactionalProducer(ExactlyOnce(name), topics.servers) as producer:
        assert (row().state, row().age_s, row().partitions, row().timeout_ms) == ("Empty", None, (), 10_000)
        with producer.transaction() as transaction:
            transaction.send(sink, b"a")
            transaction._made.flush()
            first = row()
            assert (first.state, first.is_open, [place.topic for place in first.partitions]) == ("Ongoing", True, [sink])
            assert first.age_s is not None and first.age_s < 30
        until(lambda: row().state == "CompleteCommit", "the commit is complete", 5)
        with contextlib.suppress(ZeroDivisionError), producer.transaction() as transaction:
            transaction.send(sink, b"b")
            transaction._made.flush()
            raise ZeroDivisionError
        until(lambda: row().state == "CompleteAbort", "the abort is complete", 5)
        assert row().producer_id == first.producer_id


def test_the_transaction_that_blocks_readers_is_listed_first_with_the_records_it_blocks(
    topics: Topics, open_one: tuple[str, TransactionalProducer], name: str, row: Callable[[], Listed]
) -> None:
    sink, _ = open_one
    (held,) = row().held
    assert (held.topic, held.partition, held.start, held.last_stable, held.high_watermark) == (sink, 1, 0, 0, 8)
    assert held.holds and row().held_back == 8
    with TransactionalProducer(ExactlyOnce(f"{name}-2"), topics.servers) as second, second.transaction() as transaction:
        transaction.send(sink, b"behind", partition=1)
        transaction._made.flush()
        behind = next(each for each in listed(KafkaOptions(topics.servers)) if each.transactional_id == f"{name}-2")
        assert [each.holds for each in behind.held] == [False] and behind.held_back == 0, "this transaction is itself blocked"
        assert listed(KafkaOptions(topics.servers))[0].transactional_id == name
    shown = command(topics.servers, "--open").stdout
    assert f"{name} holds back {sink}[1] at offset 0: 9 records up to offset " in shown and "Ongoing" in shown


def test_blocked_records_are_counted_without_the_markers_between_them(
    topics: Topics, open_one: tuple[str, TransactionalProducer], name: str, row: Callable[[], Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, _ = open_one
    with TransactionalProducer(ExactlyOnce(f"{name}-2"), topics.servers) as second, second.transaction() as transaction:
        transaction.send(sink, b"behind", partition=1)
    until(lambda: row().held_back == 10, "the second transaction's record and marker are in the log", 5)
    assert row().records_held_back == 9
    logger = logging.getLogger("kafka")
    monkeypatch.setattr(logger, "level", logging.INFO)
    monkeypatch.setattr("ingest.kafka.open_transactions.COUNTED_MAX", 9)
    assert (row().held_back, row().records_held_back, row().held[0].records) == (10, None, None)
    assert logger.level == logging.INFO, "the service's log level is unchanged"


def test_an_abort_asks_for_confirmation_and_then_fences(topics: Topics, open_one: tuple[str, TransactionalProducer], name: str) -> None:
    sink, _ = open_one
    refused = command(topics.servers, "--abort", name, typed="n\n")
    assert refused.returncode == 0 and "nothing was done" in refused.stdout and topics.values(sink) == []
    unasked = command(topics.servers, "--abort", name, "--json")
    assert unasked.returncode == 2 and json.loads(unasked.stdout)["error"]["code"] == "NOT_CONFIRMED"
    began = time.monotonic()
    done = command(topics.servers, "--abort", name, typed="y\n")
    assert done.returncode == 0 and f"aborted the transaction of {name}" in done.stdout, done.stderr
    assert time.monotonic() - began < 30
    assert topics.values(sink) == [b"waiting"] * 5


def test_json_is_one_document(topics: Topics, open_one: tuple[str, TransactionalProducer], name: str) -> None:
    document: dict[str, Any] = json.loads(command(topics.servers, "--json").stdout)
    assert (document["schema"], document["ok"], document["error"]) == ("oncelake/transactions/1", True, None)
    (found,) = (each for each in document["transactions"] if each["transactional_id"] == name)
    assert (found["state"], found["held_back"], found["records_held_back"], found["held"][0]["holds"]) == ("Ongoing", 8, 8, True)
    assert found["partitions"] == [{"topic": open_one[0], "partition": 1}]


def test_a_topic_deleted_during_an_open_transaction_hides_no_other_transaction(
    topics: Topics, topic: Callable[..., str], open_one: tuple[str, TransactionalProducer], name: str, row: Callable[[], Listed]
) -> None:
    gone = topic()
    second = TransactionalProducer(ExactlyOnce(f"{name}-2"), topics.servers)
    with second, pytest.raises(ZeroDivisionError), second.transaction() as transaction:
        transaction.send(gone, b"1")
        transaction.flush()
        with admin(topics.servers, timeout_s=20) as client:
            client.delete_topics([gone])
            until(lambda: not [each for each in client.describe_topics([gone]) if each["partitions"]], "the topic is gone", 10)
        assert row().records_held_back == 8
        document = json.loads(command(topics.servers, "--json").stdout)
        (found,) = (each for each in document["transactions"] if each["transactional_id"] == f"{name}-2")
        assert (found["state"], found["held"], found["untold"]) == ("Ongoing", [], [{"topic": gone, "partition": 0}])
        assert f"{name}-2: {gone}[0] has no leader, was deleted" in command(topics.servers).stdout
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("state", "is_open"), [("PrepareCommit", True), ("PrepareAbort", True), ("PrepareEpochFence", True), ("Dead", False), ("Empty", False)]
)
@pytest.mark.unit
def test_each_state_of_a_reply_is_either_open_or_not(state: str, is_open: bool) -> None:
    """Tests the parsing of a reply. A broker shows the first two states in test_transactions_stuck.py.

    PrepareEpochFence lasts only for a moment. Dead is never reported: brokers omit expiring ids from both replies.
    """
    in_reply = DescribeTransactionsResponse.TransactionState
    at = in_reply.TopicData(topic="t", partitions=[3])
    started_ms = int(time.time() * 1000) - 5_000
    one = in_reply(
        error_code=0,
        transactional_id="x",
        transaction_state=state,
        transaction_timeout_ms=10_000,
        transaction_start_time_ms=started_ms,
        producer_id=7,
        producer_epoch=2,
        topics=[at],
    )
    (described,) = KafkaAdminClient._describe_transactions_process_response(
        DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[one]), 1
    ).values()
    place = TopicPartition("t", 3)
    made = _row("x", described, {(place, 7): 4}, {place: (4, 9)}, {place: 5})
    assert (made.state, made.is_open, made.held_back, made.records_held_back) == (state, is_open, *((5, 5) if is_open else (0, 0)))
    assert (made.age_s is not None, len(made.partitions), len(made.held)) == (is_open, is_open, is_open)


def test_a_broker_without_the_request_is_refused_as_too_old(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client assumes broker version 2.8 and itself refuses requests that such a broker does not support."""
    monkeypatch.setattr("ingest.kafka.open_transactions.KafkaAdminClient", partial(KafkaAdminClient, api_version=(2, 8)))
    with pytest.raises(InvalidEnvironment, match="BROKER_TOO_OLD") as old:
        listed(KafkaOptions(topics.servers))
    assert old.value.exit_code == 4


def test_an_impossible_abort_is_refused_with_the_reason(topics: Topics, name: str) -> None:
    kafka = KafkaOptions(topics.servers)
    with pytest.raises(InvalidInput, match="TRANSACTIONAL_ID_UNKNOWN"):
        abort(kafka, "nobody")
    with TransactionalProducer(ExactlyOnce(name), topics.servers), pytest.raises(InvalidInput, match=r"NO_OPEN_TRANSACTION.*Empty"):
        abort(kafka, name)
    with pytest.raises(InvalidEnvironment, match="BROKER_UNREACHABLE"):
        listed(KafkaOptions("127.0.0.1:1"))
