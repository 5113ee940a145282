"""What every commit of ours carries in its userMetadata, so that the table itself says where to go on (I1, I2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import index
from typing import Any, Literal

from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import NO_TOPIC, TopicId

Kind = Literal["epoch", "seek", "batch", "rollback", "replayed", "ledger"]

EPOCH_BITS = 32
# Numbers of an epoch's statements: the fence, then a seek on the target and the roll-back on the quarantine, then batches.
FENCE, SEEK, FIRST_BATCH = 0, 1, 2


@dataclass(frozen=True, order=True)
class BatchId:
    """A statement's place in the history of a table: ordered by epoch, then by number. Raises ValueError for a negative one."""

    epoch: int
    number: int

    def __post_init__(self) -> None:
        if not (self.epoch >= 0 and 0 <= self.number < 1 << EPOCH_BITS):
            raise ValueError(f"not a batch id: {self.epoch}, {self.number}")

    @property
    def txn_version(self) -> int:
        """What Delta keeps as txnVersion."""
        return (self.epoch << EPOCH_BITS) | self.number

    @staticmethod
    def of(txn_version: int) -> BatchId:
        """The inverse of `txn_version`."""
        return BatchId(txn_version >> EPOCH_BITS, txn_version & ((1 << EPOCH_BITS) - 1))

    def __str__(self) -> str:
        return f"{self.epoch}/{self.number}"


@dataclass(frozen=True)
class Snapshot:
    """A table at the moment of a look: its id, its newest version, and the stamp of that version's commit."""

    table_id: str
    version: int
    stamp: str


@dataclass(frozen=True)
class Snapshots:
    """Target and quarantine as a statement's look saw them."""

    target: Snapshot
    quarantine: Snapshot


@dataclass(frozen=True)
class Counts:
    """What became of the records of one partition in one batch, before the target's commit.

    `quarantined` records were added to the quarantine by this batch. `duplicate_in_batch` records were offered to neither table, or stood
    in the quarantine already.
    """

    read: int = 0
    quarantined: int = 0
    duplicate_in_batch: int = 0

    def __post_init__(self) -> None:
        if min(self.read, self.quarantined, self.duplicate_in_batch, self.offered) < 0:
            raise ValueError(f"not counts of a batch: {self}")

    @property
    def offered(self) -> int:
        """Records offered to the target: each is inserted, or a duplicate of an event id that is there."""
        return self.read - self.quarantined - self.duplicate_in_batch


@dataclass(frozen=True)
class BatchCommit:
    """The identity of a statement and what it stands for.

    `ranges` are the offsets of a batch; of a seek the empty ranges [start, start) where its epoch begins. So `ends` says for both where to
    go on. `gaps` are the ranges that a seek leaves out on purpose. `writer` is the UUID of one start of one process.
    """

    kind: Kind
    pipeline: str
    table: str
    id: BatchId
    writer: str
    snapshots: Snapshots
    contract_hash: str = ""
    topic: TopicId = NO_TOPIC
    ranges: tuple[OffsetRange, ...] = ()
    counts: tuple[tuple[int, Counts], ...] = ()
    gaps: tuple[OffsetRange, ...] = ()
    why: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """`pipeline.table`."""
        return f"{self.pipeline}.{self.table}"

    @property
    def app_id(self) -> str:
        """The txnAppId of the table's target and quarantine."""
        return app_id(self.pipeline, self.table)

    @property
    def ends(self) -> dict[int, int]:
        """Where each partition goes on behind this batch or seek."""
        return {each.partition: each.end for each in self.ranges}

    def to_json(self) -> str:
        """The userMetadata text."""
        head: dict[str, Any] = {"oncelake": 1, "kind": self.kind, "pipeline": self.pipeline, "table": self.table}
        head |= {"epoch": self.id.epoch, "batch": self.id.number, "writer": self.writer, "looked": asdict(self.snapshots)}
        if self.kind in ("batch", "seek"):
            topic = {"topic": self.topic.name, "topic_id": self.topic.id, "cluster": self.topic.cluster}
            head |= {"contract_hash": self.contract_hash, **topic}
        if self.kind == "batch":
            head["ranges"] = {str(r.partition): [r.start, r.end] for r in self.ranges}
            head["counts"] = {str(partition): vars(counts) for partition, counts in self.counts}
        if self.kind == "seek":
            head["starts"] = {str(r.partition): r.start for r in self.ranges}
            partitions = sorted({gap.partition for gap in self.gaps})
            head["gaps"] = {str(p): [[gap.start, gap.end] for gap in self.gaps if gap.partition == p] for p in partitions}
            head |= {"why": self.why, "reason": self.reason}
        return json.dumps(head, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | None) -> BatchCommit | None:
        """The mark in a commit's userMetadata; None for anything else (somebody's own text, our creation of a table)."""
        try:
            value = json.loads(text or "")
            if value["oncelake"] != 1 or value["kind"] not in ("epoch", "seek", "batch", "rollback", "replayed", "ledger"):
                return None
            snapshots = Snapshots(**{table: Snapshot(**value["looked"][table]) for table in ("target", "quarantine")})
            topic = TopicId(value.get("topic", ""), value.get("topic_id", ""), value.get("cluster", ""))
            return BatchCommit(
                value["kind"],
                value["pipeline"],
                value["table"],
                BatchId(index(value["epoch"]), index(value["batch"])),
                value["writer"],
                snapshots,
                value.get("contract_hash", ""),
                topic,
                _ranges(value),
                tuple((int(p), Counts(**counts)) for p, counts in value.get("counts", {}).items()),
                tuple(OffsetRange(int(p), start, end) for p, gaps in value.get("gaps", {}).items() for start, end in gaps),
                value.get("why", ""),
                value.get("reason", ""),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def _ranges(value: Mapping[str, Any]) -> tuple[OffsetRange, ...]:
    if value["kind"] == "seek":
        return tuple(OffsetRange(int(p), start, start) for p, start in value["starts"].items())
    return tuple(OffsetRange(int(p), start, end) for p, (start, end) in value.get("ranges", {}).items())


def app_id(pipeline: str, table: str) -> str:
    """`oncelake/<pipeline>/<table>`."""
    return f"oncelake/{pipeline}/{table}"
