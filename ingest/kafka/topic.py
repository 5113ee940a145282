"""A topic's id, partitions and offsets, requested from the broker. Every request has a deadline."""

from __future__ import annotations

import base64
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import ACLOperation
from kafka.errors import InvalidTopicError, KafkaError, NoError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError, for_code
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from ingest.contract.parts import TopicSource
from ingest.kafka import kafka_errors
from ingest.kafka.broker_request import ask
from ingest.kafka.kafka_errors import KafkaFailure
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.leader_epochs import ask_taken_back
from ingest.kafka.offsets import Partition, Position
from ingest.kafka.topic_state import TopicId, TopicState, topic_made_again
from ingest.runtime.errors import IngestError, InvalidEnvironment, RunStopped

# A reachable cluster answers in a second or two; a longer silence means a wrong address.
ANSWER_WITHIN_S = 15.0
# As long as Spark's clients wait for a lost broker (PATIENCE in table_query.py).
BACK_WITHIN_S = 90.0
# Codes that may pass on their own: a broker that has just started knows no topic yet.
PASSING = ("BROKER_UNREACHABLE", "TOPIC_UNKNOWN")
ASKED_AGAIN_AFTER_S = 0.5
SETTLED_WITHIN_S = 5.0
# The lag is only displayed; no batch waits for it.
LAG_WITHIN_MS, STATUS_WITHIN_S = 2_000, 2.0

TOPIC_RESOURCE = 2  # ConfigResource.Type of Kafka's protocol


@dataclass(frozen=True)
class Topic:
    """A topic as the broker reports it.

    `id` is the topic id as Kafka prints it, empty if the broker is too old for topic ids. `cluster` is the cluster's id, which survives
    upgrades; it is empty if the broker reports none.
    """

    name: str
    id: str
    partitions: tuple[int, ...]
    cluster: str = ""


def describe(kafka: KafkaOptions, name: str, within_s: float = ANSWER_WITHIN_S) -> Topic:
    """The topic's metadata. Raises as `describe_all`."""
    return describe_all(kafka, [name], within_s)[0]


def describe_all(kafka: KafkaOptions, names: Sequence[str], within_s: float = ANSWER_WITHIN_S) -> tuple[Topic, ...]:
    """Request the metadata of these topics, from each broker once until one answers.

    Raises InvalidEnvironment KAFKA_AUTHENTICATION, KAFKA_CERTIFICATE, BROKER_UNREACHABLE, TOPIC_UNKNOWN or KAFKA_FORBIDDEN, and
    InvalidInput KAFKA_OPTION_UNUSABLE or BOOTSTRAP_SERVERS_INVALID. For a user without the right Describe, a broker reports a missing
    topic as forbidden, too.
    """
    answer = _metadata(kafka, names, within_s)
    by_name = {found["name"]: found for found in answer["topics"]}
    return tuple(_described(kafka, name, by_name[name], answer.get("cluster_id") or "") for name in names)


def described_like(kafka: KafkaOptions, pattern: str, within_s: float = ANSWER_WITHIN_S) -> tuple[Topic, ...]:
    """The metadata of all topics whose whole name this regular expression matches, by name. Kafka's internal topics do not count.

    Raises as `describe_all`: TOPIC_UNKNOWN if there is none.
    """
    answer = _metadata(kafka, None, within_s)
    like = [found for found in answer["topics"] if not found.get("is_internal") and re.fullmatch(pattern, found["name"])]
    if not like:
        raise kafka_errors.no_topic_like(kafka, pattern).environment_error()
    cluster = answer.get("cluster_id") or ""
    return tuple(_described(kafka, found["name"], found, cluster) for found in sorted(like, key=lambda found: str(found["name"])))


def topics_of(kafka: KafkaOptions, source: TopicSource, within_s: float = ANSWER_WITHIN_S) -> tuple[Topic, ...]:
    """The topics of a contract's source. Raises as `describe_all`."""
    if source.topic_pattern is not None:
        return described_like(kafka, source.topic_pattern, within_s)
    return describe_all(kafka, source.names, within_s)


