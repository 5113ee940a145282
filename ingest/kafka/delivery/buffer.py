"""Records that a member has taken from Kafka and that are not worked on yet: bounded in records and in bytes.

A record has a megabyte or a hundred bytes; a bound in records alone is one of 2 GB for each partition, or none worth the name.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable
from typing import Any, Final

from kafka import TopicPartition

from ingest.runtime.errors import InvalidInput

# So much that records of some hundred bytes meet the bound in records first, up to some 150 partitions.
INPUT_BUFFER_MAX_BYTES: Final = 64 * 1024 * 1024
# A partition with more than this is not fetched from until half of it is worked off.
RECORDS_MAX: Final = 2_000


class Buffer:
    """The waiting records of each partition, in order. Bytes are those of keys, values and headers.

    Of `max_bytes` each partition has an equal share, so that one that rests, or has slow work, starves no other. Records that are being
    worked on count until `worked`. Raises InvalidInput INPUT_BUFFER.
    """

    def __init__(self, max_bytes: int = INPUT_BUFFER_MAX_BYTES) -> None:
        if max_bytes < 1:
            found, expected = f"input_buffer_max_bytes is {max_bytes}.", "at least 1; a partition keeps one fetch even so."
            raise InvalidInput("INPUT_BUFFER", found, expected=expected, remedy="correct it, or leave it out.")
        self._max_bytes = max_bytes
        self._waiting: dict[TopicPartition, deque[Any]] = {}
        self._waiting_bytes: defaultdict[TopicPartition, int] = defaultdict(int)
        self._taken_bytes: defaultdict[TopicPartition, int] = defaultdict(int)

    def add(self, place: TopicPartition, records: Iterable[Any]) -> None:
        """Behind those that wait."""
        waiting = self._waiting.setdefault(place, deque())
        for record in records:
            waiting.append(record)
            self._waiting_bytes[place] += _size(record)

    def take(self, records: int, resting: Collection[TopicPartition]) -> list[Any]:
        """Up to `records` of them, those of the longest queue first, so that none starves behind a busy one; none of `resting`."""
        taken: list[Any] = []
        for place in sorted(self._waiting, key=lambda each: -len(self._waiting[each])):
            waiting = self._waiting[place]
            while waiting and len(taken) < records and place not in resting:
                taken.append(waiting.popleft())
                size = _size(taken[-1])
                self._waiting_bytes[place] -= size
                self._taken_bytes[place] += size
        return taken

    def give_back(self, records: Iterable[Any]) -> None:
        """Of those taken: they are the next ones again."""
        back: dict[TopicPartition, list[Any]] = {}
        for record in records:
            back.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        for place, unworked in back.items():
            self._waiting.setdefault(place, deque()).extendleft(reversed(unworked))
            size = sum(map(_size, unworked))
            self._waiting_bytes[place] += size
            self._taken_bytes[place] -= size

    def worked(self) -> None:
        """Nothing that was taken is held any more."""
        self._taken_bytes.clear()

    def drop(self, place: TopicPartition) -> None:
        """Forget all of this partition."""
        for each in (self._waiting, self._waiting_bytes, self._taken_bytes):
            each.pop(place, None)

    def clear(self) -> None:
        """Forget all."""
        for each in (self._waiting, self._waiting_bytes, self._taken_bytes):
            each.clear()

    def count(self, resting: Collection[TopicPartition]) -> int:
        """How many records could be taken."""
        return sum(len(waiting) for place, waiting in self._waiting.items() if place not in resting)

    def is_full(self, place: TopicPartition, partitions: int, *, was_full: bool) -> bool:
        """Whether nothing more shall be fetched of this one of `partitions`; once full it is so until half is worked off."""
        part = 0.5 if was_full else 1.0
        held = self._waiting_bytes.get(place, 0) + self._taken_bytes.get(place, 0)
        return len(self._waiting.get(place, ())) > RECORDS_MAX * part or held > self._max_bytes / partitions * part


def _size(record: Any) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size
