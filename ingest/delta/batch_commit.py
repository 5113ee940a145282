"""BatchCommit: the userMetadata of each of our commits. It records in the table itself where the next batch starts (I1, I2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import index
from typing import Any, Literal

from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import NO_TOPIC, TopicId
from ingest.runtime.canonical_json import read_json

Kind = Literal["epoch", "seek", "batch", "rollback", "replayed", "ledger"]

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
class Counts:
    """Record counts of one partition in one batch, taken before the target's commit.

    `quarantined`: records that this batch added to the quarantine. `duplicate_in_batch`: records that were offered to neither table, or
    that the quarantine already contained.
    """

    read: int = 0
    quarantined: int = 0
    duplicate_in_batch: int = 0

    def __post_init__(self) -> None:
        if min(self.read, self.quarantined, self.duplicate_in_batch, self.offered) < 0:
            raise ValueError(f"not counts of a batch: {self}")

    @property
    def offered(self) -> int:
        """Records offered to the target. Each one is inserted, or duplicates an event id that the target already contains."""
        return self.read - self.quarantined - self.duplicate_in_batch


@dataclass(frozen=True)
class BatchCommit:
    """Our metadata in a Delta commit: the identity of a statement and its offsets.

    A batch's `ranges` are its offsets. A seek's `ranges` are the empty ranges [start, start) at which its epoch starts, so `ends` gives
    the next offsets for both. `gaps` are the ranges that a seek skips on purpose. A seek with `why` replay also adds rows: quarantined
    records of the ranges `replayed`, with `counts` of those that were accepted. Each start of a process has its own UUID as `writer`.
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
    replayed: tuple[OffsetRange, ...] = ()

    @property
    def rebuilt(self) -> int | None:
        """For the commit that swaps in a rebuilt table: the first epoch of the rebuild, which replaces all earlier ones. Else None."""
        return rebuilt_since(self.why) if self.kind == "seek" else None

    @property
    def positions(self) -> tuple[OffsetRange, ...]:
        """The ranges that contain the positions of the rows that this statement added."""
        return self.ranges if self.kind == "batch" else self.replayed

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
        """The next offset to read in each partition after this batch or seek."""
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
        if self.kind == "batch" or self.replayed:
            head["counts"] = {str(partition): vars(counts) for partition, counts in self.counts}
        if self.kind == "seek":
            head["starts"] = {str(r.partition): r.start for r in self.ranges}
            partitions = sorted({gap.partition for gap in self.gaps})
            head["gaps"] = {str(p): [[gap.start, gap.end] for gap in self.gaps if gap.partition == p] for p in partitions}
            head |= {"why": self.why, "reason": self.reason}
        if self.kind == "rollback" and self.why:
            head["why"] = self.why
        if self.replayed:
            head["replayed"] = {str(r.partition): [r.start, r.end] for r in self.replayed}
        return json.dumps(head, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | None) -> BatchCommit | None:
        """Parse a commit's userMetadata. Returns None for foreign text and for our kinds that are no BatchCommit, such as `created`."""
        try:
            value = read_json(text or "")
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
                tuple(OffsetRange(int(p), start, end) for p, (start, end) in value.get("replayed", {}).items()),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def _ranges(value: Mapping[str, Any]) -> tuple[OffsetRange, ...]:
    if value["kind"] == "seek":
        return tuple(OffsetRange(int(p), start, start) for p, start in value["starts"].items())
    return tuple(OffsetRange(int(p), start, end) for p, (start, end) in value.get("ranges", {}).items())


def rebuilt_since(why: str | None) -> int | None:
    """The first epoch of a rebuild, from the `why` of its swap (`rebuild:7`). None for any other `why`."""
    word, _, epoch = (why or "").partition(":")
    return int(epoch) if word == "rebuild" else None


def app_id(pipeline: str, table: str) -> str:
    """The txnAppId: `oncelake/<pipeline>/<table>`."""
    return f"oncelake/{pipeline}/{table}"
