"""A consumer group member that never hands out records of a partition that it has lost.

It fetches records into a buffer and hands them out from there. Rebalances happen only inside `poll`, so no work and no transaction is
under way while partitions change owners. Buffered records of a revoked partition are dropped: its next owner starts at the committed
offset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, NoReturn, TypeAlias

from kafka import AsyncConsumerRebalanceListener, ConsumerGroupMetadata, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaConfigurationError, KafkaError, LogTruncationError, NoOffsetForPartitionError, OffsetOutOfRangeError

from ingest.delivery.kafka.buffer import Buffer
from ingest.delivery.kafka.coordinator import ask_offsets_anew, finish_every_rebalance, notice_every_loss
from ingest.delivery.kafka.group_positions import GroupPositions
from ingest.kafka.connection import greet, known, refused
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidEnvironment, InvalidInput, RunStopped

Rebalance: TypeAlias = Literal["cooperative", "eager"]
Offsets: TypeAlias = Mapping[TopicPartition, int]

_ASSIGNORS: Final = {"cooperative": CooperativeStickyAssignor, "eager": RangePartitionAssignor}
_POLL_S: Final = 0.2
_TOPICS_WITHIN_S: Final = 10.0
# Partitions are assigned only after every member has polled again.
_REBALANCE_WITHIN_S: Final = 10.0

_log = logging.getLogger(__name__)


class Member:
    """One consumer in a group. `options` are kafka-python's, from a delivery mode.

    `finish` is called before partitions are revoked and returns the offsets of finished work that is not committed yet. `dropped` is
    called afterwards with the partitions that are gone and with whether such offsets were committed. Both run inside `poll`. Raises
    InvalidEnvironment BROKER_UNREACHABLE, InvalidInput TOPIC_UNKNOWN, REBALANCE_UNKNOWN or CLIENT_OPTIONS.

    It reads on at the group's committed offsets, see GroupPositions. `positions` is for offsets that are stored elsewhere. Each poll calls
    it with the assigned and forgotten partitions whose position is not known yet, and seeks to the offsets that it returns. No record of
    a partition is fetched before that. A partition that it leaves out is asked for again by the next poll.
    """

    def __init__(
        self,
        kafka: KafkaOptions,
        topics: Iterable[str],
        options: Mapping[str, Any],
        *,
        buffer: Buffer,
        rebalance: Rebalance = "cooperative",
        finish: Callable[[set[TopicPartition]], Offsets] = lambda gone: {},
        dropped: Callable[[set[TopicPartition], bool], object] = lambda gone, finished: None,
        positions: Callable[[set[TopicPartition]], Offsets] | None = None,
    ) -> None:
        self._finish, self._dropped = finish, dropped
        self._buffer = buffer
        self._failed: KafkaError | RunStopped | None = None  # the log is not the one that was read, or begins behind our position
        self._full = False  # every assigned partition is full or paused, and at least one is full
        self._stale: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._topics = tuple(topics)
        if rebalance not in _ASSIGNORS:
            found, expected = f"rebalance is {rebalance!r}.", f"one of {', '.join(_ASSIGNORS)}."
            raise InvalidInput("REBALANCE_UNKNOWN", found, expected=expected, remedy="correct it, or leave it out.")
        if not self._topics:
            raise InvalidInput("TOPIC_UNKNOWN", "no topic is given.", expected="at least one topic to read.", remedy="name one.")
        self.group = ConsumerGroupMetadata(group_id=options["group_id"])
        self.polled_at = time.monotonic()
        known(options, KafkaConsumer)
        greet(kafka)
        try:
            self._consumer: Any = KafkaConsumer(
                **{**kafka.for_python(), "partition_assignment_strategy": (_ASSIGNORS[rebalance],), "metrics_enabled": False, **options}
            )
        except (KafkaConfigurationError, ValueError) as error:
            raise refused(kafka, error) from error
        except KafkaError as error:
            raise InvalidEnvironment(
                "BROKER_UNREACHABLE",
                f"no consumer at {kafka.bootstrap_servers}: {kafka.without_secrets(repr(error))}.",
                expected="a Kafka broker that answers and grants access.",
                remedy="check the address and the rights; `ingest broker start` starts an embedded broker.",
            ) from error
        notice_every_loss(self._consumer._coordinator)
        finish_every_rebalance(self._consumer._coordinator)
        self._committed = GroupPositions(self._consumer, kafka, options["group_id"]) if positions is None else None
        self._positions = positions or self._committed_offsets
        self._consumer.subscribe(list(self._topics), listener=_Listener(self))
        try:
            self._know_topics(kafka.bootstrap_servers)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the group. A static member only stops its heartbeats and keeps its partitions until the session times out."""
        with suppress(KafkaError):
            self._consumer.close(autocommit=False, timeout_ms=5_000)

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that this member owns as of the last poll."""
        return set(self._consumer.assignment())

    @property
    def waits(self) -> bool:
        """Whether the position of an assigned partition is not known yet: a run that waits for it is not idle."""
        return bool(self._stale & self.assignment)

    def poll(self, timeout_s: float) -> None:
        """Fetch records into the buffer; rebalances happen here.

        Waits for a rebalance that is under way: kafka-python 3.0.12 discards an assignment that arrives between two polls and joins again.
        Members with short polls would rebalance without end.
        """
        self._poll_once(timeout_s)
        coordinator, deadline = self._consumer._coordinator, time.monotonic() + _REBALANCE_WITHIN_S
        if coordinator.need_rejoin():
            while coordinator.need_rejoin() and time.monotonic() < deadline:
                coordinator.poll(timeout_ms=1_000)  # the consumer's poll would also wait for records, which nothing fetches yet
            self._poll_once(0)

    def _poll_once(self, timeout_s: float) -> None:
        found: Mapping[TopicPartition, Iterable[Any]] = {}
        try:
            polled = self._consumer.poll(timeout_ms=max(timeout_s, 0) * 1000)
            if self._committed is not None:
                self._committed.check_topics()
            found = polled
        except NoOffsetForPartitionError as error:  # the client has looked for itself, before the listener was called
            self._stale |= set(error.args[0])
        except (OffsetOutOfRangeError, LogTruncationError, RunStopped) as error:
            self._failed = error
        if not self.assignment:
            for topic in self._topics:
                self._consumer.partitions_for_topic(topic)
        self.polled_at = time.monotonic()
        # The metadata of now, not of the later commit: see Transaction.send_offsets.
        self.group = self._consumer.group_metadata()
        # Before _rewind_stale requests offsets: that can fail, and the client's position is already behind these records.
        for place, records in found.items():
            if place not in self._stale:
                self._buffer.add(place, records)
        self._rewind_stale()
        self._hold_back()

    def gather(self, records: int, time_s: float, stop: Callable[[], bool]) -> list[Any]:
        """Take up to `records` records, in order per partition, within `time_s` of the first one; fewer if the buffer is full.

        Returns an empty list if none arrived. The caller must have processed the records of the last `gather`. If a broker has no record
        at a position, the records that wait are returned first. Then it raises what GroupPositions says, or with `positions` kafka-python's
        OffsetOutOfRangeError or LogTruncationError.
        """
        self._buffer.worked()
        self.poll(0)
        due = float("inf")
        while not stop():
            have = self._buffer.count(self._paused)
            now = time.monotonic()
            if have >= records or now >= due or (have and self._full):
                break
            if have and due == float("inf"):
                due = now + time_s
            self.poll(min(due - now, _POLL_S))
            if due == float("inf") and not self._buffer.count(self._paused):
                break
        if self._failed is not None and not self._buffer.count(self._paused):
            self._raise_failed(self._failed)
        taken = self._buffer.take(records, self._paused)
        self._hold_back()
        return taken

    def give_back(self, records: Iterable[Any]) -> None:
        """Put unprocessed records of the last `gather` back to the front. Allowed only while this member owns their partitions."""
        self._buffer.give_back(records)

    def commit(self, offsets: Offsets, within_s: float | None = None) -> None:
        """Commit next offsets outside a transaction. Raises kafka.errors.CommitFailedError and other KafkaErrors."""
        self._consumer.commit(self.marked(offsets), timeout_ms=None if within_s is None else within_s * 1000)

    def marked(self, offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """Next offsets as they have to be committed: here, or in a transaction."""
        if self._committed is None:
            return {place: OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        return self._committed.marked(offsets)

    def forget(self, *places: TopicPartition) -> None:
        """Clear the buffer; the next poll goes back to the committed offsets. So a second run skips nothing.

        With `places`, only for these partitions.
        """
        self._stale |= set(places) or self.assignment
        ask_offsets_anew(self._consumer._coordinator)
        for place in places:
            self._buffer.drop(place)
        if not places:
            self._buffer.clear()

    def pause(self, place: TopicPartition) -> None:
        """Hand out no records of this partition until `resume`; it stays assigned."""
        self._paused.add(place)
        self._hold_back()

    def resume(self, place: TopicPartition) -> None:
        """Hand out records of this partition again."""
        self._paused.discard(place)
        self._hold_back()

    def is_paused(self, place: TopicPartition) -> bool:
        """Whether `pause` is in effect for this partition."""
        return place in self._paused

    def _know_topics(self, servers: str) -> None:
        """Wait until the client knows its topics.

        kafka-python 3.0.12 drops a metadata request while another one is under way, and repeats it only after up to five minutes. A group
        leader that does not know a topic assigns none of its partitions. `partitions_for_topic` of an unknown topic asks the broker again.
        """
        deadline = time.monotonic() + _TOPICS_WITHIN_S
        for topic in self._topics:
            while not self._consumer.partitions_for_topic(topic):
                if time.monotonic() > deadline:
                    found, expected = (
                        f"the brokers {servers} report no partitions of topic {topic!r}.",
                        "a topic that exists and that this user may read.",
                    )
                    raise InvalidInput(
                        "TOPIC_UNKNOWN", found, expected=expected, remedy="create the topic first, or grant Describe and Read."
                    )
                time.sleep(_POLL_S)

    def _hold_back(self) -> None:
        """Stop fetching paused partitions, those with a full buffer and those without a position; fetch all others."""
        ours, held = self.assignment, set(self._consumer.paused())
        full = {place for place in ours if self._buffer.is_full(place, len(ours), was_full=place in held)}
        wanted = full | (ours & (self._paused | self._stale))
        if self._failed is not None:
            wanted = ours
        self._full = bool(full or self._failed is not None) and wanted == ours
        for place in wanted - held:
            self._consumer.pause(place)
        for place in (held & ours) - wanted:
            self._consumer.resume(place)

    def _committed_offsets(self, places: set[TopicPartition]) -> Offsets:
        assert self._committed is not None
        return self._committed.take(places)

    def _raise_failed(self, failed: KafkaError | RunStopped) -> NoReturn:
        self._failed = None
        self.forget()
        if isinstance(failed, RunStopped) or self._committed is None:
            raise failed
        raise self._committed.explain(failed) from failed

    def _rewind_stale(self) -> None:
        """Seek to the positions of partitions that are new here or forgotten; those that are not known yet are asked for again."""
        self._stale &= self.assignment
        for place, offset in (self._positions(set(self._stale)) if self._stale else {}).items():
            self._consumer.seek(place, offset)
            self._stale.discard(place)

    def _await_positions(self, places: set[TopicPartition]) -> None:
        """Fetch nothing of these partitions until their positions are known, which needs a request that must not block here.

        Also for those that the client believes to have kept: when an eager rebalance revokes a partition and assigns it again, kafka-python
        keeps its fetch position and would skip the records that were dropped.
        """
        self._stale |= places
        ask_offsets_anew(self._consumer._coordinator)
        for place in places:
            self._buffer.drop(place)
            self._consumer.seek(place, 0)  # any position: without one, the client would look for a committed offset
            self._consumer.pause(place)

    def _gone(self, places: set[TopicPartition], *, finished: bool) -> None:
        for place in places:
            self._buffer.drop(place)
        self._dropped(places, finished)


class _Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """Runs in the client's network thread while `poll` waits. It must not block, so it commits asynchronously."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        places = set(revoked)
        offsets = self._member._finish(places)
        finished = bool(offsets)
        if offsets:
            try:
                await self._member._consumer.commit_async(self._member.marked(offsets))
            except KafkaError as error:
                _log.info("offsets of revoked partitions were not committed, their records are read again: %r", error)
                finished = False
        self._member._gone(places, finished=finished)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._member._await_positions(set(assigned))

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._member._gone(set(lost), finished=False)
