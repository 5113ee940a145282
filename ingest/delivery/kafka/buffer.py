"""Records that a member has fetched and not yet processed, bounded in records and in bytes.

A record can have a hundred bytes or a megabyte. A useful limit in records alone would allow 2 GB per partition.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable
from typing import Any, Final

from kafka import TopicPartition

from ingest.runtime.errors import InvalidInput

# Large enough that records of some hundred bytes reach RECORDS_MAX first, with up to about 150 partitions.
INPUT_BUFFER_MAX_BYTES: Final = 64 * 1024 * 1024
# A partition with more waiting records than this is not fetched until half of them are processed.
RECORDS_MAX: Final = 2_000


class Buffer:
    """The waiting records of each partition, in order. Sizes count the bytes of keys, values and headers.

    Each partition has an equal share of `max_bytes`, so that a paused or slow partition starves no other. Records that were taken count
    until `worked` is called. Raises InvalidInput INPUT_BUFFER.
    """

    def __init__(self, max_bytes: int = INPUT_BUFFER_MAX_BYTES) -> None:
        if max_bytes < 1:
            found, expected = f"input_buffer_max_bytes is {max_bytes}.", "at least 1; each partition can hold one fetch in addition."
            raise InvalidInput("INPUT_BUFFER", found, expected=expected, remedy="correct it, or leave it out.")
        self._max_bytes = max_bytes
        self._waiting: dict[TopicPartition, deque[Any]] = {}
        self._waiting_bytes: defaultdict[TopicPartition, int] = defaultdict(int)
        self._taken_bytes: defaultdict[TopicPartition, int] = defaultdict(int)

    def add(self, place: TopicPartition, records: Iterable[Any]) -> None:
        """Append records to the queue of a partition."""
        waiting = self._waiting.setdefault(place, deque())
        for record in records:
            waiting.append(record)
            self._waiting_bytes[place] += _size(record)

    def take(self, records: int, resting: Collection[TopicPartition]) -> list[Any]:
        """Take up to `records` records, longest queue first, so that none starves behind a busy one; none from `resting` partitions."""
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
        """Put taken records back at the front of their queues."""
        back: dict[TopicPartition, list[Any]] = {}
        for record in records:
            back.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        for place, unworked in back.items():
            self._waiting.setdefault(place, deque()).extendleft(reversed(unworked))
            size = sum(map(_size, unworked))
            self._waiting_bytes[place] += size
            self._taken_bytes[place] -= size

    def worked(self) -> None:
        """Stop counting the records taken so far: they are processed."""
        self._taken_bytes.clear()

    def drop(self, place: TopicPartition) -> None:
        """Forget all records of this partition."""
        for each in (self._waiting, self._waiting_bytes, self._taken_bytes):
            each.pop(place, None)

    def clear(self) -> None:
        """Forget all records."""
        for each in (self._waiting, self._waiting_bytes, self._taken_bytes):
            each.clear()

    def count(self, resting: Collection[TopicPartition]) -> int:
        """Number of records that can be taken, without those of `resting` partitions."""
        return sum(len(waiting) for place, waiting in self._waiting.items() if place not in resting)

    def is_full(self, place: TopicPartition, partitions: int, *, was_full: bool) -> bool:
        """Whether fetching from this partition must pause; a full one stays full until half of it is processed.

        `partitions` is the number of partitions that share `max_bytes`.
        """
        part = 0.5 if was_full else 1.0
        held = self._waiting_bytes.get(place, 0) + self._taken_bytes.get(place, 0)
        return len(self._waiting.get(place, ())) > RECORDS_MAX * part or held > self._max_bytes / partitions * part


def _size(record: Any) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size
