"""Processes one micro-batch with Delta in Spark: offset range, look back, decode, quarantine, target, replayed records, ledger.

direct.py does the same with the direct writer. Spark's foreachBatch calls `process`, which returns only after the batch's commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batch.batch_counts import BatchCounts, count_batch, rank
from ingest.batch.conflicts import mark_conflicts, with_bytes, without_rows
from ingest.batch.halving import Source
from ingest.contract.columns import event_id_columns, target_fields
from ingest.contract.definition import Contract
from ingest.decode.decoder import as_text, decode, refused
from ingest.decode.event_plan import BatchSource
from ingest.delta import writer as commits
from ingest.delta.batch_commit import FIRST_BATCH, Batch, BatchCommit
from ingest.delta.commit import Commit
from ingest.delta.delta_sql import At, Spark, asked
from ingest.delta.posting import Key, Posting, Sums
from ingest.delta.stored_rows import QUARANTINE, hashed_ids, sums_at
from ingest.delta.table_writer import SparkWriter, TableWriter
from ingest.kafka.offsets import OffsetRange, Partition, Planned, Position, planned
from ingest.ledger.books import added_by
from ingest.recovery.epoch import Epoch
from ingest.recovery.replay import replay
from ingest.runtime import crash_points
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import Files
from ingest.runtime.kept_frame import kept
from ingest.runtime.places import Places

# Each task writes a file: without this limit a small batch would write one per partition of the topic.
ROWS_A_TASK = 25_000


@dataclass(frozen=True)
class BatchReport:
    """The outcome of a batch, for the progress display; the proof is in the commit and the ledger. `steps` are seconds per step."""

    table: str
    epoch: int
    number: int
    records_read: int
    inserted: int
    duplicate: int
    quarantined: int
    target_version: int
    seconds: float
    ends: dict[Partition, int]
    steps: dict[str, float] = field(default_factory=dict)


@dataclass
class Table:
    """The state that the batches of one table share, with the offsets where the next one starts.

    `still_ours` raises if the topic was recreated, or if this run has lost its lock; `refuse_lost` only the latter. `source` reads the
    records of a batch that fails again, in halves. `with_epochs` gives ranges their leader epochs, and raises if the topic's log has lost
    offsets that were read.
    """

    contract: Contract
    places: Places
    epoch: Epoch
    files: Files
    still_ours: Callable[[], None] = lambda: None
    starts: Mapping[Partition, int] = field(init=False)
    read_to: Mapping[Partition, Position] = field(init=False)
    refuse_lost: Callable[[], None] = lambda: None
    source: Source | None = None
    with_epochs: Callable[[tuple[OffsetRange, ...], Mapping[Partition, Position]], tuple[OffsetRange, ...]] = lambda ranges, _: ranges

    def __post_init__(self) -> None:
        self.starts, self.read_to = self.epoch.starts, self.epoch.read_to

    def batch_commit(self, number: int, postings: tuple[Posting, ...] = ()) -> BatchCommit:
        """The BatchCommit of the batch's next statement, after another look back.

        Raises the errors of `LookBack.again`, and RunStopped LOCK_LOST.
        """
        self.refuse_lost()
        return self.epoch.writer.batch_commit(Batch(), number, self.epoch.look_back.again(), postings)

    def planned(self, spark_number: int) -> Planned:
        """The batch as Spark planned it. Raises as `offsets.planned`."""
        numbers = {name: source for source, name in self.epoch.topics.items()}
        return planned(self.files, self.epoch.checkpoint, spark_number, self.starts, numbers)

    def read_before(self, ranges: tuple[OffsetRange, ...]) -> bool:
        """Whether an earlier batch has read any of these offsets."""
        return any(each.start < each.end and each.start < self.epoch.read_before.get(each.of, 0) for each in ranges)


class Clock:
    """Seconds per step of a batch."""

    def __init__(self) -> None:
        self.started = self._last = time.monotonic()
        self.steps: dict[str, float] = {}

    def lap(self, step: str) -> None:
        now = time.monotonic()
        self.steps[step], self._last = now - self._last, now


def process(records: DataFrame, spark_number: int, table: Table) -> BatchReport:
    """Write a batch (`records` as Spark's Kafka source delivers them) into quarantine and target, exactly once."""
    clock = Clock()
    number, plan, reread = begin(table, spark_number)

    # 3 Decode once, and count with one ordinary aggregation so that retried tasks count once.
    source = BatchSource(tuple(each.id for each in table.epoch.writer.sources), table.epoch.writer.epoch, number, plan.planned_at)
    with ExitStack() as stack:

        def attempt(records: DataFrame, level: StorageLevel | None = StorageLevel.DISK_ONLY) -> DataFrame:
            return stack.enter_context(kept(decode(records, table.contract, source), level))

        try:
            events = attempt(records, None)
        except Exception as error:
            if table.source is None:
                raise
            found, records, unreadable = table.source.in_halves(records, plan.ranges, attempt, error)
            events = reduce(DataFrame.union, found, refused(records.sparkSession, table.contract, source, unreadable))
        clock.lap("decode")
        ranked, batch_counts = rank(events, table.contract)
        checks: list[Callable[[DataFrame], DataFrame]] = []
        if table.contract.conflicts == "table":
            checks.append(lambda frame: mark_conflicts(frame, table.contract, table.places.target, batch_counts.bounds))
        if reread and (checks or batch_counts.failed):
            checks.append(lambda frame: without_rows(frame, table.places.target, plan.ranges))
        for check in checks:
            ranked = stack.enter_context(kept(check(ranked)))
            batch_counts = count_batch(ranked, table.contract)
        table.still_ours()  # before any write: the rows must come from this topic, and no other run may be active
        refuse_poisoned(batch_counts.read, batch_counts.failed, table.contract, number, plan)
        clock.lap("count")

        # 4 Quarantine first: the target commit of a batch then proves its quarantine commit.
        stored = _quarantine(with_bytes(ranked, records, batch_counts.conflicts), batch_counts, table, number, plan, reread=reread)
        epoch = table.epoch.writer.epoch
        postings = tuple(batch_counts.posting(Key(epoch, number, *each.of), each, stored) for each in plan.ranges)
        crash_points.at("after_quarantine", number)
        clock.lap("quarantine")

        # 5 Target: its commit carries transaction id, ranges and counts. 6 Commit conflicts and unknown outcomes: handled in merge_target.
        winners = ranked.where("__rank = 1").select(*(F.col(f"`{f.name}`") for f in target_fields(table.contract)))
        winners = winners.coalesce(max(1, batch_counts.read // ROWS_A_TASK))
        crash_points.at("during_target", number, table.epoch.checkpoint)
        still = partial(table.batch_commit, number, (*table.epoch.unposted, *postings))
        commit = commits.merge_target(winners, table.contract, table.epoch.look_back.target, batch_counts.bounds, still)
        clock.lap("merge")
    return finish(table, SparkWriter(records.sparkSession), commit, clock, reread=reread)


def begin(table: Table, spark_number: int) -> tuple[int, Planned, bool]:
    """Steps 1 and 2: the batch's number, its offset range, and whether earlier batches have read any of its offsets."""
    # 1 Offset range: from Spark's plan, because the offsets of the data have gaps.
    number = spark_number + FIRST_BATCH
    plan = table.planned(spark_number)
    crash_points.at("after_offset_log", number)

    # 2 Check that this run still owns the table, that nobody has changed the tables since its last look, and that the topic's log is still
    # the one that was read.
    plan = replace(plan, ranges=table.with_epochs(plan.ranges, table.read_to))
    table.batch_commit(number)
    return number, plan, table.read_before(plan.ranges)


def finish(table: Table, writer: TableWriter, commit: Commit, clock: Clock, *, reread: bool) -> BatchReport:
    """What follows the target's commit; returns the outcome of the batch from that commit."""
    batch_commit = commit.batch_commit
    assert batch_commit is not None, "found by its BatchCommit"
    number = batch_commit.id.number
    table.epoch.look_back.again()
    table.starts, table.read_to = batch_commit.ends, batch_commit.read_to
    crash_points.at("after_target", number)

    # 7 Mark quarantined records that are rows now. Then the ledger: a projection of the target's commits, which may lag but never lead.
    table.refuse_lost()
    if reread:
        replay(writer, table.places, batch_commit)
        crash_points.at("after_replayed", number)
    table.epoch.unposted[:] = _completed(table, writer.session, commit, batch_commit)
    table.epoch.ledger.append_if_due(writer.session)
    crash_points.at("after_ledger", number)
    clock.lap("ledger")
    own = [each for each in batch_commit.postings if each.range is not None]
    inserted = sum(each.target.rows for each in (*own, *table.epoch.unposted) if each.target is not None)
    read, quarantined = sum(each.read for each in own), sum(each.quarantine.rows for each in own)
    figures = (read, inserted, read - quarantined - inserted, quarantined)
    seconds = time.monotonic() - clock.started
    return BatchReport(table.places.name, batch_commit.id.epoch, number, *figures, commit.version, seconds, batch_commit.ends, clock.steps)


def _completed(table: Table, session: SparkSession | None, commit: Commit, batch_commit: BatchCommit) -> list[Posting]:
    """What the commit added, if it could not say so itself."""
    if not batch_commit.opened or (state := table.epoch.look_back.target.state()) is None:
        return []
    ids = hashed_ids(state)
    return asked(table.places.lake, session, lambda engine: added_by(engine, table.places, commit.version, ids, batch_commit.opened))


def refuse_poisoned(read: int, failed: int, contract: Contract, number: int, plan: Planned) -> None:
    """Raises RunStopped QUARANTINE_LIMIT if a larger share of the batch is bad than the contract accepts."""
    limit = contract.quarantine
    if read < limit.min_records or failed <= limit.max_share * read:
        return
    raise RunStopped(
        "QUARANTINE_LIMIT",
        f"{failed} of the {read} records of batch {number} of {contract.name} would go to quarantine "
        f"({failed / read:.1%}); offsets {' '.join(str(r) for r in plan.ranges)}. Nothing of the batch was written.",
        expected=f"at most {limit.max_share:.1%} of a batch of at least {limit.min_records} records.",
        remedy="fix the producer, or the contract if that is wrong, and run again; to accept the batch as it is, raise "
        "quarantine.max_share in the contract.",
    )


def _quarantine(
    ranked: DataFrame, batch_counts: BatchCounts, table: Table, number: int, plan: Planned, *, reread: bool
) -> Mapping[Key, Sums]:
    """Commit the records for quarantine; returns the sums of those that the quarantine did not contain before."""
    if not batch_counts.failed:
        return {}
    ids = [as_text(F.col(f"`{name}`")) for name in event_id_columns(table.contract)]
    event_id = ids[0] if len(ids) == 1 else F.when(F.concat(*ids).isNotNull(), F.to_json(F.array(*ids)))
    writer = table.epoch.writer
    topics = {"topic": [each.name for each in writer.sources], "topic_id": [each.id for each in writer.sources]}
    failed = ranked.where("__reason IS NOT NULL").select(
        *(F.element_at(F.array(*map(F.lit, each)), F.col("_source") + 1).alias(name) for name, each in topics.items()),
        F.col("_source").alias("source"),
        F.col("_partition").alias("partition"),
        F.col("_offset").alias("offset"),
        F.col("_kafka_timestamp").alias("kafka_timestamp"),
        F.col("__key").alias("key"),
        F.col("__value").alias("value"),
        F.col("__headers").alias("headers"),
        F.col("__reason").alias("reason_code"),
        F.col("__detail").alias("reason_detail"),
        event_id.alias("event_id"),
        F.lit(writer.contract_hash).alias("contract_hash"),
        F.col("_epoch").alias("epoch"),
        F.col("_batch").alias("batch"),
        F.lit("open").alias("state"),
        F.col("_ingested_at").alias("state_changed_at"),
        F.lit("ingest run").alias("state_by"),
    )
    still = partial(table.batch_commit, number)
    failed = failed.repartition(max(1, batch_counts.failed // ROWS_A_TASK))  # coalesce would also reduce the tasks that read
    commit = commits.merge_quarantine(failed, table.epoch.look_back.quarantine, still, reopen=reread)
    table.epoch.look_back.again()
    where = f"epoch = {writer.epoch} AND batch = {number}"  # the MERGE may also have matched and changed older records
    return sums_at(Spark(ranked.sparkSession), At(table.places.quarantine, commit.version), QUARANTINE, where=where)