def _metadata(kafka: KafkaOptions, names: Sequence[str] | None, within_s: float) -> dict[str, Any]:
    request = MetadataRequest(
        topics=None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )
    return dict(ask(kafka, request, within_s).to_dict())


def _described(kafka: KafkaOptions, name: str, found: Mapping[str, Any], cluster: str) -> Topic:
    error = for_code(found["error_code"])
    if error in (UnknownTopicOrPartitionError, InvalidTopicError):
        raise kafka_errors.topic_unknown(kafka, name).environment_error()
    # With Describe but without Read, the first batch would fail.
    if error is TopicAuthorizationFailedError or not _may_read(found.get("authorized_operations")):
        raise kafka_errors.forbidden(kafka, f"the topic {name!r}").environment_error()
    if error is not NoError:
        raise kafka_errors.unreachable(kafka.bootstrap_servers, f"{error.__name__} for the topic {name!r}").environment_error()
    partitions = tuple(sorted(p["partition_index"] for p in found["partitions"]))
    return Topic(name, id_text(found.get("topic_id")), partitions, cluster)


def settings_of(kafka: KafkaOptions, name: str, *keys: str, within_s: float = ANSWER_WITHIN_S) -> dict[str, str]:
    """These settings of a topic, such as `retention.ms`; empty if the broker does not return them (this needs DescribeConfigs)."""
    wanted = DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=list(keys))
    answer = ask(kafka, DescribeConfigsRequest(resources=[wanted]), within_s)
    return {each.name: str(each.value) for result in answer.results if result.error_code == 0 for each in result.configs}


def current_states(kafka: KafkaOptions, source: TopicSource) -> tuple[TopicState, ...]:
    """The states of the topics of a contract's source, described again. Raises the errors of `topics_of` and `topic_states`."""
    return topic_states(kafka, topics_of(kafka, source), source.isolation_level)


def still_the_same(kafka: KafkaOptions, topics: Sequence[Topic], table: str, within_s: float = BACK_WITHIN_S) -> None:
    """Check that the topics still have the same ids (I6). A batch calls this after it has read its records and before it writes.

    Raises RunStopped TOPIC_RECREATED if another topic has the name now. If the new topic is at least as long as the old one, Spark's
    clients silently continue in the middle of it. Waits up to `within_s` for a lost broker, then raises the codes of `describe` as
    RunStopped. A topic without an id is not checked: the broker has none.
    """
    topics = [topic for topic in topics if topic.id]
    if not topics:
        return
    deadline, tries = time.monotonic() + within_s, 0
    while True:
        try:
            now = describe_all(kafka, [topic.name for topic in topics])
            break
        except InvalidEnvironment as error:
            tries += 1
            # At least two attempts: a broker that is shutting down can end a login as if it refused it.
            if time.monotonic() > deadline or (error.code not in PASSING and tries > 1):
                raise KafkaFailure(error.code, error.found.rstrip("."), error.expected, error.remedy).stopped(table) from error
        time.sleep(ASKED_AGAIN_AFTER_S)
    for each, topic in zip(now, topics, strict=True):
        refuse_another(each, topic, table)


def refuse_another(now: Topic, topic: Topic, table: str) -> None:
    """Raise RunStopped TOPIC_RECREATED if `now`, the broker's current topic of that name, is not the topic that `table` reads."""
    if now.id in ("", topic.id):
        return
    raise RunStopped(
        "TOPIC_RECREATED",
        f"topic {topic.name} was deleted and recreated while {table} read it: its id was {topic.id} and is now {now.id}. "
        "Nothing of the current batch was written.",
        expected="the same topic: offsets of one topic mean nothing in another.",
        remedy=topic_made_again(table),
    )


