"""A micro-batch, step by step: range, decision, decode, quarantine, target, ledger.

`process` is what Spark's foreachBatch calls. It never returns before the batch's commits are made or found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest import faults
from ingest.contract import Contract
from ingest.errors import RunStopped
from ingest.places import Places
from ingest.stream import commit
from ingest.stream.columns import event_id_columns, target_fields
from ingest.stream.commit import Written
from ingest.stream.conflict import mark_conflicts, with_bytes
from ingest.stream.decide import Skip, Write, decide, one_topic
from ingest.stream.decode import Decoder, Source
from ingest.stream.ledger import Ledger
from ingest.stream.ledger_row import inserted_by_partition
from ingest.stream.mark import Counts, Mark
from ingest.stream.offsets import CheckpointFiles, PlannedBatch
from ingest.stream.standing import mark_known, mark_standing, quarantined_by
from ingest.stream.tally import Tally, rank, tally_of
from ingest.stream.topic import Topic


@dataclass(frozen=True)
class BatchReport:
    """What became of a batch, for the progress display; the proof is in the commit and the ledger. `steps` are seconds by step."""

    table: str
    number: int
    records_read: int
    inserted: int
    duplicate: int
    quarantined: int
    replayed: int
    skipped: bool
    target_version: int
    seconds: float
    ends: dict[int, int]
    steps: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """All that a batch of one table needs to know; `still_ours` raises if the topic is another one than `topic` by now, or if
    this run is no longer alone."""

    contract: Contract
    places: Places
    topic: Topic
    epoch: int
    checkpoint: CheckpointFiles
    ledger: Ledger
    still_ours: Callable[[], None] = lambda: None

    @cached_property
    def decoder(self) -> Decoder:
        """Made for the first batch, in whose JVM all the others run too."""
        return Decoder(self.contract)

    def mark(self, planned: PlannedBatch, counts: Sequence[tuple[int, Counts]] = ()) -> Mark:
        """Identity, ranges and counts of a batch, as its commits carry them."""
        return Mark(
            self.contract.pipeline,
            self.contract.table,
            planned.id,
            self.epoch,
            self.contract.hash,
            planned.topic,
            self.topic.id,
            planned.ranges,
            tuple(counts),
        )


class _Clock:
    """Seconds by step of a batch."""

    def __init__(self) -> None:
        self.started = self._last = time.monotonic()
        self.steps: dict[str, float] = {}

    def lap(self, step: str) -> None:
        now = time.monotonic()
        self.steps[step], self._last = now - self._last, now


def process(records: DataFrame, number: int, table: Table) -> BatchReport:
    """Bring batch `number` (`records` as Spark's Kafka source delivers them) into quarantine and target, exactly once."""
    clock = _Clock()
    # 1 Offset range: from the checkpoint, not from the data, which has gaps.
    query_id = table.checkpoint.query_id()
    assert query_id is not None, "Spark writes the checkpoint's metadata before its first batch"
    planned = table.checkpoint.planned(query_id, number)
    faults.at("after_offset_log", number)

    # 2 Decide: write, skip what is proven to be written, or refuse.
    decision = _decide(table, planned)
    if isinstance(decision, Skip):
        return _report(table, planned, decision.mark.counts, 0, clock, decision.version, skipped=True)

    former = _begun(table, planned)
    begun, table = former is not None, _of_its_topic(table, former)

    # 3 Decode once; one ordinary aggregation counts, so that retried tasks count once. What stands somewhere already stays there.
    source = Source(table.topic.name, table.topic.id, planned.planned_at)
    events = _with_standing(table.decoder.decode(records, source), table, planned, begun=begun)
    ranked = rank(events, table.contract, judge=not begun).persist()
    try:
        tally = tally_of(ranked, table.contract)
        # Against the table only where the contract asks for it, or where a contract of before has refused what this one lets pass.
        for look, asked in ((mark_conflicts, table.contract.conflicts == "table" and not begun), (mark_known, tally.reconsidered > 0)):
            if asked:
                once, ranked = ranked, look(ranked, table.contract, table.places.target, tally.bounds).persist()
                tally = tally_of(ranked, table.contract)
                once.unpersist()
        table.still_ours()  # what is read and cached by now came from this very topic, and no other run is at work: else nothing is written
        _refuse_poisoned(tally.counts, table.contract, planned)
        clock.lap("decode")

        # 4 Quarantine first: a target commit of batch N then proves quarantine N.
        counts = _quarantine(with_bytes(ranked, records, tally.conflicts), tally, table, planned, begun=begun)
        faults.at("after_quarantine", number)
        clock.lap("quarantine")

        # 5 The target: its commit carries pair, ranges and counts. 6 Conflicts and unknown outcomes: inside commit.
        winners = ranked.where("__rank = 1").select(*(F.col(f"`{f.name}`") for f in target_fields(table.contract)))
        faults.at("during_target", number, table.places.checkpoint)
        mark = table.mark(planned, sorted(counts.items()))
        outcome = commit.merge_target(winners, table.contract, table.ledger.target_log, mark, tally.bounds, lambda: _decide(table, planned))
        faults.at("after_target", number)
        clock.lap("merge")
    finally:
        ranked.unpersist()

    # 7 The ledger is a projection of the target's commits; it may lag, never lead.
    table.ledger.saw(outcome.commit)
    inserted = sum(f.records or 0 for f in outcome.commit.added)
    table.ledger.append_if_due(records.sparkSession)
    faults.at("after_ledger", number)
    clock.lap("ledger")
    return _report(table, planned, mark.counts, inserted, clock, outcome.commit.version, skipped=not isinstance(outcome, Written))


def _decide(table: Table, planned: PlannedBatch) -> Write | Skip:
    """On the table as it is now: before each statement again, for it may have been restored or replaced since.

    Raises as `decide` and `Ledger.last_written`.
    """
    return decide(table.mark(planned), table.ledger.last_written(planned.id.query_id))


def _begun(table: Table, planned: PlannedBatch) -> Mark | None:
    """What a former attempt has committed to the quarantine for this batch; None if none has.

    Under another contract such a batch cannot be ended: other records might fail now, and one that is in neither table would be
    lost. Raises RunStopped CONTRACT_CHANGED, and as `Ledger.quarantine_mark`.
    """
    newest = table.ledger.quarantine_mark()
    if newest is None or newest.id != planned.id:
        return None
    if newest.contract_hash == table.contract.hash:
        return newest
    raise RunStopped(
        "CONTRACT_CHANGED",
        f"batch {planned.id.number} of {table.contract.name} was begun under contract {newest.contract_hash}: its quarantine is committed, "
        f"its rows are not. The contract is now {table.contract.hash}. Nothing was written.",
        expected="the contract that the batch was begun with, until the batch is done.",
        remedy=f"put the contract of hash {newest.contract_hash} back, run once, then change it again; or `ingest rebase "
        f"{table.contract.name} --to table` reads the batch again under this one: what stands in quarantine stays there, and is a row too "
        "if this one lets it pass.",
    )


def _of_its_topic(table: Table, begun: Mark | None) -> Table:
    """The table with the topic id that the batch was begun with: if a broker was upgraded since and tells one now, what stands in
    quarantine would not be found under it, and go there twice."""
    if begun is None or not one_topic(begun.topic_id, table.topic.id):
        return table
    return replace(table, topic=replace(table.topic, id=begun.topic_id))


def _with_standing(events: DataFrame, table: Table, planned: PlannedBatch, *, begun: bool) -> DataFrame:
    again = table.ledger.read_before(planned.ranges, table.topic.id)
    return mark_standing(events, table.places, planned.id, table.topic.id, planned.ranges, begun=begun, read_before=again)


def _refuse_poisoned(counts: dict[int, Counts], contract: Contract, planned: PlannedBatch) -> None:
    read = sum(c.read for c in counts.values())
    quarantined = sum(c.quarantined for c in counts.values())
    limit = contract.quarantine
    if read < limit.min_records or quarantined <= limit.max_share * read:
        return
    raise RunStopped(
        "QUARANTINE_LIMIT",
        f"{quarantined} of the {read} records of batch {planned.id.number} of {contract.name} would go to quarantine "
        f"({quarantined / read:.1%}); offsets {' '.join(str(r) for r in planned.ranges)}. Nothing of the batch was written.",
        expected=f"at most {limit.max_share:.1%} of a batch of at least {limit.min_records} records.",
        remedy="mend the producer; to take the batch as it is, raise quarantine.max_share in the contract and run again. If the contract "
        f"is wrong, correct it and `ingest rebase {contract.name} --to table`: a run ends the batch under the contract that it was begun "
        "with.",
    )


def _quarantine(ranked: DataFrame, tally: Tally, table: Table, planned: PlannedBatch, *, begun: bool) -> dict[int, Counts]:
    """Commit the records that are no rows; returns the counts with those that stood there by other batches moved to `replayed`."""
    counts = tally.counts
    if not begun and not any(c.quarantined for c in counts.values()):
        return counts
    ids = [F.col(f"`{name}`").cast("string") for name in event_id_columns(table.contract)]
    event_id = ids[0] if len(ids) == 1 else F.when(F.concat(*ids).isNotNull(), F.to_json(F.array(*ids)))
    mark = table.mark(planned, sorted(counts.items()))
    failed = ranked.where("__reason IS NOT NULL").select(
        F.col("_topic").alias("topic"),
        F.col("_topic_id").alias("topic_id"),
        F.col("_partition").alias("partition"),
        F.col("_offset").alias("offset"),
        F.col("_kafka_timestamp").alias("kafka_timestamp"),
        F.col("__key").alias("key"),
        F.col("__value").alias("value"),
        F.col("__headers").alias("headers"),
        F.col("__reason").alias("reason_code"),
        F.col("__detail").alias("reason_detail"),
        event_id.alias("event_id"),
        F.lit(mark.contract_hash).alias("contract_hash"),
        F.lit(mark.id.query_id).alias("query_id"),
        F.lit(mark.id.number).cast("bigint").alias("batch_id"),
        F.lit("open").alias("state"),
        F.col("_ingested_at").alias("state_changed_at"),
        F.lit("ingest run").alias("state_by"),
    )
    outcome = commit.merge_quarantine(failed, table.ledger.quarantine_log, mark, lambda: _decide(table, planned))
    if begun:
        return _as_begun(ranked, tally, table, planned)
    expected = {partition: c.quarantined for partition, c in counts.items()}
    stored = inserted_by_partition(ranked.sparkSession, table.places.quarantine, outcome.commit, expected, "partition")
    return {p: Counts(c.read, stored.get(p, 0), c.losers, c.replayed + c.quarantined - stored.get(p, 0)) for p, c in counts.items()}


def _as_begun(ranked: DataFrame, tally: Tally, table: Table, planned: PlannedBatch) -> dict[int, Counts]:
    """The counts of a batch whose quarantine an earlier attempt has committed: what that put there was read, whatever Kafka holds now.

    Raises RunStopped QUARANTINE_REWOUND for records that belong there and are not: Delta would skip a second MERGE.
    """
    if tally.absent:
        raise RunStopped(
            "QUARANTINE_REWOUND",
            f"the quarantine of batch {planned.id.number} of {table.contract.name} was committed by an earlier attempt, but {tally.absent} "
            f"records that belong there are not in {table.places.quarantine}. Its rows were not written.",
            expected="all of them: they were deleted, or another version of ingest has decoded them.",
            remedy=f"bring the quarantine back (RESTORE TABLE to its newest state) and run again; or `ingest rebase {table.contract.name} "
            "--to table` reads the batch again: what stands in quarantine is not doubled, what is missing comes back.",
        )
    held = quarantined_by(ranked, table.places, planned.id)
    counts = {}
    for partition in sorted({*tally.counts, *held}):
        c, there = tally.counts.get(partition, Counts()), held.get(partition, 0)
        standing = tally.standing.get(partition, 0)
        counts[partition] = Counts(c.read + there - standing, there, c.losers, c.replayed + c.quarantined - standing)
    return counts


def _report(
    table: Table,
    planned: PlannedBatch,
    counts: Sequence[tuple[int, Counts]],
    inserted: int,
    clock: _Clock,
    version: int,
    *,
    skipped: bool,
) -> BatchReport:
    total = [c for _, c in counts]
    winners = sum(c.winners for c in total)
    return BatchReport(
        table.places.name,
        planned.id.number,
        sum(c.read for c in total),
        inserted,
        sum(c.losers for c in total) + (0 if skipped else winners - inserted),
        sum(c.quarantined for c in total),
        sum(c.replayed for c in total),
        skipped,
        version,
        time.monotonic() - clock.started,
        {r.partition: r.end for r in planned.ranges},
        clock.steps,
    )
