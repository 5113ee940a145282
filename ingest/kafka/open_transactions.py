"""Transactions from the brokers' transaction coordinators, and how many records open ones hold back from read_committed readers.

A partition's last stable offset is the start of its oldest open transaction. A read_committed reader sees nothing from there on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import BrokerResponseError, KafkaError, KafkaTimeoutError, TransactionalIdNotFoundError, UnsupportedVersionError
from kafka.protocol.metadata import MetadataRequest

from ingest.kafka import broker_request, kafka_errors
from ingest.kafka.connection import end, producer, quiet
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.fetch import TopicReader
from ingest.kafka.log.log_reader import stretches
from ingest.runtime.errors import IngestError, InvalidEnvironment, InvalidInput, RunStopped

# Kafka's names of the states of an open transaction, in the order in which it passes through them. No transaction is open in other states.
OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")

ANSWER_WITHIN_S: Final = 15.0
_OFFSETS_WITHIN_S: Final = 5.0
# A producer that only takes over a transactional id, within the limits of brokers that allow short transactions alone.
_SUCCESSOR: Final = {"acks": "all", "enable_idempotence": True, "transaction_timeout_ms": 10_000, "max_block_ms": 30_000}
_ENDED_WITHIN_S: Final = 30.0
# Counting needs only the batch headers, but fetches whole batches: about 20 MB, in at most a second.
COUNTED_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """A partition with records of an open transaction, which starts there at offset `start`.

    The offsets [last_stable, high_watermark) are hidden from read_committed readers. `records` is the number of records in them, without
    markers. It is None if the records were not counted: more than COUNTED_MAX offsets, or no right to read the topic.
    """

    topic: str
    partition: int
    start: int
    last_stable: int
    high_watermark: int
    records: int | None

    @property
    def holds(self) -> bool:
        """Whether this transaction is the one that holds back the last stable offset."""
        return self.start == self.last_stable

    @property
    def held_back(self) -> int:
        """The number of offsets, including markers, that read_committed readers wait for because of this transaction."""
        return self.high_watermark - self.last_stable if self.holds else 0


@dataclass(frozen=True, slots=True)
class Listed:
    """A transactional id and its transaction.

    `age_s` is the age of the open transaction, None without one. `held` are the partitions that contain its records. `untold` are its
    partitions for which the brokers report nothing: without a leader, deleted, or not readable for this user.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    age_s: float | None
    timeout_ms: int
    coordinator: int
    partitions: tuple[TopicPartition, ...]
    held: tuple[HeldOffsets, ...]
    untold: tuple[TopicPartition, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def held_back(self) -> int:
        """The number of offsets held back, in all partitions."""
        return sum(each.held_back for each in self.held)

    @property
    def records_held_back(self) -> int | None:
        """The number of records held back, in all partitions; None if one partition was not counted."""
        counted = [each.records for each in self.held if each.holds]
        return None if None in counted else sum(each or 0 for each in counted)


def listed(kafka: KafkaOptions) -> tuple[Listed, ...]:
    """All transactional ids that the brokers know; those that hold back the most offsets come first.

    Raises InvalidEnvironment BROKER_UNREACHABLE, KAFKA_AUTHENTICATION, KAFKA_CERTIFICATE, BROKER_TOO_OLD (before Kafka 3.0).
    """
    with quiet(), _admin(kafka) as admin:
        by_broker = admin.list_transactions()
        found = [_described(admin, row.transactional_id) for rows in by_broker.values() for row in rows]
        described = {name: one for each in found for name, one in each.items()}
        in_open = {place for one in described.values() if one.state.value in OPEN for place in one.topic_partitions}
        reported, starts = _starts(admin, _with_leader(admin, in_open))
        try:
            bounds = _bounds(kafka, reported)
        except KafkaTimeoutError:  # a partition has lost its leader since the check
            bounds = _bounds(kafka, _with_leader(admin, reported))
    starts = {(place, producer_id): start for (place, producer_id), start in starts.items() if place in bounds}
    holding = {place for (place, _), start in starts.items() if start == bounds[place][0]}
    with quiet():
        counts = {place: _records(kafka, place, *bounds[place]) for place in holding}
    rows = [_row(name, one, starts, bounds, counts) for name, one in described.items()]
    return tuple(sorted(rows, key=lambda row: (-row.held_back, not row.is_open, -(row.age_s or 0), row.transactional_id)))


def abort(kafka: KafkaOptions, transactional_id: str) -> None:
    """Abort the open transaction of this id, as a restart of its producer does: a newer producer fences the old one.

    A transaction whose commit is decided (PrepareCommit) cannot be aborted: the brokers will commit it.

    Raises InvalidInput TRANSACTIONAL_ID_UNKNOWN, NO_OPEN_TRANSACTION, RunStopped STILL_OPEN, and what `listed` raises.
    """
    row = next((each for each in listed(kafka) if each.transactional_id == transactional_id), None)
    if row is None:
        found, remedy = f"no broker knows the transactional id {transactional_id!r}.", "`ingest transactions` lists them."
        raise InvalidInput("TRANSACTIONAL_ID_UNKNOWN", found, expected="an id that a producer has used.", remedy=remedy)
    if not row.is_open or row.state == "PrepareCommit":
        found = f"{transactional_id} is in state {row.state}."
        raise InvalidInput("NO_OPEN_TRANSACTION", found, expected="a transaction that is open.", remedy="nothing needs to be done.")
    if row.state == "Ongoing":
        end(producer(kafka, {**_SUCCESSOR, "transactional_id": transactional_id}))
    deadline = time.monotonic() + _ENDED_WITHIN_S
    while any(each.transactional_id == transactional_id and each.is_open for each in listed(kafka)):
        if time.monotonic() > deadline:
            expected = "its end, once the brokers have written their markers."
            found = f"the transaction of {transactional_id} is still open."
            raise RunStopped("STILL_OPEN", found, expected=expected, remedy="check that its partitions have leaders.")
        time.sleep(0.2)


@contextmanager
def _admin(kafka: KafkaOptions) -> Iterator[Any]:
    no_topics = MetadataRequest(
        topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=False, include_topic_authorized_operations=False
    )
    broker_request.ask(kafka, no_topics, ANSWER_WITHIN_S)  # raises the actual error, which the client below would report as a timeout
    within_ms = int(ANSWER_WITHIN_S * 1000)
    try:
        admin = KafkaAdminClient(**kafka.for_python(), request_timeout_ms=within_ms, bootstrap_timeout_ms=within_ms)
        try:
            yield admin
        finally:
            admin.close()
    except KafkaError as error:
        if isinstance(error, UnsupportedVersionError):
            found, remedy = "the brokers cannot list transactions.", "use the brokers' own tools."
            raise InvalidEnvironment("BROKER_TOO_OLD", found, expected="Kafka 3.0 or later (KIP-664).", remedy=remedy) from error
        raise kafka_errors.unreachable(kafka.bootstrap_servers, type(error).__name__).environment_error() from error


def _described(admin: Any, transactional_id: str) -> dict[str, Any]:
    try:
        return dict(admin.describe_transactions([transactional_id]))
    except TransactionalIdNotFoundError:  # the id expired between the two requests
        return {}


def _with_leader(admin: Any, places: set[TopicPartition]) -> set[TopicPartition]:
    """The partitions that have a leader.

    A transaction often hangs because one of its partitions has no leader. The other partitions are reported all the same.
    """
    topics = admin.describe_topics(sorted({place.topic for place in places})) if places else ()
    led = {
        TopicPartition(topic["name"], each["partition_index"]) for topic in topics for each in topic["partitions"] if each["leader_id"] >= 0
    }
    return places & led


def _starts(admin: Any, places: set[TopicPartition]) -> tuple[set[TopicPartition], dict[tuple[TopicPartition, int], int]]:
    """The partitions that the brokers report on, and the start offset of each open transaction by partition and producer id.

    The brokers report only on partitions that the user may read.
    """
    try:
        found = dict(admin.describe_producers(places)) if places else {}
    except BrokerResponseError:  # one partition can fail the request for all of them
        found = {}
        for place in places:
            with suppress(BrokerResponseError):
                found |= admin.describe_producers([place])
    starts = {
        (place, one.producer_id): one.current_transaction_start_offset
        for place, state in found.items()
        for one in state.active_producers
        if one.current_transaction_start_offset >= 0
    }
    return set(found), starts


def _bounds(kafka: KafkaOptions, places: set[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    ends = []
    for level in ("read_committed", "read_uncommitted") if places else ():
        # In this order, so that the last stable offset is never above the end.
        options = {"isolation_level": level, "enable_auto_commit": False, "group_id": None, "exclude_internal_topics": False}
        with KafkaConsumer(**kafka.for_python(), **options) as reader:
            ends.append(reader.end_offsets(list(places), timeout_ms=_OFFSETS_WITHIN_S * 1000))
    return {place: (ends[0][place], ends[1][place]) for place in places}


def _records(kafka: KafkaOptions, place: TopicPartition, start: int, end: int) -> int | None:
    if end - start > COUNTED_MAX:
        return None
    try:
        with TopicReader(kafka, place.topic, answer_within_s=ANSWER_WITHIN_S) as reader:
            batches = (stretch.batch for stretch in stretches(reader, place.partition, start, end))
            return sum(batch.record_count for batch in batches if batch is not None and not batch.control)
    except IngestError:  # Describe is enough to request offsets, but records need Read
        return None


def _row(
    name: str,
    one: Any,
    starts: dict[tuple[TopicPartition, int], int],
    bounds: dict[TopicPartition, tuple[int, int]],
    counts: dict[TopicPartition, int | None],
) -> Listed:
    places = tuple(sorted(one.topic_partitions))
    started_ms = one.transaction_start_time_ms
    is_open = one.state.value in OPEN
    return Listed(
        name,
        one.producer_id,
        one.producer_epoch,
        one.state.value,
        round(max(time.time() - started_ms / 1000, 0.0), 1) if is_open and started_ms >= 0 else None,
        one.transaction_timeout_ms,
        one.coordinator_id,
        places if is_open else (),
        tuple(
            HeldOffsets(place.topic, place.partition, starts[place, one.producer_id], *bounds[place], counts.get(place))
            for place in places
            if is_open and (place, one.producer_id) in starts
        ),
        tuple(place for place in places if is_open and place not in bounds),
    )
