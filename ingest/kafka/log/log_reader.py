"""A partition's log as Kafka stores it: which offsets have a record, and why the others have none (I4)."""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from ingest.kafka.intervals import EMPTY, Intervals
from ingest.kafka.log.fetch import ANSWER_WITHIN_S, FETCH_BYTES, Bounds, Fetched
from ingest.kafka.log.partition_scan import Kind, PartitionScan
from ingest.kafka.log.record_batch import Marker, Record, RecordBatch, read_batches
from ingest.runtime.errors import InvalidEnvironment

# Lookups of single records use small fetches, because most of a reply is not needed.
_LOOKUP_BYTES = 2**20


class Log(Protocol):
    """The log of one topic. TopicReader implements it for a broker."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    def bounds(self, partition: int) -> Bounds:
        """See TopicReader.bounds."""

    def fetch(self, partition: int, offset: int, *, committed: bool, bytes_max: int = FETCH_BYTES) -> Fetched | None:
        """See TopicReader.fetch."""


class TopicLog(Log, Protocol):
    """The log of one topic with all its partitions. TopicReader implements it."""

    @property
    def partitions(self) -> tuple[int, ...]:
        """The topic's partitions, ascending."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The offsets [start, end) of one kind, and their batch, if any.

    A batch that compaction has thinned out is one stretch of its kind; `batch.offsets()` are the offsets that remain.
    """

    kind: Kind
    start: int
    end: int
    batch: RecordBatch | None = None


def scan(reader: Log, partition: int, start: int, end: int, see: Callable[[Stretch], None] = lambda _: None) -> PartitionScan:
    """Read [start, end) of a partition and classify each offset. Decodes data records only in batches that compaction has thinned out.

    `see` gets each stretch, while its batch is in memory.

    Raises ValueError unless 0 <= start <= end, InvalidInput PARTITION_UNKNOWN, and InvalidEnvironment BROKER_UNREACHABLE, BROKER_REFUSED,
    BATCH_CORRUPT, BATCH_FORMAT_OLD or LOG_UNREADABLE.
    """
    if not 0 <= start <= end:
        raise ValueError(f"not a range of offsets: [{start}, {end})")
    found: dict[Kind, _Runs] = defaultdict(_Runs)
    for stretch in stretches(reader, partition, start, end):
        see(stretch)
        batch = stretch.batch
        if batch is None or batch.dense or stretch.kind is Kind.HOLE:
            found[stretch.kind].add(stretch.start, stretch.end)
            continue
        at = stretch.start
        for first, stop in batch.offsets().clip(stretch.start, stretch.end):
            found[Kind.HOLE].add(at, first)
            found[stretch.kind].add(first, stop)
            at = stop
        found[Kind.HOLE].add(at, stretch.end)
    classes = {kind: runs.intervals() for kind, runs in found.items()}
    return PartitionScan(reader.topic, partition, start, end, reader.bounds(partition), *(classes.get(kind, EMPTY) for kind in Kind))


def stretches(reader: Log, partition: int, start: int, end: int) -> Iterator[Stretch]:
    """The stretches of [start, end) of a partition, ascending and without gaps: batches, holes, and expired or unwritten offsets.

    Raises what `scan` raises, except ValueError.
    """
    bounds = reader.bounds(partition)
    position, progress = start, _Progress(partition)
    while position < end:
        progress.at(position)
        if position < bounds.log_start:
            stop = min(end, bounds.log_start)
            yield Stretch(Kind.EXPIRED, position, stop)
            position = stop
            continue
        if position >= bounds.high_watermark:
            yield Stretch(Kind.BEYOND, position, end)
            return
        stable = position < bounds.last_stable
        reply = reader.fetch(partition, position, committed=stable)
        if reply is None:  # retention removed the offset, or the log was truncated: read the bounds again
            bounds = reader.bounds(partition)
            continue
        bounds = reply.bounds
        readable_end = min(end, bounds.last_stable if stable else bounds.high_watermark)
        for stretch in _of_reply(reply, position, readable_end, stable=stable):
            yield stretch
            position = stretch.end
        if stable and position < readable_end and not reply.data and _begins_after(reader, partition, position, bounds.last_stable):
            yield Stretch(Kind.HOLE, position, readable_end)
            position = readable_end


def records_at(reader: Log, partition: int, offsets: Sequence[int] | ArrayLike) -> Iterator[Record]:
    """The records at these offsets, ascending, whether their transactions were committed or not.

    Offsets without a record are left out, and so are control records. Raises what `scan` raises, except ValueError.
    """
    wanted = [int(offset) for offset in np.unique(np.asarray(offsets, dtype=np.int64))]
    bounds = reader.bounds(partition)
    at, progress = 0, _Progress(partition)
    while at < len(wanted) and wanted[at] < bounds.high_watermark:
        progress.at(wanted[at])
        if wanted[at] < bounds.log_start:
            at += 1
            continue
        reply = reader.fetch(partition, wanted[at], committed=False, bytes_max=_LOOKUP_BYTES)
        if reply is None:
            bounds = reader.bounds(partition)
            continue
        for batch in read_batches(reply.data):
            first = at
            while at < len(wanted) and wanted[at] <= batch.last_offset:
                at += 1
            here = {offset for offset in wanted[first:at] if offset >= batch.base_offset}
            if here and not batch.control:
                yield from batch.records(here)
            if at == len(wanted):
                break


def _of_reply(reply: Fetched, position: int, end: int, *, stable: bool) -> Iterator[Stretch]:
    """The stretches of one reply in [position, end)."""
    aborted = _Aborted(reply.aborted)
    for batch in read_batches(reply.data):
        covered = aborted.covers(batch)
        if batch.last_offset < position:
            continue
        if batch.base_offset > position:
            stop = min(batch.base_offset, end)
            if stop > position:
                yield Stretch(Kind.HOLE, position, stop)
            position = stop
        if position >= end:
            return
        stop = min(batch.last_offset + 1, end)
        if batch.record_count == 0:
            kind = Kind.HOLE  # compaction emptied the batch and kept it for its producer's sequence numbers
        elif batch.control:
            kind = Kind.ABORT_MARKER if batch.marker is Marker.ABORT else Kind.COMMIT_MARKER
        elif not stable:
            kind = Kind.UNSTABLE
        else:
            kind = Kind.ABORTED if covered else Kind.COMMITTED
        yield Stretch(kind, position, stop, batch)
        position = stop


def _begins_after(reader: Log, partition: int, position: int, stable: int) -> bool:
    """Whether the first batch from `position` on starts at or above `stable`.

    Only then an empty reply means a hole: compaction has emptied the log up to the first open transaction.
    """
    reply = reader.fetch(partition, position, committed=False, bytes_max=1)
    batches = read_batches(reply.data) if reply is not None else iter(())
    first = next((batch for batch in batches if batch.last_offset >= position), None)
    return first is not None and first.base_offset >= stable


class _Aborted:
    """Finds the batches of one reply that belong to aborted transactions, by the rule of Kafka's own consumer.

    An aborted transaction covers its producer's transactional batches from its first offset to the abort marker.
    """

    def __init__(self, index: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(index, key=lambda each: each[1], reverse=True)
        self._producers: set[int] = set()

    def covers(self, batch: RecordBatch) -> bool:
        """Whether an aborted transaction covers the batch. Call this for each batch of the reply, in order."""
        while self._coming and self._coming[-1][1] <= batch.last_offset:
            self._producers.add(self._coming.pop()[0])
        if batch.control and batch.producer_id in self._producers and batch.marker is Marker.ABORT:
            self._producers.discard(batch.producer_id)
        return batch.transactional and not batch.control and batch.producer_id in self._producers


class _Progress:
    """Stops a read that makes no progress."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._position = -1
        self._until = 0.0

    def at(self, position: int) -> None:
        """Report the position of the read. Raises InvalidEnvironment LOG_UNREADABLE after ANSWER_WITHIN_S at the same position."""
        now = time.monotonic()
        if position != self._position:
            self._position, self._until = position, now + ANSWER_WITHIN_S
        elif now > self._until:
            raise InvalidEnvironment(
                "LOG_UNREADABLE",
                f"the broker sends nothing from offset {position} of partition {self._partition} on, though its log continues.",
                expected=f"a record batch within {ANSWER_WITHIN_S:.0f} s.",
                remedy="check the broker's log; a quota or a damaged segment may be the cause.",
            )


class _Runs:
    """Collects ascending intervals; a million of them take 16 MB."""

    def __init__(self) -> None:
        self._starts, self._ends = array("q"), array("q")

    def add(self, start: int, end: int) -> None:
        """Add [start, end), which starts at or after the end of the last one."""
        if start >= end:
            return
        if self._ends and self._ends[-1] == start:
            self._ends[-1] = end
        else:
            self._starts.append(start)
            self._ends.append(end)

    def intervals(self) -> Intervals:
        """The collected intervals."""
        return Intervals(np.array(self._starts, dtype=np.int64), np.array(self._ends, dtype=np.int64))
