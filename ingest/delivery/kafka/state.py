"""Keyed state of a transform: in memory and in a compacted changelog topic, which the transaction of the output also writes.

Each input partition has its own state, in the changelog partition of the same number. An instance that gets a partition reads its state
back. The restored state is exactly the result of the committed transactions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import LogTruncationError, OffsetOutOfRangeError

from ingest.delivery.kafka.outgoing import Outgoing
from ingest.kafka.connection import quiet
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import settings_of
from ingest.runtime.errors import RunStopped

_RESTORE_STALL_S: Final = 60.0
_ANSWER_WITHIN_S: Final = 10.0
_NONE: Final = object()


class State:
    """The state of one input partition: bytes by key. Changes are kept only if their transaction commits."""

    def __init__(self, kept: dict[bytes, bytes]) -> None:
        self._kept = kept
        self._changed: dict[bytes, bytes | None] = {}  # changes by earlier records of the open transaction
        self._changing: dict[bytes, bytes | None] = {}  # changes by the current record

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
        self[key]  # KeyError if there is none
        self._changing[key] = None

    def get(self, key: bytes, default: bytes | None = None) -> bytes | None:
        """Like `dict.get`."""
        try:
            return self[key]
        except KeyError:
            return default

    def take(self) -> None:
        """Accept the changes of the current record, which was processed."""
        self._changed |= self._changing
        self._changing.clear()

    def undo(self) -> None:
        """Discard the changes of the current record, which failed."""
        self._changing.clear()

    def keep(self) -> None:
        """Apply the changes of the committed transaction."""
        for key, value in self._changed.items():
            if value is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = value
        self._changed.clear()

    def changes(self, changelog: str, partition: int) -> Iterator[Outgoing]:
        """The changelog records of the open transaction: the last value per key, null for a deleted key."""
        for key, value in self._changed.items():
            yield Outgoing(changelog, value, key, partition=partition)


class States:
    """The states of the partitions that an instance owns, each restored at its first use."""

    def __init__(self, kafka: KafkaOptions, changelog: str) -> None:
        self.changelog = changelog
        self._kafka = kafka
        self._by_partition: dict[int, State] = {}

    def __getitem__(self, partition: int) -> State:
        if partition not in self._by_partition:
            self._by_partition[partition] = State(self._restored(partition))
        return self._by_partition[partition]

    def cleanup_policy(self) -> str | None:
        """The changelog's cleanup.policy; None if the broker does not return it (this needs the right to describe its configuration)."""
        with quiet():
            return settings_of(self._kafka, self.changelog, "cleanup.policy", within_s=_ANSWER_WITHIN_S).get("cleanup.policy")

    def forget(self, partitions: set[int] | None = None) -> None:
        """Forget the state of revoked partitions, or (None) of all after a failed transaction; the next use restores it."""
        for partition in partitions if partitions is not None else set(self._by_partition):
            self._by_partition.pop(partition, None)

    def changes(self) -> Iterator[Outgoing]:
        """The changelog records that the open transaction has to write."""
        for partition, state in self._by_partition.items():
            yield from state.changes(self.changelog, partition)

    def keep(self) -> None:
        """Apply the changes of the committed transaction."""
        for state in self._by_partition.values():
            state.keep()

    def _restored(self, partition: int) -> dict[bytes, bytes]:
        """Read the changelog partition to its end, not only to the last stable offset.

        Committed records of a later owner can lie behind the open transaction of a dead one. So this waits until that transaction ends, at
        most until its timeout. Raises RunStopped STATE_NOT_RESTORED.
        """
        place = TopicPartition(self.changelog, partition)
        kept: dict[bytes, bytes] = {}
        # With a reset, records that are deleted while they are read would be missing from the state without an error.
        ending = {"enable_auto_commit": False, "group_id": None, "metrics_enabled": False, "auto_offset_reset": "none"}
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
                try:
                    records = reader.poll(timeout_ms=200).get(place, ())
                except (OffsetOutOfRangeError, LogTruncationError) as error:
                    raise RunStopped(
                        "STATE_NOT_RESTORED",
                        f"records of {self.changelog}[{partition}] behind offset {max(at, 0)} were deleted while they were read.",
                        expected="a changelog from which only compaction removes records.",
                        remedy="find out who deletes them; start again to restore what is left, if that is enough.",
                    ) from error
                for record in records:
                    if record.value is None:
                        kept.pop(record.key, None)
                    else:
                        kept[record.key] = record.value
                if time.monotonic() - moved > _RESTORE_STALL_S:
                    raise RunStopped(
                        "STATE_NOT_RESTORED",
                        f"reading {self.changelog}[{partition}] has been at offset {at} of {end} for {_RESTORE_STALL_S:g} s.",
                        expected="a changelog that can be read to its end.",
                        remedy="`ingest transactions` shows which transaction blocks it; start again when that one has ended.",
                    )
