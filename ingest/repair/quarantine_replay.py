"""Replay quarantined records: decode their bytes again, and add those that the contract now accepts to the target (I3, I4).

A replay opens an epoch at the table's end, and its rows and offsets are one commit, like a seek's. So it fences every other writer, and a
crash leaves either no row or all of them. After the commit the records that are rows now become `replayed`; the next start completes that
step. Accepted duplicates stay `open`: that nobody needs them is a person's decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batch.batch_counts import BatchCounts, PartitionCounts, count_batch, rank
from ingest.batch.conflicts import CONFLICT, mark_conflicts
from ingest.contract.columns import target_fields
from ingest.contract.definition import Contract
from ingest.decode.decoder import decode
from ingest.decode.event_plan import BatchSource
from ingest.delta import writer as commits
from ingest.delta.batch_commit import SEEK, BatchCommit, BatchId, Replay
from ingest.delta.commit import Commit
from ingest.delta.delta_log import Logs
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.posting import Key
from ingest.delta.table_writer import SparkWriter, TableWriter
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.recovery.epoch import open_epoch
from ingest.recovery.look_back import LookBack
from ingest.recovery.replay import replay
from ingest.recovery.state_reader import Broker, read_start_state
from ingest.repair import direct_replay
from ingest.repair.replayed import BY, Replayed
from ingest.repair.selection import Selection
from ingest.runtime import crash_points
from ingest.runtime.kept_frame import kept
from ingest.runtime.places import Places


def without_conflicts(selection: Selection) -> Selection:
    """The selection without conflicting duplicates, unless it names them.

    The contract accepts such a record, but its event id has another payload already. Replayed, it would silently count as a duplicate.
    """
    return selection if selection.reasons else replace(selection, without_reasons=(CONFLICT,))


def try_replay(writer: TableWriter, contract: Contract, places: Places, broker: Broker, selection: Selection) -> Replayed:
    """What a replay would do, without writing anything."""
    if isinstance(writer, DirectWriter):
        return direct_replay.tried(contract, places, broker, selection)
    session = _session(writer)
    frame = session.read.format("delta").load(places.quarantine).where(selection.for_spark)
    topics = read_start_state(session, places, Logs.of(places, session), broker).topics
    assert topics is not None, "the broker was asked"
    here = F.col("source").isin([*topics.states])
    with _decoded(frame.where(here), contract, places, topics.sources, BatchId(0, SEEK)) as (ranked, counts):
        return Replayed(counts.read, counts.read - counts.failed, 0, _refused(ranked), frame.where(~here).count())


def replay_quarantine(writer: TableWriter, contract: Contract, places: Places, broker: Broker, selection: Selection) -> Replayed:
    """Replay the selected records. The caller holds the table's lock. Raises the errors of `open_epoch`, and RunStopped FENCED."""
    found: list[Replayed] = []

    def statement(at_end: BatchCommit, look_back: LookBack) -> Commit | None:
        if isinstance(writer, DirectWriter):
            commit, replayed = direct_replay.commit(writer, contract, places, selection, at_end, look_back)
        else:
            commit, replayed = _commit(_session(writer), contract, places, selection, at_end, look_back)
        found.append(replayed)
        return commit

    epoch = open_epoch(writer.session, contract, places, broker, statement=statement, writer=writer)
    crash_points.at("replay_marked", 0)
    epoch.finish()
    return replace(found[-1], epoch=epoch.writer.epoch, healed=epoch.healed)


def _session(writer: TableWriter) -> SparkSession:
    assert writer.session is not None, "Spark's writer has a session"
    return writer.session


def _commit(
    session: SparkSession, contract: Contract, places: Places, selection: Selection, at_end: BatchCommit, look_back: LookBack
) -> tuple[Commit | None, Replayed]:
    """Commit the accepted records as rows, with the offsets at the table's end, and set those that became rows to `replayed`."""
    reader = session.read.format("delta").option("versionAsOf", look_back.snapshots.quarantine.version)
    frame = reader.load(places.quarantine).where(selection.for_spark)
    here = F.col("source").isin(sorted({number for number, _ in at_end.ends}))
    with _decoded(frame.where(here), contract, places, at_end.sources, at_end.id) as (ranked, counts):
        elsewhere = frame.where(~here).count()
        ranges = _ranges(ranked.where("__reason IS NULL"))
        if not ranges:
            return None, Replayed(counts.read, 0, 0, _refused(ranked), elsewhere)
        accepted = {of: PartitionCounts(c.read - c.failed, 0, c.duplicates) for of, c in counts.counts.items() if c.read > c.failed}
        named = replace(counts, counts=accepted)
        at = (at_end.id.epoch, at_end.id.number)
        postings = tuple(named.posting(Key(*at, *each.of), each, {}, "replay") for each in ranges)
        statement = replace(at_end, case=Replay(BY), postings=(*at_end.postings, *postings))

        def still() -> BatchCommit:
            return replace(statement, snapshots=look_back.again())

        winners = ranked.where("__rank = 1").select(*(F.col(f"`{each.name}`") for each in target_fields(contract)))
        commit = commits.merge_target(winners, contract, look_back.target, counts.bounds, still)
        crash_points.at("replay_target", 0)
        look_back.again()
        replay(SparkWriter(session), places, statement)
        inserted = sum(file.records or 0 for file in commit.added)
        duplicate = sum(each.read for each in accepted.values()) - inserted
        return commit, Replayed(counts.read, inserted, duplicate, _refused(ranked), elsewhere)


@contextmanager
def _decoded(
    frame: DataFrame, contract: Contract, places: Places, sources: Sequence[TopicId], id: BatchId
) -> Iterator[tuple[DataFrame, BatchCounts]]:
    """The records as a batch would classify them: decoded, ranked and compared with the target."""
    records = frame.select("key", "value", "headers", "source", "partition", "offset", F.col("kafka_timestamp").alias("timestamp"))
    source = BatchSource(tuple(each.id for each in sources), id.epoch, id.number, datetime.now(UTC))
    with ExitStack() as stack:
        events = stack.enter_context(kept(decode(records, contract, source)))
        ranked, counts = rank(events, contract)
        if contract.conflicts == "table":
            ranked = stack.enter_context(kept(mark_conflicts(ranked, contract, places.target, counts.bounds)))
            counts = count_batch(ranked, contract)
        yield ranked, counts


def _ranges(accepted: DataFrame) -> tuple[OffsetRange, ...]:
    spans = accepted.groupBy("_source", "_partition").agg(F.min("_offset").alias("first"), F.max("_offset").alias("last")).collect()
    return tuple(OffsetRange(partition, first, last + 1, source=source) for source, partition, first, last in sorted(spans))


def _refused(ranked: DataFrame) -> dict[str, int]:
    rows = ranked.where("__reason IS NOT NULL").groupBy("__reason").count().collect()
    return {row["__reason"]: row["count"] for row in sorted(rows, key=lambda row: (-row["count"], row["__reason"]))}