def diagnose(kafka: KafkaOptions, source: TopicSource, seen: KafkaFailure) -> KafkaFailure:
    """Find the cause of a failure that Spark reported, by asking the broker.

    Spark's clients report many causes as a timeout, even a deleted topic. A broker that has just restarted knows no topic yet, so
    TOPIC_UNKNOWN counts only after SETTLED_WITHIN_S and at least two answers.
    """
    if seen.code not in PASSING:
        return seen
    deadline, tries = time.monotonic() + SETTLED_WITHIN_S, 0
    while True:
        try:
            topics_of(kafka, source)
        except InvalidEnvironment as error:
            tries += 1
            if error.code != "TOPIC_UNKNOWN" or (time.monotonic() > deadline and tries > 1):
                return KafkaFailure(error.code, error.found.rstrip("."), error.expected, error.remedy)
        else:
            why = f"for a while it did not know the topic {source.shown!r}; the next start checks whether a topic was recreated"
            recovered = kafka_errors.unreachable(kafka.bootstrap_servers, why)
            return recovered if seen.code == "TOPIC_UNKNOWN" else seen
        time.sleep(ASKED_AGAIN_AFTER_S)


def describe_with_bounds(kafka: KafkaOptions, name: str, within_s: float) -> tuple[Topic, dict[int, tuple[int, int]]]:
    """`describe` and `bounds` together, for callers that cannot wait. `within_s` limits each request. Raises what both raise."""
    topic = describe(kafka, name, within_s)
    return topic, bounds(kafka, topic, within_s)


Answer = tuple[TopicState, ...] | Mapping[str, str]
"""The states of a table's topics, or the error (code, found, expected, remedy)."""


def answers(kafka: KafkaOptions, sources: Sequence[TopicSource]) -> list[Answer]:
    """The answer about each source's topics, for commands that do not wait long."""

    def quick(name: str, read: Mapping[int, Position]) -> Mapping[int, tuple[int, int]]:
        try:
            return ask_taken_back(kafka, name, read, STATUS_WITHIN_S)
        except InvalidEnvironment:  # a moment ago it did answer
            return {}

    def answer(source: TopicSource) -> Answer:
        try:
            found = topic_states(kafka, topics_of(kafka, source, STATUS_WITHIN_S), "read_uncommitted", STATUS_WITHIN_S)
        except IngestError as error:
            return error.as_dict()
        return tuple(replace(each, taken_back=partial(quick, each.topic.name)) for each in found)

    with ThreadPoolExecutor(max(1, len(sources))) as pool:
        return list(pool.map(answer, sources))


def bounds(kafka: KafkaOptions, topic: Topic, within_s: float = ANSWER_WITHIN_S) -> dict[int, tuple[int, int]]:
    """The earliest offset and the end (high watermark) of each partition. Raises InvalidEnvironment BROKER_UNREACHABLE."""
    return dict(topic_state(kafka, topic, "read_uncommitted", within_s).bounds)


def topic_state(kafka: KafkaOptions, topic: Topic, isolation_level: str, within_s: float = ANSWER_WITHIN_S) -> TopicState:
    """The state of one topic; see `topic_states`."""
    return topic_states(kafka, [topic], isolation_level, within_s)[0]


def topic_states(
    kafka: KafkaOptions, topics: Sequence[Topic], isolation_level: str, within_s: float = ANSWER_WITHIN_S
) -> tuple[TopicState, ...]:
    """What a start or a seek has to know of these topics, for a reader of this isolation level.

    Raises InvalidEnvironment BROKER_UNREACHABLE.
    """
    partitions = {topic.name: [TopicPartition(topic.name, partition) for partition in topic.partitions] for topic in topics}
    every = [each for of_topic in partitions.values() for each in of_topic]
    decided: Mapping[TopicPartition, int] = {}
    with _consumer(kafka, within_s) as consumer:
        first = consumer.beginning_offsets(every, timeout_ms=within_s * 1000)
        end = consumer.end_offsets(every, timeout_ms=within_s * 1000)
    if isolation_level == "read_committed":
        with _consumer(kafka, within_s, isolation_level) as consumer:
            decided = consumer.end_offsets(every, timeout_ms=within_s * 1000)

    def state(topic: Topic) -> TopicState:
        here = partitions[topic.name]
        known = {each.partition: (int(first[each]), int(end[each])) for each in here}
        # Requested after the bounds, so it can be above their end; `min` cuts it.
        sure = {each.partition: min(int(decided[each]), known[each.partition][1]) for each in here if each in decided}
        return TopicState(TopicId(topic.name, topic.id, topic.cluster), known, sure, partial(ask_taken_back, kafka, topic.name))

    return tuple(map(state, topics))


