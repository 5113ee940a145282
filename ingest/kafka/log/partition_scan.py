"""What each offset of a partition's range holds: eight classes, and every offset in exactly one of them (I4). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ingest.kafka.intervals import EMPTY, Intervals
from ingest.kafka.log.fetch import Bounds

Isolation = Literal["read_committed", "read_uncommitted"]


class Kind(Enum):
    """What an offset holds, or why it holds no record."""

    COMMITTED = "committed"
    """A record outside of any transaction, or of a committed one."""
    ABORTED = "aborted"
    """A record of an aborted transaction: read_committed does not see it."""
    UNSTABLE = "unstable"
    """A record at or above the last stable offset when it was read: its transaction may be open still."""
    COMMIT_MARKER = "commit"
    """The control record that commits a transaction."""
    ABORT_MARKER = "abort"
    """The control record that aborts a transaction."""
    HOLE = "hole"
    """No record any more, though the log goes on: compaction took it."""
    EXPIRED = "expired"
    """Below the log's start: retention or DeleteRecords took it. Whether it was a record cannot be told."""
    BEYOND = "beyond"
    """At or above the high watermark: not written yet, or not replicated."""


@dataclass(frozen=True)
class PartitionScan:
    """What the offsets [start, end) of one partition hold: each is in exactly one of the eight classes (see Kind).

    `bounds` are the partition's own, as of the end of the reading. Raises ValueError if an offset is in no class, or in two.
    """

    topic: str
    partition: int
    start: int
    end: int
    bounds: Bounds
    committed: Intervals = EMPTY
    aborted: Intervals = EMPTY
    unstable: Intervals = EMPTY
    commit_markers: Intervals = EMPTY
    abort_markers: Intervals = EMPTY
    holes: Intervals = EMPTY
    expired: Intervals = EMPTY
    beyond: Intervals = EMPTY

    def __post_init__(self) -> None:
        classes = list(self.classes().values())
        whole = Intervals.of([(self.start, self.end)])
        if sum(map(len, classes)) != len(whole) or Intervals.union(classes) != whole:
            raise ValueError(f"not every offset of [{self.start}, {self.end}) is in exactly one class: {self}")

    def classes(self) -> dict[Kind, Intervals]:
        """The offsets by kind, all eight."""
        return {
            Kind.COMMITTED: self.committed,
            Kind.ABORTED: self.aborted,
            Kind.UNSTABLE: self.unstable,
            Kind.COMMIT_MARKER: self.commit_markers,
            Kind.ABORT_MARKER: self.abort_markers,
            Kind.HOLE: self.holes,
            Kind.EXPIRED: self.expired,
            Kind.BEYOND: self.beyond,
        }

    def read(self, isolation: Isolation) -> Intervals:
        """The offsets whose records a reader of this isolation level gets."""
        if isolation == "read_committed":
            return self.committed
        return Intervals.union([self.committed, self.aborted, self.unstable])

    @property
    def unverifiable(self) -> Intervals:
        """The offsets of which Kafka cannot say (any more) what they held."""
        return Intervals.union([self.expired, self.beyond])
