"""The start state: target, quarantine, ledger, checkpoints and topic as a start found them. The input of `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.delta.batch_commit import NO_BATCH, BatchId, Snapshot
from ingest.delta.posting import Posting
from ingest.kafka.offsets import Position
from ingest.kafka.topic_state import TopicState
from ingest.ledger.ledger_reader import LedgerState, Newest


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

    `whole_log`: the log goes back to that commit, or to the table's creation. `stamp_then` is the present stamp of the version that the
    target's newest batch or seek recorded; empty if Delta has cleaned that commit from the log. `replaced` is the first RESTORE, REPLACE or
    full overwrite after that version. `saw` is the target's snapshot in our newest commit on the quarantine.
    """

    path: str
    snapshot: Snapshot | None = None
    epoch: int = 0
    newest: BatchId | None = None
    whole_log: bool = True
    stamp_then: str = ""
    replaced: Replaced | None = None
    saw: Snapshot | None = None


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

    `broker` is None if the broker was not asked. `retention` contains the paths of the tables whose transaction ids may expire. `count` is
    set only if `needs_count`. `ledger_snapshot` is None if there is no ledger. `taken_back` are the offsets [start, end) by partition that
    were read and that the topic's log has lost.
    """

    name: str
    target: TargetState
    quarantine: QuarantineState
    ledger: LedgerState = field(default_factory=LedgerState)
    checkpoint: CheckpointState = CheckpointState()
    broker: TopicState | None = None
    retention: tuple[str, ...] = ()
    count: RowCount | None = None
    ledger_snapshot: Snapshot | None = None
    taken_back: Mapping[int, tuple[int, int]] = field(default_factory=dict)

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

    @property
    def read_to(self) -> Mapping[int, Position]:
        """The ends of the newest batch or seek in the broker's topic, as far as their leader epochs are known."""
        newest, broker = self.target.newest, self.broker
        if newest is None or broker is None:
            return {}
        # The ledger does not keep the cluster.
        same = newest.topic.id == broker.topic.id if broker.topic.id else newest.topic == broker.topic
        return newest.read_to if same else {}

    @property
    def needs_count(self) -> bool:
        """Whether only the ledger has the newest batch, so that its rows must be counted."""
        newest = self.target.newest
        return self.target.snapshot is not None and newest is not None and newest.snapshots is None

    def read_before(self, topic_id: str) -> dict[int, int]:
        """The highest offset that any batch has reached in this topic, by partition."""
        return {p: end for (topic, p), end in self.ledger.reached.items() if topic == topic_id}
