"""A line of the ledger: a posting, and the statement that made it (I4, I7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from ingest.delta.batch_commit import BatchCommit, BatchId
from ingest.delta.commit import Commit
from ingest.delta.delta_sql import Unreadable
from ingest.delta.posting import Posting
from ingest.kafka.topic_state import TopicId

SCHEMA_VERSION = 3
OfTable = Literal["target", "quarantine"]
SUMS = ("target_rows", "target_offsets", "target_hash", "quarantine_rows", "quarantine_offsets", "quarantine_hash")
# The columns of a posting, in the order of `Posting.fields`.
POSTING = (
    "epoch",
    "batch",
    "source",
    "partition",
    "start_offset",
    "end_offset",
    "leader_epoch",
    "records_read",
    "present",
    "duplicate",
    *SUMS,
)
DECIMALS = tuple(name for name in SUMS if not name.endswith("_rows"))


@dataclass(frozen=True)
class Line:
    """A posting with its statement: its `id`, its `writer`, and the `version` that it committed, of `of_table`.

    The statement of an upkeep has no epoch (0). `topic` is that of the posting's source; empty for an upkeep.
    """

    posting: Posting
    pipeline: str
    table: str
    id: BatchId
    writer: str
    topic: TopicId
    of_table: OfTable
    version: int
    contract_hash: str
    committed_at: datetime = field(compare=False)  # Spark returns local time without a zone

    @property
    def batch_id(self) -> BatchId:
        """The epoch and batch of the rows."""
        return BatchId(self.posting.key.epoch, self.posting.key.batch)

    @property
    def epochs(self) -> range:
        """The epochs of the rows."""
        first = self.posting.key.epoch
        return range(first, self.id.epoch if self.posting.why == "rebuild" else first + 1)

    @property
    def completes(self) -> bool:
        """Whether it says what an earlier statement has added, which was open."""
        return self.posting.why in ("batch", "replay") and self.posting.range is None

    def row(self) -> dict[str, Any]:
        """The line as the ledger's columns (`LEDGER_FIELDS`)."""
        at, posting = self.id, dict(zip(POSTING, self.posting.fields(), strict=True))
        posting |= {name: None if posting[name] is None else Decimal(posting[name]) for name in DECIMALS}
        head = {"schema_version": SCHEMA_VERSION, "pipeline": self.pipeline, "table": self.table, "why": self.posting.why}
        statement = {"statement_epoch": at.epoch, "statement_batch": at.number, "writer": self.writer, "of_table": self.of_table}
        about = {"version": self.version, "contract_hash": self.contract_hash, "committed_at": self.committed_at}
        return {**head, **posting, "topic": self.topic.name, "topic_id": self.topic.id, **statement, **about}

    @staticmethod
    def of(row: Mapping[str, Any]) -> Line:
        """The inverse of `row`. Raises Unreadable if somebody has changed it so that it is no line any more."""
        try:
            posting = Posting.of_fields(row["why"], [None if row[name] is None else int(row[name]) for name in POSTING])
        except (ValueError, TypeError) as error:
            raise Unreadable(f"the ledger has a line that no statement of ours has written ({error}): {dict(row)}") from error
        id, topic = BatchId(row["statement_epoch"], row["statement_batch"]), TopicId(row["topic"], row["topic_id"])
        at = (row["of_table"], row["version"], row["contract_hash"], row["committed_at"])
        return Line(posting, row["pipeline"], row["table"], id, row["writer"], topic, *at)


def lines_of(of_table: OfTable, commit: Commit, batch_commit: BatchCommit) -> Iterator[Line]:
    """The ledger's lines of a commit."""
    head, about = (
        (batch_commit.pipeline, batch_commit.table, batch_commit.id, batch_commit.writer),
        (commit.version, batch_commit.contract_hash),
    )
    for each in batch_commit.postings:
        topic = replace(batch_commit.topic(each.key.source), cluster="")  # the ledger does not keep it
        yield Line(each, *head, topic, of_table, *about, commit.committed_at)
