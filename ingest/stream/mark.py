"""What every commit of ours carries in its userMetadata, so that the table itself tells where to resume (I1)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from ingest.stream.offsets import BatchId, OffsetRange

Statement = Literal["target", "quarantine", "ledger"]


@dataclass(frozen=True)
class Counts:
    """What became of the records of one partition in one batch, as far as it is known before the target's commit.

    `losers` are later copies of an event id inside the batch; `replayed` records stand already in target or quarantine at
    their own position.
    """

    read: int = 0
    quarantined: int = 0
    losers: int = 0
    replayed: int = 0

    def __post_init__(self) -> None:
        if min(self.read, self.quarantined, self.losers, self.replayed, self.winners) < 0:
            raise ValueError(f"not counts of a batch: {self}")

    @property
    def winners(self) -> int:
        """Records offered to the target: each is inserted, or a duplicate of an event id from an earlier batch."""
        return self.read - self.quarantined - self.losers - self.replayed


@dataclass(frozen=True)
class Mark:
    """Identity, ranges and counts of a batch; `app_id` and `id.number` are the pair that Delta keeps as txn."""

    pipeline: str
    table: str
    id: BatchId
    epoch: int
    contract_hash: str
    topic: str
    topic_id: str
    ranges: tuple[OffsetRange, ...]
    counts: tuple[tuple[int, Counts], ...]

    def app_id(self, statement: Statement) -> str:
        """One app id for each query, table and statement: a second statement with the same pair would be skipped."""
        return app_id(self.pipeline, self.table, self.id.query_id, statement)

    def to_json(self) -> str:
        """The userMetadata text."""
        return json.dumps(
            {
                "oncelake": 1,
                "pipeline": self.pipeline,
                "table": self.table,
                "query_id": self.id.query_id,
                "batch_id": self.id.number,
                "epoch": self.epoch,
                "contract_hash": self.contract_hash,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "ranges": {str(r.partition): [r.start, r.end] for r in self.ranges},
                "counts": {str(partition): vars(counts) for partition, counts in self.counts},
            },
            separators=(",", ":"),
        )

    @staticmethod
    def from_json(text: str | None) -> Mark | None:
        """The mark in a commit's userMetadata, or None if it is not a batch of ours (somebody's own text, our creation)."""
        try:
            value = json.loads(text or "")
            if value["oncelake"] != 1:
                return None
            return Mark(
                value["pipeline"],
                value["table"],
                BatchId(value["query_id"], value["batch_id"]),
                value["epoch"],
                value["contract_hash"],
                value["topic"],
                value["topic_id"],
                tuple(OffsetRange(int(p), start, end) for p, (start, end) in value["ranges"].items()),
                tuple((int(p), Counts(**counts)) for p, counts in value["counts"].items()),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def app_id(pipeline: str, table: str, query_id: str, statement: str) -> str:
    """`oncelake/<pipeline>/<table>/<query id>/<statement>`."""
    return f"oncelake/{pipeline}/{table}/{query_id}/{statement}"
