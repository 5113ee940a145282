"""Delivery modes: the options that each one sets, and those that it refuses because they break a guarantee."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, cast

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.range import RangePartitionAssignor

from ingest.delivery.kafka import (
    AtLeastOnce,
    AtMostOnce,
    Consumer,
    DeadLetter,
    DeliveryMode,
    ExactlyOnce,
    Grouped,
    GuaranteeBroken,
    TransactionalProducer,
    Transform,
)
from ingest.runtime.errors import InvalidInput

pytestmark = pytest.mark.unit

MODES: list[DeliveryMode] = [AtMostOnce(), AtLeastOnce(), AtLeastOnce(idempotent=False), ExactlyOnce("x")]


@pytest.mark.parametrize("mode", MODES, ids=repr)
def test_every_option_exists_in_kafka_python(mode: DeliveryMode) -> None:
    assert mode.producer_options().keys() <= KafkaProducer.DEFAULT_CONFIG.keys()
    assert mode.consumer_options("g").keys() <= KafkaConsumer.DEFAULT_CONFIG.keys()


@pytest.mark.parametrize(
    ("mode", "option", "value", "guarantee"),
    [
        (AtMostOnce(), "retries", 3, "write its records twice"),
        (AtMostOnce(), "enable_idempotence", True, "another mode"),
        (AtMostOnce(), "transactional_id", "x", "no transactions"),
        (AtLeastOnce(), "acks", 1, "lost with it"),
        (AtLeastOnce(), "acks", 0, "lost with it"),
        (AtLeastOnce(), "retries", 0, "fails once is lost"),
        (AtLeastOnce(), "retries", None, "fails once is lost"),
        (AtLeastOnce(), "retries", "5", "fails once is lost"),
        (AtLeastOnce(), "max_in_flight_requests_per_connection", 6, "neither keep order nor drop copies"),
        (AtLeastOnce(), "enable_idempotence", False, "twice"),
        (AtLeastOnce(), "transactional_id", "x", "no transactions"),
        (ExactlyOnce("x"), "acks", 1, "lost with it"),
        (ExactlyOnce("x"), "retries", 0, "fails once is lost"),
        (ExactlyOnce("x"), "enable_idempotence", False, "twice"),
        (ExactlyOnce("x"), "max_in_flight_requests_per_connection", 6, "neither keep order nor drop copies"),
        (ExactlyOnce("x"), "transactional_id", "y", "fencing"),
        (ExactlyOnce("x"), "transaction_timeout_ms", 60_000, "holds readers up"),
    ],
)
def test_a_producer_option_that_breaks_a_guarantee_is_refused_and_names_the_guarantee(
    mode: DeliveryMode, option: str, value: Any, guarantee: str
) -> None:
    with pytest.raises(GuaranteeBroken, match=guarantee) as refused:
        mode.producer_options(**{option: value})
    assert (refused.value.code, refused.value.exit_code, refused.value.option) == ("GUARANTEE_BROKEN", 2, option)
    assert mode.name in refused.value.found


@pytest.mark.parametrize("mode", MODES, ids=repr)
@pytest.mark.parametrize(
    ("option", "value", "guarantee"),
    [
        ("enable_auto_commit", True, "committed by a timer"),
        # With kafka-python's eager assignors and the default cooperative rebalance, 157 of 400 records were skipped.
        ("partition_assignment_strategy", (RangePartitionAssignor,), "buffered records would be skipped"),
        # Decoding belongs to the work, which can put a failing record into the dead-letter topic.
        ("value_deserializer", bytes.decode, "before the work sees it"),
    ],
)
def test_a_consumer_option_that_breaks_a_guarantee_is_refused_and_names_the_guarantee(
    mode: DeliveryMode, option: str, value: Any, guarantee: str
) -> None:
    with pytest.raises(GuaranteeBroken, match=guarantee):
        mode.consumer_options("g", **{option: value})
    with pytest.raises(GuaranteeBroken, match="nothing remembers"):
        mode.consumer_options("")


@pytest.mark.parametrize("mode", MODES, ids=repr)
@pytest.mark.parametrize("option", ["key_serializer", "value_serializer"])
def test_serializers_are_refused_because_bytes_in_flight_could_not_be_counted(mode: DeliveryMode, option: str) -> None:
    """With a serializer, `send` raised after the record was in flight and no longer counted it."""
    with pytest.raises(GuaranteeBroken, match="bytes passed in are counted"):
        mode.producer_options(**{option: str.encode})


@pytest.mark.parametrize("mode", MODES, ids=repr)
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_reset_of_a_missing_position_is_refused(mode: DeliveryMode, reset: str) -> None:
    with pytest.raises(GuaranteeBroken, match=r"skipped or processed again without an error.*begin_group"):
        mode.consumer_options("g", auto_offset_reset=reset)
    assert mode.consumer_options("g")["auto_offset_reset"] == "none"


def test_the_isolation_level_is_never_left_to_a_default() -> None:
    assert {mode.consumer_options("g")["isolation_level"] for mode in MODES} == {"read_committed"}
    with pytest.raises(GuaranteeBroken, match="aborted"):
        ExactlyOnce("x").consumer_options("g", isolation_level="read_uncommitted")
    with pytest.raises(GuaranteeBroken, match="differ in their default"):
        AtLeastOnce().consumer_options("g", isolation_level=None)


def test_options_that_break_no_guarantee_are_accepted() -> None:
    options = ExactlyOnce("x").producer_options(acks=-1, retries=10, max_in_flight_requests_per_connection=1, linger_ms=0)
    assert (options["acks"], options["retries"], options["linger_ms"], options["transactional_id"]) == (-1, 10, 0, "x")
    assert AtMostOnce().producer_options(acks=1)["acks"] == 1


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        (AtMostOnce(), {"acks": 0, "retries": 0, "enable_idempotence": False}),
        (AtLeastOnce(idempotent=False), {"acks": "all", "retries": math.inf, "max_in_flight_requests_per_connection": 1}),
        (AtLeastOnce(), {"acks": "all", "retries": math.inf, "enable_idempotence": True}),
        (ExactlyOnce("x"), {"acks": "all", "retries": math.inf, "enable_idempotence": True, "transactional_id": "x"}),
    ],
    ids=repr,
)
def test_options_that_a_guarantee_depends_on_are_set_explicitly(mode: DeliveryMode, wanted: dict[str, Any]) -> None:
    options = mode.producer_options()
    assert {name: options.get(name) for name in wanted} == wanted
    assert mode.name == "at_most_once" or options["max_in_flight_requests_per_connection"] <= 5
    assert mode.consumer_options("g")["enable_auto_commit"] is False


def test_batches_lingering_and_compression_are_set() -> None:
    for mode in MODES:
        options = mode.producer_options()
        assert (options["batch_size"], options["linger_ms"]) == (65_536, 10)
        assert options["compression_type"] in ("zstd", "lz4", "gzip")


@pytest.mark.parametrize("maker", [Grouped, Transform])
def test_a_transaction_groups_1000_records_or_100_ms_by_default(maker: type) -> None:
    given = inspect.signature(maker).parameters
    assert (given["records"].default, given["time_ms"].default) == (1_000, 100)


REFUSED: dict[str, Callable[[], object]] = {
    "GROUP_SIZE": lambda: Grouped(object.__new__(TransactionalProducer), records=0),
    "INPUT_BUFFER": lambda: Consumer(AtLeastOnce(), ["t"], "g", "127.0.0.1:1", input_buffer_max_bytes=0),
    "COMMIT_EVERY": lambda: Consumer(AtLeastOnce(), ["t"], "g", "127.0.0.1:1", commit_records=0),
    "REBALANCE_UNKNOWN": lambda: Consumer(AtLeastOnce(), ["t"], "g", "127.0.0.1:1", rebalance=cast(Any, "sticky")),
    "TOPIC_UNKNOWN": lambda: Consumer(AtLeastOnce(), [], "g", "127.0.0.1:1"),
    "GUARANTEE_BROKEN": lambda: Consumer(AtLeastOnce(), ["t"], "g", "127.0.0.1:1", max_poll_records=0),
    "DEAD_LETTER": lambda: DeadLetter(""),
}


@pytest.mark.parametrize("code", REFUSED)
def test_an_impossible_number_or_name_is_refused_without_a_broker(code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        REFUSED[code]()
    assert (refused.value.code, refused.value.exit_code) == (code, 2)


@pytest.mark.parametrize(("name", "timeout_ms", "code"), [("", 10_000, "TRANSACTIONAL_ID_EMPTY"), ("x", 999, "TRANSACTION_TIMEOUT")])
def test_a_transactional_id_needs_a_name_and_a_timeout_that_brokers_accept(name: str, timeout_ms: int, code: str) -> None:
    with pytest.raises(InvalidInput, match=code):
        ExactlyOnce(name, timeout_ms)
