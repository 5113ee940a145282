"""Read the ledger's state in a few queries. Their cost does not depend on the number of target rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingest.delta.batch_commit import NO_BATCH, BatchId, Project, Snapshots
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, asked
from ingest.delta.reachable import reverts
from ingest.kafka.offsets import Partition, Position, known_positions
from ingest.kafka.topic_state import NO_TOPIC, TopicId
from ingest.ledger.ledger_line import Line
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Batches, and the offsets at which epochs begin.
POSITIONED = "why IN ('batch', 'first', 'start', 'seek') AND start_offset IS NOT NULL"
NEWEST = "SELECT epoch, max(batch) AS batch FROM {ledger} WHERE " + POSITIONED + " GROUP BY epoch ORDER BY epoch DESC LIMIT 1"
STATEMENT = """\
SELECT statement_epoch AS epoch, max(statement_batch) AS number FROM {ledger} WHERE of_table = 'target'
GROUP BY statement_epoch ORDER BY statement_epoch DESC LIMIT 1"""
TOPICS = "SELECT DISTINCT source, topic, topic_id, statement_epoch FROM {ledger} WHERE statement_epoch > 0 ORDER BY statement_epoch"
REACHED = """\
SELECT source, `partition`, max(end_offset) AS reached FROM {ledger} WHERE why IN ('batch', 'rebuild') GROUP BY source, `partition`"""


@dataclass(frozen=True)
class Newest:
    """The highest batch or seek of a table, the topics by number, and the next offset of each partition after it.

    The partitions are those of the topics that its epoch reads. `read_to` are those ends whose leader epoch is known. `version` is the
    target version of its commit. `snapshots` come from the commit;
    they are None if only the ledger is known, for example because Delta cleaned up the commit.
    """

    id: BatchId
    sources: tuple[TopicId, ...]
    ends: Mapping[Partition, int]
    snapshots: Snapshots | None = None
    version: int | None = None
    read_to: Mapping[Partition, Position] = field(default_factory=dict)

    @property
    def active(self) -> frozenset[int]:
        """The numbers of the topics that its epoch reads."""
        return frozenset(number for number, _ in self.ends)


@dataclass(frozen=True)
class LedgerState:
    """A summary of the ledger.

    `newest` is its highest batch or seek, `statement` the highest statement on the target. `reached` is how far batches have read.
    `table_id` is the target's id in our newest commit on it (empty: unknown).
    """

    newest: Newest | None = None
    statement: BatchId = NO_BATCH
    reached: Mapping[Partition, int] = field(default_factory=dict)
    table_id: str = ""

    @property
    def epoch(self) -> int:
        """Its highest epoch (0: none)."""
        return max(self.statement.epoch, self.newest.id.epoch if self.newest is not None else 0)


def read_ledger(session: SparkSession | None, log: DeltaLog, name: str) -> LedgerState:
    """The current state of the ledger of `name` with this log; empty if there is no ledger. A local lake needs no session.

    Raises Refused LOG_TORN, and Unreadable.
    """
    if not log.exists():
        return LedgerState()
    return asked(log.table, session, lambda engine: _state(engine, log, name))


def _state(engine: Engine, log: DeltaLog, name: str) -> LedgerState:
    ledger = At(log.table)
    newest = engine.ask(NEWEST, ledger=ledger)
    if not newest:
        return LedgerState()
    statement = engine.ask(STATEMENT, ledger=ledger)[0]
    where = f"epoch = {newest[0]['epoch']} AND batch = {newest[0]['batch']} AND {POSITIONED}"
    rows = [Line.of(row) for row in engine.ask(f"SELECT * FROM {{ledger}} WHERE {where}", ledger=ledger)]
    topics = {row["source"]: TopicId(row["topic"], row["topic_id"]) for row in engine.ask(TOPICS, ledger=ledger)}
    sources = tuple(topics.get(number, NO_TOPIC) for number in range(1 + max(topics)))
    ranges = [line.posting.range for line in rows if line.posting.range is not None]
    return LedgerState(
        Newest(rows[0].batch_id, sources, {at.of: at.end for at in ranges}, None, rows[0].version, known_positions(ranges)),
        BatchId(statement["epoch"], statement["number"]),
        {(row["source"], row["partition"]): row["reached"] for row in engine.ask(REACHED, ledger=ledger)},
        written(log, name)[1],
    )


def written(log: DeltaLog, name: str, version: int | None = None) -> tuple[Snapshots | None, str]:
    """The versions of target and quarantine whose lines the ledger has all, as our newest commit on it says, and the target's table id.

    None if it does not say so, or if a RESTORE or a statement of others may have removed lines since. `version` is the ledger's (None:
    newest).
    """
    cut = False
    for commit in log.newest_first():
        if version is not None and commit.version > version:
            continue
        # Ours only add files, and compact them. Another engine may repeat our metadata. An UPDATE changes lines, and removes none.
        removes = reverts(commit) or (bool(commit.removed) and commit.operation not in ("OPTIMIZE", "UPDATE"))
        found = None if removes else commit.batch_commit
        if found is not None and found.name == name and isinstance(found.case, Project) and found.snapshots is not None:
            return None if cut else found.snapshots, found.snapshots.target.table_id
        cut |= removes
    return None, ""


def ledger_lines(engine: Engine, places: Places, where: str = "true") -> list[Line]:
    """The ledger's lines that meet a condition, in batch order. Raises Unreadable."""
    # Two processes may have written the same line.
    sql = f"SELECT DISTINCT * FROM {{ledger}} WHERE {where} ORDER BY epoch, batch, source, `partition`, statement_epoch, statement_batch"
    return [Line.of(row) for row in engine.ask(sql, ledger=At(places.ledger))]
