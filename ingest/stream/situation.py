"""What a start knows of checkpoint, tables and topic: what preflight decides on. ingest/stream/facts.py and topic.py find it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.stream.binding import Binding
from ingest.stream.decide import LastWritten
from ingest.stream.offsets import PlannedBatch
from ingest.stream.quarantine_loss import Lost


@dataclass(frozen=True)
class CheckpointFacts:
    """A checkpoint: `planned` is the last batch in its offset log, `committed` the last in its commit log (-1: none).

    `torn` is the file, if any, without which it cannot be continued; `prepared` whether it holds no batch, and a rebase was cut off
    that has made another one; `initial` where batch 0 begins or will begin, by partition (None: that is not told).
    """

    path: str
    query_id: str | None = None
    planned: PlannedBatch | None = None
    committed: int = -1
    torn: str | None = None
    binding: Binding | None = None
    prepared: bool = False
    initial: Mapping[int, int] | None = None

    @property
    def begins(self) -> Mapping[int, int]:
        """Where its own batches begin, by partition: a rebase's baseline, or Spark's; empty if that is not told."""
        rebase = self.binding.rebase if self.binding is not None else None
        return dict(rebase.baseline) if rebase is not None else self.initial or {}

    @property
    def empty(self) -> bool:
        """Nothing was ever planned in it."""
        return self.planned is None and self.committed < 0 and self.torn is None


@dataclass(frozen=True)
class Stranger:
    """A commit of another pipeline, or of another checkpoint of this one, and the version in which it stands."""

    version: int
    pipeline: str
    query_id: str


@dataclass(frozen=True)
class TableFacts:
    """The target (`id` None: there is none) and what belongs to it.

    `last` is the last batch of the checkpoint's query that is in force, `left_out` a later one that is not, `beside` one that is not,
    of a checkpoint which this one's rebase did not know, written since it and before any batch of this one, and read from before where
    this one begins; `ours` whether the table holds any pair of this pipeline, `blank` whether it holds nothing but our own marked
    creation; `recorded` whether the ledger, which may outlive the table, tells of batches or of a rebase, and `ledgered` the last batch
    of the query that it has; `stranger` the newest commit in force by somebody else since `last`; `pair` the batch number that Delta
    itself keeps for our query; `baseline`, where `last` is None, whether the version at which a rebase began this epoch is in force.
    `quarantine_lost` says which records the quarantine lacks that the target proves; `retention` names the tables on which pairs expire.
    """

    path: str
    id: str | None = None
    last: LastWritten | None = None
    left_out: LastWritten | None = None
    beside: LastWritten | None = None
    ours: bool = False
    blank: bool = False
    recorded: bool = False
    ledgered: int = -1
    stranger: Stranger | None = None
    pair: int | None = None
    pair_known: bool = True
    baseline: bool = False
    quarantine: str = ""
    quarantine_lost: Lost | None = None
    retention: tuple[str, ...] = ()


@dataclass(frozen=True)
class BrokerFacts:
    """The topic as the broker has it; `bounds` are (earliest, end) offsets by partition. `topic_id` is empty on old brokers, `cluster`
    (the cluster's id) where none is told.

    `decided` is where a reader of committed records ends, by partition: before the first transaction that is open. Empty where others
    are read, or nobody has asked.
    """

    topic: str
    topic_id: str
    bounds: dict[int, tuple[int, int]] = field(default_factory=dict)
    decided: dict[int, int] = field(default_factory=dict)
    cluster: str = ""
