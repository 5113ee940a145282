"""Delivery modes as values: each sets the kafka-python options that its guarantee needs and refuses options that contradict it.

    ExactlyOnce("billing-0").producer_options()                  # arguments for KafkaProducer
    AtLeastOnce().consumer_options("billing", max_poll_records=100)
    AtLeastOnce().producer_options(acks=1)                       # GuaranteeBroken: a record could be lost with the leader

Sources of the rules: KIP-98 (transactions), KIP-679 (idempotence needs acks=all), KIP-447 (group metadata) and Kafka's
documentation of these options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from kafka.codec import has_lz4, has_zstd

from ingest.delivery.kafka.delivery_errors import GuaranteeBroken
from ingest.runtime.errors import InvalidInput

BATCH_BYTES: Final = 64 * 1024
LINGER_MS: Final = 10
IN_FLIGHT_MAX: Final = 5  # per producer and partition, the broker remembers the last five batches (KIP-98)


@dataclass(frozen=True)
class _Rule:
    """A check of one option: `expected` describes the allowed values, `guarantee` the damage that other values do."""

    option: str
    holds: Callable[[Any], bool]
    expected: str
    guarantee: str


def compression() -> str | None:
    """The best installed codec: zstd, else lz4, else gzip, which is part of Python."""
    return "zstd" if has_zstd() else "lz4" if has_lz4() else "gzip"


def _is(value: object) -> Callable[[Any], bool]:
    return lambda given: given is value or (type(given) is type(value) and given == value)


_ALL: Final = lambda given: given in ("all", -1)  # noqa: E731
_UNTIL_TIMEOUT: Final = float("inf")  # delivery_timeout_ms bounds the retries
_NO_AUTO_COMMIT: Final = "offsets are committed by a timer: unprocessed records count as done, processed ones do not"
_BATCHING: Final[Mapping[str, Any]] = {
    "batch_size": BATCH_BYTES,
    "linger_ms": LINGER_MS,
    "request_timeout_ms": 30_000,
    "delivery_timeout_ms": 40_000,
    "max_block_ms": 30_000,
    "allow_auto_create_topics": False,
    "metrics_enabled": False,
}
_READING: Final[dict[str, Any]] = {"enable_auto_commit": False, "isolation_level": "read_committed", "auto_offset_reset": "none"}
_GROUP_RULES: Final = (
    _Rule("enable_auto_commit", _is(False), "False; offsets are committed before, after or together with the work", _NO_AUTO_COMMIT),
    _Rule("max_poll_records", lambda given: given >= 1, "at least 1", "no record would ever be read"),
    _Rule("group_id", bool, "a name", "without a group, nothing remembers which records were read"),
    _Rule(
        "auto_offset_reset",
        _is("none"),
        "'none'; a group begins with begin_group, a database sink at its starting_offsets",
        "if a position is missing or its records are gone, records would be skipped or processed again without an error",
    ),
    _Rule(
        "partition_assignment_strategy",
        lambda given: False,
        "unset; choose rebalance='cooperative' or 'eager'",
        "which records are re-read after a rebalance depends on the assignor: buffered records would be skipped",
    ),
    *(
        _Rule(name, _is(None), "unset; the work gets bytes", "a record that cannot be decoded would end every run before the work sees it")
        for name in ("key_deserializer", "value_deserializer")
    ),
)
_BYTES_OUT: Final = tuple(
    _Rule(
        name,
        _is(None),
        "unset; records are passed as bytes",
        "the bytes passed in are counted to bound the records in flight, and a dead letter keeps its original bytes",
    )
    for name in ("key_serializer", "value_serializer")
)
_SEEN_LEVEL: Final = _Rule(
    "isolation_level",
    lambda given: given in ("read_committed", "read_uncommitted"),
    "'read_committed' or 'read_uncommitted', set explicitly",
    "clients differ in their default, and read_uncommitted shows aborted records",
)
_DURABLE: Final = (
    _Rule("acks", _ALL, "'all'", "a record that only the leader has is lost with it"),
    _Rule("retries", lambda given: given > 0, "1 or more", "a record whose request fails once is lost"),
)


@dataclass(frozen=True)
class AtMostOnce:
    """Never twice, perhaps lost: a producer sends each record once and does not wait; a consumer commits before it works."""

    name: ClassVar[str] = "at_most_once"

    def producer_options(self, **more: Any) -> dict[str, Any]:
        """Options of a producer; raises GuaranteeBroken."""
        rules = (
            _Rule("retries", _is(0), "0", "a retried request can write its records twice"),
            _Rule("enable_idempotence", _is(False), "False", "idempotence retries until the write is confirmed, which is another mode"),
            _no_transactions(self.name),
            *_BYTES_OUT,
        )
        own = {"acks": 0, "retries": 0, "enable_idempotence": False, "compression_type": compression()}
        return _checked(self.name, {**_BATCHING, **own}, more, rules)

    def consumer_options(self, group_id: str, **more: Any) -> dict[str, Any]:
        """Options of a consumer; raises GuaranteeBroken."""
        return _checked(self.name, _READING | {"group_id": group_id}, more, (*_GROUP_RULES, _SEEN_LEVEL))


@dataclass(frozen=True)
class AtLeastOnce:
    """Never lost, perhaps twice: a producer sends until all in-sync replicas acknowledge; a consumer commits after its work.

    `idempotent` (the default) prevents the copies that the client's own retries would make. A restarted producer, an application that
    sends again, and a consumer that repeats its work can still make copies.
    """

    idempotent: bool = True
    name: ClassVar[str] = "at_least_once"

    def producer_options(self, **more: Any) -> dict[str, Any]:
        """Options of a producer; raises GuaranteeBroken."""
        rules: tuple[_Rule, ...] = (*_DURABLE, _no_transactions(self.name), *_BYTES_OUT)
        if self.idempotent:
            rules += (_in_order("idempotent=True"), _Rule("enable_idempotence", _is(True), "True", "a retry would write its records twice"))
        own = {
            "acks": "all",
            "retries": _UNTIL_TIMEOUT,
            "enable_idempotence": self.idempotent,
            "max_in_flight_requests_per_connection": IN_FLIGHT_MAX,
        }
        if not self.idempotent:
            own["max_in_flight_requests_per_connection"] = 1  # else a retried batch could land behind the next one
        return _checked(self.name, {**_BATCHING, **own, "compression_type": compression()}, more, rules)

    def consumer_options(self, group_id: str, **more: Any) -> dict[str, Any]:
        """Options of a consumer; raises GuaranteeBroken."""
        return _checked(self.name, _READING | {"group_id": group_id}, more, (*_GROUP_RULES, _SEEN_LEVEL))


@dataclass(frozen=True)
class ExactlyOnce:
    """Each record is visible once or not at all, together with its whole transaction and with the offsets of its input.

    `transactional_id` identifies the producer across restarts. Choose one per instance and purpose, such as `billing-0`. Keep it after
    a restart: the broker then aborts at once the transaction that was left open. Do not share it: two live producers would fence each
    other. Do not make it random: every crash would leave a transaction open until `transaction_timeout_ms`, and read_committed
    consumers would wait that long. Raises InvalidInput TRANSACTIONAL_ID_EMPTY or TRANSACTION_TIMEOUT.
    """

    transactional_id: str
    # A crash can hold up all readers for this long. Kafka's default is 60 s; Kafka Streams uses 10 s for the same reason.
    transaction_timeout_ms: int = 10_000
    name: ClassVar[str] = "exactly_once"

    def __post_init__(self) -> None:
        if not self.transactional_id:
            expected, remedy = "a name that stays the same across restarts.", "name it after the instance, such as billing-0."
            raise InvalidInput("TRANSACTIONAL_ID_EMPTY", "the transactional id is empty.", expected=expected, remedy=remedy)
        if not 1_000 <= self.transaction_timeout_ms <= 900_000:
            raise InvalidInput(
                "TRANSACTION_TIMEOUT",
                f"transaction_timeout_ms is {self.transaction_timeout_ms}.",
                expected="1,000 to 900,000 (brokers refuse more than transaction.max.timeout.ms, 15 minutes by default).",
                remedy="set it to twice the time of the longest transaction.",
            )

    def producer_options(self, **more: Any) -> dict[str, Any]:
        """Options of a producer; raises GuaranteeBroken."""
        rules = (
            *_DURABLE,
            _in_order(self.name),
            _Rule("enable_idempotence", _is(True), "True", "a retry would write its records twice"),
            _Rule("transactional_id", _is(self.transactional_id), f"{self.transactional_id!r}, the mode's", "fencing uses this name"),
            _Rule(
                "transaction_timeout_ms",
                _is(self.transaction_timeout_ms),
                f"{self.transaction_timeout_ms}, the mode's",
                "this one number bounds how long a crash holds readers up",
            ),
            *_BYTES_OUT,
        )
        own = {
            "acks": "all",
            "retries": _UNTIL_TIMEOUT,
            "enable_idempotence": True,
            "max_in_flight_requests_per_connection": IN_FLIGHT_MAX,
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.transaction_timeout_ms,
            "compression_type": compression(),
            # For some milliseconds after a commit, the broker still writes its markers and answers CONCURRENT_TRANSACTIONS to the next
            # transaction. kafka-python's sender then sleeps this long: by default 100 ms at every transaction.
            "retry_backoff_ms": 5,
        }
        return _checked(self.name, {**_BATCHING, **own}, more, rules)

    def consumer_options(self, group_id: str, **more: Any) -> dict[str, Any]:
        """Options of a consumer; raises GuaranteeBroken."""
        committed = _Rule("isolation_level", _is("read_committed"), "'read_committed'", "records of aborted transactions would be seen")
        return _checked(self.name, _READING | {"group_id": group_id}, more, (*_GROUP_RULES, committed))


DeliveryMode: TypeAlias = AtMostOnce | AtLeastOnce | ExactlyOnce


def _in_order(mode: str) -> _Rule:
    return _Rule(
        "max_in_flight_requests_per_connection",
        lambda given: 1 <= given <= IN_FLIGHT_MAX,
        f"1 to {IN_FLIGHT_MAX}",
        f"the broker recognises the last {IN_FLIGHT_MAX} batches; beyond that {mode} can neither keep order nor drop copies",
    )


def _no_transactions(mode: str) -> _Rule:
    return _Rule("transactional_id", _is(None), "unset", f"{mode} has no transactions; ExactlyOnce has")


def _checked(mode: str, own: Mapping[str, Any], more: Mapping[str, Any], rules: tuple[_Rule, ...]) -> dict[str, Any]:
    options = {**own, **more}
    for rule in rules:
        if rule.option in options and not _holds(rule, options[rule.option]):
            raise GuaranteeBroken(mode, rule.option, options[rule.option], expected=rule.expected, guarantee=rule.guarantee)
    return options


def _holds(rule: _Rule, given: object) -> bool:
    try:
        return rule.holds(given)
    except TypeError:  # None or a string instead of a number
        return False
