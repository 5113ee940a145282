"""The classification of a partition's offsets: eight classes, and every offset is in exactly one of them (I4). No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ingest.kafka.intervals import EMPTY, Intervals
from ingest.kafka.log.fetch import Bounds

Isolation = Literal["read_committed", "read_uncommitted"]


class Kind(Enum):
    """The class of an offset: the kind of record at it, or the reason why there is none."""

    COMMITTED = "committed"
    """A record of a committed transaction, or of no transaction."""
    ABORTED = "aborted"
    """A record of an aborted transaction, which read_committed does not return."""
    UNSTABLE = "unstable"
    """A record at or above the last stable offset of its fetch: its transaction may still be open."""
    COMMIT_MARKER = "commit"
    """The control record that commits a transaction."""
    ABORT_MARKER = "abort"
    """The control record that aborts a transaction."""
    HOLE = "hole"
    """No record, although the log continues: compaction removed it."""
    EXPIRED = "expired"
    """Below the log start offset: retention or DeleteRecords removed it. Whether it was a record is unknown."""
    BEYOND = "beyond"
    """At or above the high watermark: not written or not replicated yet."""


@dataclass(frozen=True)
class PartitionScan:
    """The classes of the offsets [start, end) of one partition; each offset is in exactly one of the eight classes (see Kind).

    `bounds` are the bounds of the whole partition at the end of the read. Raises ValueError if an offset is in no class or in two.
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
        """The offsets by kind; contains all eight kinds."""
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
        """The offsets whose records a reader of this isolation level receives."""
        if isolation == "read_committed":
            return self.committed
        return Intervals.union([self.committed, self.aborted, self.unstable])

    @property
    def unverifiable(self) -> Intervals:
        """The offsets whose content Kafka does not have, either no longer (expired) or not yet (beyond)."""
        return Intervals.union([self.expired, self.beyond])