def offsets_at(kafka: KafkaOptions, topic: Topic, milliseconds: int) -> dict[int, int | None]:
    """The first offset of each partition whose record is not older than this time (ms since 1970 UTC); None if all are older.

    Raises InvalidEnvironment BROKER_UNREACHABLE.
    """
    partitions = [TopicPartition(topic.name, partition) for partition in topic.partitions]
    with _consumer(kafka, ANSWER_WITHIN_S) as consumer:
        found = consumer.offsets_for_times(dict.fromkeys(partitions, milliseconds), timeout_ms=ANSWER_WITHIN_S * 1000)
    return {each.partition: None if found.get(each) is None else int(found[each].offset) for each in partitions}


@contextmanager
def _consumer(kafka: KafkaOptions, within_s: float, isolation_level: str = "read_uncommitted") -> Iterator[KafkaConsumer]:
    try:
        settings: dict[str, object] = {"enable_auto_commit": False, "group_id": None, "isolation_level": isolation_level}
        settings["bootstrap_timeout_ms"] = round(within_s * 1000)
        consumer = KafkaConsumer(**kafka.for_python(), **settings)
        try:
            yield consumer
        finally:
            consumer.close(autocommit=False)
    except KafkaError as error:
        raise kafka_errors.unreachable(kafka.bootstrap_servers, type(error).__name__).environment_error() from error


class Ends:
    """Measures the lag of a reader of this isolation level on topics, which have these numbers. Call `close` at the end."""

    def __init__(self, kafka: KafkaOptions, topics: Mapping[int, Topic], isolation_level: str) -> None:
        self._kafka = kafka
        self._isolation_level = isolation_level
        self._of = {TopicPartition(topic.name, p): (number, p) for number, topic in topics.items() for p in topic.partitions}
        self._consumer: KafkaConsumer | None = None

    def lag(self, reached: Mapping[Partition, int]) -> int | None:
        """The number of offsets between `reached` and the ends; None if the broker does not answer within LAG_WITHIN_MS."""
        try:
            if self._consumer is None:
                settings = {"enable_auto_commit": False, "group_id": None, "isolation_level": self._isolation_level}
                self._consumer = KafkaConsumer(**self._kafka.for_python(), **settings, bootstrap_timeout_ms=LAG_WITHIN_MS)
            ends = self._consumer.end_offsets([*self._of], timeout_ms=LAG_WITHIN_MS)
        except KafkaError:
            self.close()
            return None
        return sum(max(0, int(end) - reached.get(self._of[each], 0)) for each, end in ends.items())

    def close(self) -> None:
        """Close the connection to the broker."""
        if self._consumer is not None:
            self._consumer.close(autocommit=False)
            self._consumer = None


def id_text(value: object) -> str:
    """A topic id of kafka-python in Kafka's notation: URL-safe base64 of the 16 bytes, without padding. Empty for no id."""
    if value is None:
        return ""
    number = value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))
    return "" if number.int == 0 else base64.urlsafe_b64encode(number.bytes).rstrip(b"=").decode()


def _may_read(operations: Iterable[int] | None) -> bool:
    """Whether the operations that the broker allows include Read.

    A broker without an authorizer reports all operations. An old broker reports none that Kafka defines, so the answer is yes.
    """
    known = set(operations or ()) & {operation.value for operation in ACLOperation}
    return not known or bool(known & {ACLOperation.READ.value, ACLOperation.ALL.value})
