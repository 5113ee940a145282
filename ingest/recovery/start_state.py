"""What a start knows of target, quarantine, ledger, checkpoints and topic: the values that `decide` decides on."""

from __future__ import annotations

from dataclasses import dataclass, field

from ingest.delta.batch_commit import BatchId, Snapshot
from ingest.kafka.topic_state import TopicState
from ingest.ledger.ledger_reader import LedgerState, Newest


@dataclass(frozen=True)
class Replaced:
    """A RESTORE, REPLACE or full overwrite, by its version and Delta's name for it."""

    version: int
    operation: str


@dataclass(frozen=True)
class TargetState:
    """The target. `look` None: there is no table. `txn` is the transaction id that Delta keeps for us; `newest` the highest batch or seek
    of its log, or else of the ledger.

    `other` is another pipeline that commits to the table; `blank` whether it holds nothing but our own creation and fences; `whole_log`
    whether the log goes back to the table's creation; `replaced` what came after the version at which `newest` looked; `copy` why it is
    another table than the one that `newest`, or the quarantine's newest commit, looked at.
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

    @property
    def epoch(self) -> int:
        """The epoch of its transaction id; 0 for none."""
        return self.txn.epoch if self.txn is not None else 0


@dataclass(frozen=True)
class QuarantineState:
    """The quarantine. `newest` is the newest batch in its log, looked for as far back as a commit that the target's newest batch settles;
    `whole_log` whether the log goes back so far, or to its creation.

    `stamp_then` is the stamp, now, of the version at which the target's newest batch or seek looked (empty if that commit is cleaned from
    the log); `replaced` what came after that version. `saw` is the target as our newest commit here saw it.
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
    """What the folder of checkpoints remembers: the highest epoch in it (0: none) and the table id that it was opened for."""

    epoch: int = 0
    table_id: str = ""


@dataclass(frozen=True)
class RowCount:
    """What verify's count says: `missing` describes batches of which something is missing, `unknown` rows that no known batch put there."""

    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class StartState:
    """All that a start knows. `retention` names the tables whose transaction ids may expire; `count` is there where only the ledger vouches
    for the newest batch; `broker` is None where nobody asked, `ledger_look` where there is no ledger."""

    name: str
    target: TargetState
    quarantine: QuarantineState
    ledger: LedgerState = field(default_factory=LedgerState)
    checkpoint: CheckpointState = CheckpointState()
    broker: TopicState | None = None
    retention: tuple[str, ...] = ()
    count: RowCount | None = None
    ledger_snapshot: Snapshot | None = None

    @property
    def next_epoch(self) -> int:
        """Greater than any that target, quarantine, ledger or checkpoints know (I8)."""
        return 1 + max(self.target.epoch, self.quarantine.epoch, self.ledger.epoch, self.checkpoint.epoch)

    @property
    def was_read(self) -> bool:
        """Whether anything tells that records of this table were read, or that a start has committed where to begin."""
        reported = self.target.newest is not None or self.quarantine.newest is not None
        reported |= self.target.snapshot is not None and not self.target.blank
        return reported or self.ledger.epoch > 0 or self.checkpoint.epoch > 0

    @property
    def needs_count(self) -> bool:
        """Whether only the ledger vouches for the newest batch."""
        newest = self.target.newest
        return self.target.snapshot is not None and newest is not None and newest.snapshots is None

    def read_before(self, topic_id: str) -> dict[int, int]:
        """How far any batch has read this topic, by partition."""
        return {p: end for (topic, p), end in self.ledger.reached.items() if topic == topic_id}
