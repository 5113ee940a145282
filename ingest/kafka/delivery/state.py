"""Keyed state of a transform: in memory, and in a compacted changelog topic that is written in the same transaction as the output.

A partition of the input has its own state, kept in the changelog's partition of the same number. It is read back when the partition
comes to an instance, and is then exactly what the committed transactions left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition
from kafka.protocol.admin import DescribeConfigsRequest

from ingest.kafka import broker_request
from ingest.kafka.delivery.connection import quiet
from ingest.kafka.delivery.outgoing import Outgoing
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import RunStopped

_RESTORE_STALL_S: Final = 60.0
_ANSWER_WITHIN_S: Final = 10.0
_TOPIC: Final = 2  # ConfigResource.Type of Kafka's protocol
_NONE: Final = object()


class State:
    """The state of one input partition: bytes by key. What a transaction changes is kept only if it commits."""

    def __init__(self, kept: dict[bytes, bytes]) -> None:
        self._kept = kept
        self._changed: dict[bytes, bytes | None] = {}  # by the records of the open transaction
        self._changing: dict[bytes, bytes | None] = {}  # by the present record

    def __getitem__(self, key: bytes) -> bytes:
        for level in (self._changing, self._changed):
            found = level.get(key, _NONE)
            if found is None:
                raise KeyError(key)
            if isinstance(found, bytes):
                return found
        return self._kept[key]

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._changing[key] = value

    def __delitem__(self, key: bytes) -> None:
        self[key]  # KeyError where there is none
        self._changing[key] = None

    def get(self, key: bytes, default: bytes | None = None) -> bytes | None:
        """As a dict's."""
        try:
            return self[key]
        except KeyError:
            return default

    def take(self) -> None:
        """The present record went well."""
        self._changed |= self._changing
        self._changing.clear()

    def undo(self) -> None:
        """The present record failed."""
        self._changing.clear()

    def keep(self) -> None:
        """The transaction is committed."""
        for key, value in self._changed.items():
            if value is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = value
        self._changed.clear()

    def changes(self, changelog: str, partition: int) -> Iterator[Outgoing]:
        """The changelog's records of the open transaction: the last value of each key, null for a deleted one."""
        for key, value in self._changed.items():
            yield Outgoing(changelog, value, key, partition=partition)


class States:
    """The states of the partitions that an instance owns, restored when first asked for."""

    def __init__(self, kafka: KafkaOptions, changelog: str) -> None:
        self.changelog = changelog
        self._kafka = kafka
        self._by_partition: dict[int, State] = {}

    def __getitem__(self, partition: int) -> State:
        if partition not in self._by_partition:
            self._by_partition[partition] = State(self._restored(partition))
        return self._by_partition[partition]

    def cleanup_policy(self) -> str | None:
        """The changelog's; None where the broker does not tell us (it takes the right to describe its configuration)."""
        wanted = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=self.changelog, configuration_keys=["cleanup.policy"]
        )
        with quiet():
            answer = broker_request.ask(self._kafka, DescribeConfigsRequest(resources=[wanted]), _ANSWER_WITHIN_S)
        return next((str(each.value) for result in answer.results if result.error_code == 0 for each in result.configs), None)

    def forget(self, partitions: set[int] | None = None) -> None:
        """Partitions went to others, or (None) a transaction did not commit: read them back when they are needed again."""
        for partition in partitions if partitions is not None else set(self._by_partition):
            self._by_partition.pop(partition, None)

    def changes(self) -> Iterator[Outgoing]:
        """What the open transaction has to write."""
        for partition, state in self._by_partition.items():
            yield from state.changes(self.changelog, partition)

    def keep(self) -> None:
        """The transaction is committed."""
        for state in self._by_partition.values():
            state.keep()

    def _restored(self, partition: int) -> dict[bytes, bytes]:
        """Up to the very end, not only to the last stable offset: behind a dead owner's open transaction may lie the next one's work.

        Waits for such a transaction to end, which its timeout bounds. Raises RunStopped STATE_NOT_RESTORED.
        """
        place = TopicPartition(self.changelog, partition)
        kept: dict[bytes, bytes] = {}
        ending = {"enable_auto_commit": False, "group_id": None, "metrics_enabled": False}
        with KafkaConsumer(**self._kafka.for_python(), **ending, isolation_level="read_uncommitted") as any_level:
            end = any_level.end_offsets([place])[place]
        with KafkaConsumer(**self._kafka.for_python(), **ending, isolation_level="read_committed") as reader:
            reader.assign([place])
            reader.seek_to_beginning(place)
            at, moved = -1, time.monotonic()
            while True:
                now = reader.position(place, timeout_ms=1_000)  # None while the partition has no leader
                if now is not None and now > at:
                    at, moved = now, time.monotonic()
                if at >= end:
                    return kept
                for record in reader.poll(timeout_ms=200).get(place, ()):
                    _apply(kept, record)
                if time.monotonic() - moved > _RESTORE_STALL_S:
                    raise RunStopped(
                        "STATE_NOT_RESTORED",
                        f"{self.changelog}[{partition}] stands at offset {at} of {end} for {_RESTORE_STALL_S:g} s.",
                        expected="a changelog that can be read to its end.",
                        remedy="`ingest transactions` shows which transaction holds it up; start again when it has ended.",
                    )


def _apply(kept: dict[bytes, bytes], record: Any) -> None:
    if record.value is None:
        kept.pop(record.key, None)
    else:
        kept[record.key] = record.value
