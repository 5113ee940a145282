"""BatchCommit: the userMetadata of each of our commits. It says what the commit is, where the next batch starts, and what is in the tables
(I1, I2, I4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from operator import index
from typing import Any, get_args

from ingest.delta.posting import Posting, by_why, of_json
from ingest.kafka.offsets import OffsetRange, Partition, Position, known_positions
from ingest.kafka.topic_state import NO_TOPIC, TopicId
from ingest.runtime.canonical_json import read_json

FORMAT = 3
EPOCH_BITS = 32
# Statement numbers in an epoch: 0 is the fence, 1 a seek (on the target) or the roll-back (on the quarantine), 2 the first batch.
FENCE, SEEK, FIRST_BATCH = 0, 1, 2


@dataclass(frozen=True, order=True)
class BatchId:
    """A statement's position in a table's history, ordered by epoch and then number. Raises ValueError for a value out of range."""

    epoch: int
    number: int

    def __post_init__(self) -> None:
        if not (self.epoch >= 0 and 0 <= self.number < 1 << EPOCH_BITS):
            raise ValueError(f"not a batch id: {self.epoch}, {self.number}")

    @property
    def txn_version(self) -> int:
        """The txnVersion that Delta stores: epoch × 2³² + number."""
        return (self.epoch << EPOCH_BITS) | self.number

    @staticmethod
    def of(txn_version: int) -> BatchId:
        """The inverse of `txn_version`."""
        return BatchId(txn_version >> EPOCH_BITS, txn_version & ((1 << EPOCH_BITS) - 1))

    def __str__(self) -> str:
        return f"{self.epoch}/{self.number}"


NO_BATCH = BatchId(0, 0)


@dataclass(frozen=True)
class Snapshot:
    """A table at one moment: its id, its newest version, and the stamp of that version's commit (see `DeltaLog.stamp`)."""

    table_id: str
    version: int
    stamp: str


@dataclass(frozen=True)
class Snapshots:
    """Target and quarantine as read just before a statement."""

    target: Snapshot
    quarantine: Snapshot


@dataclass(frozen=True)
class Create:
    """A table's creation."""


@dataclass(frozen=True)
class Alter:
    """A change of a table's columns or properties, to match its contract."""


@dataclass(frozen=True)
class Fence:
    """The beginning of an epoch: no statement of an earlier one can follow."""


@dataclass(frozen=True)
class Start:
    """The offsets at which the table begins to read."""

    reason: str


@dataclass(frozen=True)
class Seek:
    """The offsets at which an epoch begins that does not go on where the table ends."""

    reason: str


@dataclass(frozen=True)
class Batch:
    """A micro-batch."""


@dataclass(frozen=True)
class RollBack:
    """The removal of an uncommitted batch's records from the quarantine."""


@dataclass(frozen=True)
class Replay:
    """Quarantined records that become rows. The epoch begins at the table's end."""

    reason: str


@dataclass(frozen=True)
class Swap:
    """A rebuild's rows, which replace all that earlier epochs wrote. `first` is the first epoch of the rebuild."""

    first: int
    reason: str


@dataclass(frozen=True)
class State:
    """Postings alone: the statement that they are about could not carry them."""


@dataclass(frozen=True)
class Mark:
    """Another state of quarantined records: replayed or dropped."""


@dataclass(frozen=True)
class Project:
    """Postings that were added to the ledger."""


@dataclass(frozen=True)
class Check:
    """Results of quality checks."""


@dataclass(frozen=True)
class Upkeep:
    """A maintenance or an erasure, perhaps with a person's reason."""

    reason: str = ""


Case = Create | Alter | Fence | Start | Seek | Batch | RollBack | Replay | Swap | State | Mark | Project | Check | Upkeep
KINDS: Mapping[str, type[Case]] = {case.__name__.lower(): case for case in get_args(Case)}
# Under a transaction id, so that an earlier epoch cannot follow.
FENCED = (Fence, Start, Seek, Batch, RollBack, Replay, Swap, State)
# These say where the next batch starts.
POSITIONED = (Start, Seek, Batch, Replay, Swap)


