"""The start state: target, quarantine, ledger, checkpoints and topic as a start found them. The input of `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ingest.delta.batch_commit import NO_BATCH, BatchId, Snapshot
from ingest.delta.posting import Posting
from ingest.kafka.offsets import Partition, Position
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.ledger_reader import LedgerState, Newest
from ingest.recovery.numbering import Numbered, numbered


@dataclass(frozen=True)
class Replaced:
    """A RESTORE, REPLACE or full overwrite: its version and Delta's name for the operation.

    `rebuild` is the first epoch of the rebuild that it swaps in; None for any other.
    """

    version: int
    operation: str
    rebuild: int | None = None


@dataclass(frozen=True)
class TargetState:
    """The target. `snapshot` is None if there is no table. `txn` is the transaction id that Delta stores for us.

    `newest` is the highest batch or seek in the log, else in the ledger. `other` is another pipeline's table (`pipeline.table`) that
    commits here. `blank`: the log contains only our own creation and fences. `whole_log`: the log goes back to the table's creation, or
    contains `newest`, so that nothing older matters. `replaced` is the first RESTORE, REPLACE or full overwrite after the target version
    that `newest` recorded. `copy` says why this is not the table that `newest`, or the quarantine's newest commit, recorded. `opened` are
    the postings of `newest` that no later commit completes. `posted` is the newest statement with postings alone.
    """

    path: str
    snapshot: Snapshot | None = None
    txn: BatchId | None = None
    newest: Newest | None = None
    other: str | None = None
    blank: bool = False
    whole_log: bool = True
    replaced: Replaced | None = None
    copy: str | None = None
    opened: tuple[Posting, ...] = ()
    posted: BatchId = NO_BATCH

    @property
    def epoch(self) -> int:
        """The epoch of our transaction id; 0 for none."""
        return self.txn.epoch if self.txn is not None else 0


@dataclass(frozen=True)
class QuarantineState:
    """The quarantine. `newest` is the newest batch in its log. The search ends at the first commit up to the target's newest batch or seek.

    `whole_log`: the log goes back to that commit, or to the table's creation. `copy` says why this is not the table that the target's
    newest batch or seek recorded. `replaced` is the first RESTORE, REPLACE or full overwrite after the version that it recorded. `saw` is
    the target's snapshot in our newest commit on the quarantine, `sources` are its topics.
    """

    path: str
    snapshot: Snapshot | None = None
    epoch: int = 0
    newest: BatchId | None = None
    whole_log: bool = True
    copy: str | None = None
    replaced: Replaced | None = None
    saw: Snapshot | None = None
    sources: tuple[TopicId, ...] = ()


@dataclass(frozen=True)
class CheckpointState:
    """The checkpoint of the highest epoch (0: none), and the id of the table that the epoch was opened for (empty: not known)."""

    epoch: int = 0
    table_id: str = ""


@dataclass(frozen=True)
class RowCount:
    """The result of verify's count: `missing` describes batches with missing rows, `unknown` describes rows of no known batch."""

    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class StartState:
    """The complete start state of the table `name` (`pipeline.table`).

    `broker` has the topics that the contract names, in its order; None if nobody was asked. `retention` contains the paths of the tables
    whose transaction ids may expire. `count` is set only if `needs_count`. `ledger_snapshot` is None if there is no ledger. `taken_back`
    are the offsets [start, end) by partition that were read and that their topic's log has lost. `recorded` are the topics of a table that
    this one will replace: it numbers them alike.
    """

    name: str
    target: TargetState
    quarantine: QuarantineState
    ledger: LedgerState = field(default_factory=LedgerState)
    checkpoint: CheckpointState = CheckpointState()
    broker: tuple[TopicState, ...] | None = None
    retention: tuple[str, ...] = ()
    count: RowCount | None = None
    ledger_snapshot: Snapshot | None = None
    taken_back: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    recorded: tuple[TopicId, ...] = ()

    @property
    def next_epoch(self) -> int:
        """An epoch greater than all epochs of target, quarantine, ledger and checkpoints (I8)."""
        return 1 + max(self.target.epoch, self.quarantine.epoch, self.ledger.epoch, self.checkpoint.epoch)

    @property
    def was_read(self) -> bool:
        """Whether there is any trace that records were read for this table, or that a start has committed its first offsets."""
        in_tables = self.target.newest is not None or self.quarantine.newest is not None
        in_tables |= self.target.snapshot is not None and not self.target.blank
        return in_tables or self.ledger.epoch > 0 or self.checkpoint.epoch > 0

    @cached_property
    def topics(self) -> Numbered | None:
        """The topics with their numbers; None if nobody was asked."""
        return None if self.broker is None else self.numbered()

    @property
    def sources(self) -> tuple[TopicId, ...]:
        """All topics that have numbers. The longest list has them all: the quarantine may outlive the target, or be ahead of it."""
        newest = self.target.newest
        return max(newest.sources if newest is not None else (), self.quarantine.sources, self.recorded, key=len)

    def numbered(self, *, by_name: bool = False) -> Numbered:
        """The topics of `broker` with their numbers; see `numbering.numbered`."""
        return numbered(self.sources, self.broker or (), by_name=by_name)

    @property
    def read_to(self) -> Mapping[Partition, Position]:
        """The ends of the newest batch or seek in the topics of `broker`, as far as their leader epochs are known."""
        newest, topics = self.target.newest, self.topics
        if newest is None or topics is None:
            return {}
        return {of: each for of, each in newest.read_to.items() if of[0] in topics.states}

    @property
    def needs_count(self) -> bool:
        """Whether only the ledger has the newest batch, so that its rows must be counted."""
        newest = self.target.newest
        return self.target.snapshot is not None and newest is not None and newest.snapshots is None
