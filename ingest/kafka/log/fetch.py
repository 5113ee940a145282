"""Raw fetches from the leaders of one topic's partitions. Every request has a deadline.

A consumer hides what the check of I4 needs: control batches, aborted records, the index of aborted transactions, the log start offset
and the last stable offset. The reply to Kafka's Fetch request contains all of them. So this module sends Fetch requests itself, with
kafka-python's network client (the `_client` of its consumer) and protocol classes.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kafka import IsolationLevel, OffsetSpec, errors
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from ingest.kafka import kafka_errors
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidEnvironment, InvalidInput

# A reachable cluster answers in a second or two, and elects a new leader in less than this.
ANSWER_WITHIN_S = 15.0
# Large replies, because each costs a round trip. The broker sends a batch that is larger than this as a whole (KIP-74).
FETCH_BYTES = 8 * 2**20
# kafka-python's network client limits a reply to 1 MB by default; this is the limit of its consumer.
_REPLY_BYTES_MAX = 100_000_000
_WAIT_MS = 500
# The beginning of a record batch: base offset, length and leader epoch.
_BATCH_HEAD = struct.Struct(">qii")
_RETRY_AFTER_MS = 50

_FetchTopic = FetchRequest.FetchTopic
_ListTopic = ListOffsetsRequest.ListOffsetsTopic
_EpochTopic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of a partition: [log_start, high_watermark). Transactions that start below `last_stable` are decided."""

    log_start: int
    last_stable: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The reply to one fetch: `data` is record batches as bytes, starting with the batch that contains the offset.

    The last batch may be cut off. `aborted` is (producer id, first offset) of each aborted transaction that the batches may belong to;
    it is empty unless the fetch was `committed`.
    """

    data: bytes
    aborted: tuple[tuple[int, int], ...]
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Reach:
    """The newest epoch of a partition's leader that is not above the epoch asked for, and where its records end.

    Both are -1 if the leader knows no epoch as high as that.
    """

    leader_epoch: int
    end: int


def client_of(kafka: KafkaOptions, within_ms: int = int(ANSWER_WITHIN_S * 1000)) -> KafkaNetClient:
    """A client for TopicReader."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it warns at every attempt; our error reports the cause once
    return KafkaNetClient(**kafka.for_python(), receive_message_max_bytes=_REPLY_BYTES_MAX, request_timeout_ms=within_ms)