@dataclass(frozen=True)
class BatchCommit:
    """Our metadata in a Delta commit: what it is, whose, and its postings.

    `id` is the statement's, `writer` a UUID for each start of a process. `sources` are the topics of the table: rows and postings name
    them by their place here (ingest/recovery/numbering.py). `snapshots` is None for a statement that belongs to no epoch.
    """

    case: Case
    pipeline: str
    table: str
    id: BatchId = NO_BATCH
    writer: str = ""
    snapshots: Snapshots | None = None
    contract_hash: str = ""
    sources: tuple[TopicId, ...] = ()
    postings: tuple[Posting, ...] = ()

    @property
    def kind(self) -> str:
        """The name of its case, as its JSON and messages have it."""
        return type(self.case).__name__.lower()

    @property
    def name(self) -> str:
        """`pipeline.table`."""
        return f"{self.pipeline}.{self.table}"

    @property
    def app_id(self) -> str:
        """The txnAppId of the table's target and quarantine."""
        return app_id(self.pipeline, self.table)

    def topic(self, source: int) -> TopicId:
        """The topic of this number; NO_TOPIC in a statement that belongs to no epoch."""
        return self.sources[source] if source < len(self.sources) else NO_TOPIC

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The offsets that a batch has read; the empty ranges [start, start) at which the epoch of a start, seek, replay or swap begins."""
        if isinstance(self.case, Batch):
            return tuple(each.range for each in self.postings if each.why == "batch" and each.range is not None)
        return tuple(each.range for each in self.postings if each.why in ("first", "start", "seek") and each.range is not None)

    @property
    def opened(self) -> tuple[Posting, ...]:
        """The postings that a later commit completes."""
        return tuple(each for each in self.postings if each.is_open)

    @property
    def positions(self) -> tuple[OffsetRange, ...]:
        """The ranges that contain the positions of the rows that this statement added."""
        return tuple(each.range for each in self.postings if each.why in ("batch", "replay") and each.range is not None)

    @property
    def ends(self) -> dict[Partition, int]:
        """The next offset to read in each partition after this statement."""
        return {each.of: each.end for each in self.ranges}

    @property
    def read_to(self) -> dict[Partition, Position]:
        """The ends of this statement whose leader epoch is known."""
        return known_positions(self.ranges)

    def to_json(self) -> str:
        """The userMetadata text."""
        head: dict[str, Any] = {"oncelake": FORMAT, "kind": self.kind, "pipeline": self.pipeline, "table": self.table}
        head |= {"epoch": self.id.epoch, "batch": self.id.number, "writer": self.writer, **vars(self.case)}
        if self.snapshots is not None:
            head["snapshots"] = asdict(self.snapshots)
        if self.contract_hash:
            head["contract_hash"] = self.contract_hash
        if self.sources:
            head["sources"] = [[each.name, each.id, each.cluster] for each in self.sources]
        if self.postings:
            head["postings"] = by_why(self.postings)
        return json.dumps(head, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | None) -> BatchCommit | None:
        """Parse a commit's userMetadata. Returns None for foreign text."""
        try:
            value = read_json(text or "")
            if value["oncelake"] != FORMAT:
                return None
            case, at = KINDS[value["kind"]], value.get("snapshots")
            return BatchCommit(
                case(**{each.name: value[each.name] for each in fields(case)}),
                value["pipeline"],
                value["table"],
                BatchId(index(value["epoch"]), index(value["batch"])),
                value["writer"],
                None if at is None else Snapshots(**{table: Snapshot(**at[table]) for table in ("target", "quarantine")}),
                value.get("contract_hash", ""),
                tuple(TopicId(*each) for each in value.get("sources", ())),
                of_json(value.get("postings", {})),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def app_id(pipeline: str, table: str) -> str:
    """The txnAppId: `oncelake/<pipeline>/<table>`."""
    return f"oncelake/{pipeline}/{table}"