class TopicReader(AbstractContextManager["TopicReader"]):
    """Reads one topic; a context manager. Raises InvalidEnvironment BROKER_UNREACHABLE, BROKER_REFUSED or TOPIC_UNKNOWN.

    With a `client` it uses that one's connections, and leaves them open.
    """

    def __init__(
        self, kafka: KafkaOptions, topic: str, *, answer_within_s: float = ANSWER_WITHIN_S, client: KafkaNetClient | None = None
    ) -> None:
        self.topic = topic
        self._kafka = kafka
        self._answer_within_s = answer_within_s
        within_ms = int(answer_within_s * 1000)
        self._given, self._client = client is not None, client or client_of(kafka, within_ms)
        self.partitions: tuple[int, ...] = ()
        self._leaders: dict[int, int] = {}
        try:
            self._client.get_broker_version(within_ms)
            self._find_leaders(time.monotonic() + answer_within_s)
        except errors.KafkaError as error:
            self.close()
            raise self._unreachable(error) from error
        except BaseException:
            self.close()
            raise
        self.partitions = tuple(sorted(self._leaders))

    def bounds(self, partition: int) -> Bounds:
        """The start, last stable offset and end of a partition. Raises InvalidInput PARTITION_UNKNOWN."""
        start = self._offset(partition, OffsetSpec.EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        # In this order, so that the last stable offset is never above the end.
        stable = self._offset(partition, OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED)
        return Bounds(start, stable, self._offset(partition, OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED))

    def fetch(self, partition: int, offset: int, *, committed: bool, bytes_max: int = FETCH_BYTES) -> Fetched | None:
        """The batches from `offset` on; None if the partition does not contain the offset (expired, or beyond the end).

        A `committed` fetch ends at the last stable offset and returns the index of aborted transactions. It still returns aborted records.
        """
        self._refuse_unknown(partition)
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def request() -> Any:
            at = _FetchTopic.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
            topics = [_FetchTopic(topic=self.topic, partitions=[at])]
            # Version 5 added the log start offset. From version 13 on, a request names the topic by its id.
            return FetchRequest(
                max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=bytes_max, isolation_level=level, topics=topics, min_version=5, max_version=12
            )

        def answer(reply: Any) -> tuple[int, Any]:
            if reply.error_code or not reply.responses:  # no response at all means that the broker throttles us
                return reply.error_code or errors.ThrottlingQuotaExceededError.errno, None
            found = reply.responses[0].partitions[0]
            return found.error_code, found

        found = self._ask(partition, request, answer, missing=errors.OffsetOutOfRangeError.errno)
        if found is None:
            return None
        aborted = tuple((each.producer_id, each.first_offset) for each in found.aborted_transactions or ())
        bounds = Bounds(found.log_start_offset, found.last_stable_offset, found.high_watermark)
        return Fetched(found.records or b"", aborted, bounds)

    def reaches(self, epochs: Mapping[int, int]) -> dict[int, Reach]:
        """How far the log of a leader epoch reaches, by partition: one request to each leader. Empty if the brokers are too old to say.

        A partition that was added to the topic meanwhile is looked up.
        """

        def request(partitions: Iterable[int]) -> Any:
            asked = [_EpochTopic.OffsetForLeaderPartition(partition=p, current_leader_epoch=-1, leader_epoch=epochs[p]) for p in partitions]
            # Before version 3 (Kafka 2.3), brokers with ACLs refuse it to everybody but brokers.
            return OffsetForLeaderEpochRequest(replica_id=-1, topics=[_EpochTopic(topic=self.topic, partitions=asked)], min_version=3)

        def answer(reply: Any) -> tuple[int, Reach]:
            (each,) = reply.topics[0].partitions
            return each.error_code, Reach(each.leader_epoch, each.end_offset)

        found: dict[int, Reach] = {}
        for leader in {self._leaders.get(partition, -1) for partition in epochs} - {-1}:
            its = [partition for partition in epochs if self._leaders.get(partition) == leader]
            try:
                reply = self._client.send_and_receive(leader, request(its), int(self._answer_within_s * 1000))
            except errors.UnsupportedVersionError:
                return {}
            except errors.KafkaError:
                continue  # asked again below
            found |= {
                each.partition: Reach(each.leader_epoch, each.end_offset) for each in reply.topics[0].partitions if not each.error_code
            }
        for partition in epochs.keys() - found.keys():
            reach = self._ask(partition, partial(request, [partition]), answer)
            assert reach is not None
            found[partition] = reach
        return found

    def epoch_at(self, partition: int, offset: int) -> int | None:
        """The leader epoch of the record batch that spans an offset; None if there is none: it has expired, or was compacted away."""
        found = self.fetch(partition, offset, committed=False, bytes_max=1)  # still a whole batch
        if found is None or len(found.data) < _BATCH_HEAD.size:
            return None
        base, _, epoch = _BATCH_HEAD.unpack_from(found.data)
        return epoch if base <= offset else None

    def close(self) -> None:
        """Close the connections to the brokers."""
        if not self._given:
            self._client.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _offset(self, partition: int, spec: OffsetSpec, level: IsolationLevel) -> int:
        self._refuse_unknown(partition)

        def request() -> Any:
            at = _ListTopic.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=int(spec))
            return ListOffsetsRequest(isolation_level=level, topics=[_ListTopic(name=self.topic, partitions=[at])], min_version=2)

        def answer(reply: Any) -> tuple[int, int]:
            found = reply.topics[0].partitions[0]
            return found.error_code, found.offset

        found = self._ask(partition, request, answer)
        assert found is not None
        return found

    def _refuse_unknown(self, partition: int) -> None:
        if partition not in self.partitions:
            existing = f"{self.partitions[0]} to {self.partitions[-1]}" if self.partitions else "none"
            raise InvalidInput(
                "PARTITION_UNKNOWN",
                f"topic {self.topic} has no partition {partition}.",
                expected=f"one of its partitions: {existing}.",
                remedy="correct --partition.",
            )

    def _ask(
        self, partition: int, request: Callable[[], Any], answer: Callable[[Any], tuple[int, T]], missing: int | None = None
    ) -> T | None:
        """Send the request to the partition's leader. Retries retriable errors until the deadline.

        Returns None if the answer is the error `missing`.
        """
        deadline = time.monotonic() + self._answer_within_s
        while True:
            try:
                if partition not in self._leaders:
                    self._find_leaders(deadline)
                code, found = answer(self._client.send_and_receive(self._leaders.get(partition, -1), request(), _left_ms(deadline)))
                error: errors.KafkaError = errors.for_code(code)()
            except errors.KafkaError as broken:
                error, code = broken, -1
            if code == 0:
                return found
            if code == missing:
                return None
            final = code != -1 and not isinstance(error, errors.RetriableError)
            if final or time.monotonic() >= deadline:
                raise self._unreachable(error) if code == -1 else self._refused(error)
            self._leaders.pop(partition, None)
            self._client.poll(timeout_ms=_RETRY_AFTER_MS)  # waits for network events, at most this long

    def _find_leaders(self, deadline: float) -> None:
        """Ask the brokers in turn for the leaders. Never creates a topic, unlike kafka-python's own lookup."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        brokers = [broker.node_id for broker in self._client.cluster.brokers()]
        error: errors.KafkaError = errors.BrokerNotAvailableError()
        for node in brokers:
            try:
                found = self._client.send_and_receive(node, request, _left_ms(deadline)).topics[0]
            except errors.KafkaError as broken:
                error = broken
                continue
            if found.error_code:
                error = errors.for_code(found.error_code)()
                # A broker that has just started may not know a topic yet whose partitions we already know.
                if not self.partitions and not isinstance(error, errors.LeaderNotAvailableError):
                    raise self._unknown(found.error_code)
                continue
            # `_ask` looks up a partition without a leader (-1) again.
            self._leaders = {each.partition_index: each.leader_id for each in found.partitions}
            return
        self._client.cluster.request_update()  # the known brokers failed; there may be others
        raise error

    def _unreachable(self, error: Exception) -> InvalidEnvironment:
        # Only the error class: some messages of the client repeat its settings.
        return kafka_errors.unreachable(self._kafka.bootstrap_servers, type(error).__name__).environment_error()

    def _refused(self, error: Exception) -> InvalidEnvironment:
        return InvalidEnvironment(
            "BROKER_REFUSED",
            f"{self._kafka.bootstrap_servers} refused to read topic {self.topic} ({type(error).__name__}).",
            expected="a partition that has a leader, and the right to read it.",
            remedy="check the state of the topic (kafka-topics.sh --describe), or grant Read.",
        )

    def _unknown(self, code: int) -> InvalidEnvironment:
        return InvalidEnvironment(
            "TOPIC_UNKNOWN",
            f"{self._kafka.bootstrap_servers} has no topic {self.topic!r} that we may read (Kafka's error code {code}).",
            expected="an existing topic and the right to read it.",
            remedy="correct the topic's name, create the topic, or grant Describe and Read.",
        )


def _left_ms(deadline: float) -> int:
    return max(1, int((deadline - time.monotonic()) * 1000))
